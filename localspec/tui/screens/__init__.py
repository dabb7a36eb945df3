"""Screens on top of the chat. Each is a modal screen that gets plain data, and gives a plain result or None."""
