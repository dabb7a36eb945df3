"""The widgets of the chat."""
