"""The steps of a run. Shape legend: S steps, R ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Steps:
    """Where each step begins and ends, on each rank.

    Attributes:
        start_SR, end_SR: int64 (S, R), ns; disjoint and in order on each rank.
        steady_S: bool (S,): after warm-up, and fit for statistics.
        weight_S: int32 (S,): how many steps of the training the row stands for (> 1 where rows were rolled up).
        closed_by: what closes a step, in words: "optimizer" or "backward".

    Raises:
        ValueError: When steps overlap.
    """

    start_SR: NDArray[np.int64]
    end_SR: NDArray[np.int64]
    steady_S: NDArray[np.bool_]
    weight_S: NDArray[np.int32]
    closed_by: str = "optimizer"

    def __post_init__(self) -> None:
        if (self.end_SR < self.start_SR).any() or (self.start_SR[1:] < self.end_SR[:-1]).any():
            raise ValueError("steps overlap or run backwards")

    @property
    def length_S(self) -> NDArray[np.float64]:
        """Wall time of a step of each row on the rank that takes longest, ns (S,)."""
        return np.asarray((self.end_SR - self.start_SR).max(axis=1, initial=0) / np.maximum(1, self.weight_S))

    @property
    def usual_ns(self) -> float:
        """Median length of the steady rows, ns; 0 where there is none."""
        return float(np.median(self.length_S[self.steady_S])) if self.steady_S.any() else 0.0

    @property
    def count(self) -> int:
        """Steps of the training, rolled-up ones counted each."""
        return int(self.weight_S.sum())

    @property
    def steady_count(self) -> int:
        return int(self.weight_S[self.steady_S].sum())

    @property
    def steady(self) -> NDArray[np.intp]:
        """Indices of the steady rows."""
        return np.flatnonzero(self.steady_S)
