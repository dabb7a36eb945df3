"""Draft heads on the target's hidden state: Hydra (arXiv 2402.05109) and Medusa (arXiv 2401.10774)."""
