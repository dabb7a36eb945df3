"""The engine behind servers and libraries: many requests at once on one model, several models in one process."""
