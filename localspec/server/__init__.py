"""The HTTP server: OpenAI's API, those of its neighbours, and what desktop apps expect of them."""
