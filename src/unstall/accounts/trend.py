"""How step time and memory change over the run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unstall.model.ledger import Ledger
from unstall.model.run import Rank
from unstall.model.steps import Steps
from unstall.model.tables import Trend
from unstall.model.wire import Phase

LEAST_STEPS = 12  # fewer say nothing of a trend
MOST_STEPS = 600  # for the slope of all pairs; more are thinned


def trend(rank: Rank, steps: Steps, ledger: Ledger) -> Trend | None:
    """Return the trend of *rank*'s steps (the first of the run excepted), or None where they are too few.

    Source: Theil-Sen slope with Kendall's interval (Sen 1968).
    """
    chosen = steps.steady
    if chosen.size < LEAST_STEPS:
        return None
    weight = np.maximum(1, steps.weight_S[chosen])
    length = (steps.end_SR[chosen, 0] - steps.start_SR[chosen, 0]) / weight
    at = np.cumsum(weight).astype(np.float64)
    fifth = max(1, chosen.size // 5)
    slope, low, high = slope_of(at, length)
    phases = []
    for phase in Phase:
        spent = np.zeros(steps.start_SR.shape[0])
        rows = ledger.rows(rank=0, phase=phase) & (ledger.step >= 0)
        np.add.at(spent, ledger.step[rows], ledger.ns[rows])
        if spent[chosen].any():
            phases.append((phase, slope_of(at, spent[chosen] / weight)[0]))
    return Trend(
        int(np.median(length[:fifth])), int(np.median(length[-fifth:])), slope, low, high, tuple(phases),
        _memory(rank, steps, chosen), int(chosen.size),
    )  # fmt: skip


def slope_of(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the median slope of all pairs and the bounds of its 95 % interval."""
    if x.size > MOST_STEPS:
        keep = np.linspace(0, x.size - 1, MOST_STEPS).astype(int)
        x, y = x[keep], y[keep]
    i, j = np.triu_indices(x.size, 1)
    slopes = np.sort((y[j] - y[i]) / (x[j] - x[i]))
    n = x.size
    half = 1.96 * np.sqrt(n * (n - 1) * (2 * n + 5) / 18) / 2
    last = slopes.size - 1
    low, high = max(0, int(slopes.size / 2 - half)), min(last, int(slopes.size / 2 + half))
    return float(np.median(slopes)), float(slopes[low]), float(slopes[high])


def _memory(rank: Rank, steps: Steps, chosen: NDArray[np.intp]) -> float | None:
    gauges = rank.gauges
    if gauges is None:
        return None
    begin, end = steps.start_SR[chosen[0], 0], steps.end_SR[chosen[-1], 0]
    inside = (gauges.at_ns >= begin) & (gauges.at_ns <= end)
    if inside.sum() < 3:
        return None
    count = np.interp(gauges.at_ns[inside], steps.end_SR[:, 0], np.cumsum(steps.weight_S))
    if count[-1] <= count[0]:
        return None
    return float(np.polyfit(count, gauges.rss_bytes[inside], 1)[0])
