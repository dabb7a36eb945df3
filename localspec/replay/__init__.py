"""Answers written down once, and drafters run over them without the model."""
