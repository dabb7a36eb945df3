"""Progressive tree drafting (PTD, arXiv 2607.10661)."""
