"""Training of Hydra heads on text that the model wrote itself. `torch` is an extra: pip install 'localspec[train]'."""
