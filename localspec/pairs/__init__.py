"""Which models can draft for which: vocabularies, memory, and the candidates on this machine."""
