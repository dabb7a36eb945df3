"""localspec: tree-based speculative decoding on llama.cpp, measured on the machine it runs on."""

__version__ = "0.1.0"
