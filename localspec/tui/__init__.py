"""The terminal interface: a Textual app that shows answers, their speed and the trees in use.

It sees events and what `localspec.tui.backend` promises of an engine; nothing here imports the native library.
"""
