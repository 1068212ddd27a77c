"""Divide whole nanoseconds by shares, so that the parts add up exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def divide(total: int, weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return int64 (W,): *total* in proportion to *weights* (W,), summing to it exactly.

    Weights that are all zero give everything to the first part.
    Source: largest remainder (Hamilton's method).
    """
    scale = float(weights.sum())
    if scale <= 0:
        parts = np.zeros(weights.size, np.int64)
        parts[0] = total
        return parts
    exact = total * (weights / scale)
    parts = np.floor(exact).astype(np.int64)
    short = total - int(parts.sum())
    order = np.argsort(-(exact - parts), kind="stable")
    parts[order[: max(0, short)]] += 1
    parts[int(np.argmax(parts))] += total - int(parts.sum())  # float error on totals beyond 2**53 ns (104 days)
    return parts
