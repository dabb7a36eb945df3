"""How a prompt is read: what of it is known, and in which pieces the rest goes."""

from __future__ import annotations

from collections.abc import Sequence

#: rows from which on attention on the CPU goes in tiles
TILE = 64


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the beginning that both have in common."""
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)


def piece_size(n_read: int, n_left: int, most: int, block: int) -> int:
    """How many of `n_left` tokens to read at once, about `most`, after `n_read` were.

    A prompt is evaluated in blocks of `block` tokens, and attention of fewer than `TILE` rows sums in another
    order. So that a prompt read in pieces is the same to the last bit, a piece is the rest of its block, or a multiple
    of `TILE` that leaves as many or more for the next.
    """
    rest = min(n_left, block - n_read % block)
    n = max(TILE, most // TILE * TILE)
    if rest <= most or rest < 2 * TILE:
        return rest
    return min(n, (rest - TILE) // TILE * TILE)
