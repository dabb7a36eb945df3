"""Drafting with a second, smaller model of the same vocabulary (FLy, papers.md section 4; the drafter alone)."""
