"""EntMTP (arXiv 2606.27550): static trees for multi-token heads, and their choice by the model's own confidence.

Everything here works on a rank log, without a model: replay, growth of trees, the bank, and the policies of a decoder.
"""
