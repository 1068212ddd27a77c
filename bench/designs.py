"""Ways to spend alpha over the looks of the sequential test, compared by simulation: ``python bench/designs.py [--sequences N]``.

Prints how often equal arms are called faster, with normal noise, with heavy tails (Student's t of 3 degrees) and on a machine
whose speed drifts (each trial like the one before, arms in the order A B B A), and how many pairs a gain takes.  The levels
are those of Armitage, McPherson & Rowe 1969, which are exact for sums of normal values of known spread, or what the
union bound leaves, as in `trials/sequence.py`.  The former are checked against the published bounds of five looks first.
Shape legend: N sequences, P pairs, K looks, X points of a grid.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtrit

from unstall.trials.sequence import Design

Floats = NDArray[np.float64]
Spending = Callable[[float], float]  # of the fraction of the pairs: the share of alpha spent by then

DESIGN = Design()
POINTS = 1201  # of the grid of a look's density
PAIRS_P = np.arange(1, DESIGN.most_pairs + 1)
GAINS = ((1.3, 0.02), (1.3, 0.03), (1.05, 0.02), (1.03, 0.02))  # ratio, standard deviation of its log
PUBLISHED = {"pocock": (2.438, 2.427, 2.410, 2.397, 2.386), "obrien-fleming": (4.877, 3.357, 2.680, 2.290, 2.031)}


def spendings(alpha: float) -> dict[str, Spending]:
    return {
        "pocock": lambda t: math.log1p((math.e - 1) * t),
        "linear": lambda t: t,
        "square root": math.sqrt,
        "obrien-fleming": lambda t: 2 * float(ndtr(ndtri(alpha / 2) / math.sqrt(t))) / alpha,
    }


def union(alpha: float, first: int, last: int, spend: Spending) -> list[float]:
    """Return the one-sided level of each look: what is spent since the one before."""
    spent = [alpha * spend(pairs / last) for pairs in range(first, last + 1)]
    return [now - before for before, now in zip([0.0, *spent], spent)]


def integrated(alpha: float, first: int, last: int, spend: Spending) -> list[float]:
    """Return the one-sided level of each look, one a pair from *first* to *last* pairs.

    The density of the sum over the paths that no look has ended is carried from look to look on a grid by Simpson's rule,
    and each bound is put where the alpha of its look leaves through it. Cost: K times X squared.
    """
    fractions = [pairs / last for pairs in range(first, last + 1)]
    time, spent = fractions[0], alpha * spend(fractions[0])
    bound = float(-ndtri(spent)) * math.sqrt(time)
    found, (grid_X, weight_X) = [spent], simpson(-8 * math.sqrt(time), bound)
    density_X = normal(grid_X / math.sqrt(time)) / math.sqrt(time)
    for now in fractions[1:]:
        step, due = math.sqrt(now - time), alpha * spend(now) - spent
        mass_X, from_X = density_X * weight_X, grid_X
        bound = leaving(mass_X, from_X, step, due, 12 * math.sqrt(now))
        grid_X, weight_X = simpson(-8 * math.sqrt(now), bound)
        density_X = normal((grid_X[:, None] - from_X[None, :]) / step) @ mass_X / step
        spent, time = spent + due, now
        found.append(float(ndtr(-bound / math.sqrt(now))))
    return found


def normal(x: Floats) -> Floats:
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def simpson(low: float, high: float) -> tuple[Floats, Floats]:
    """Return points from *low* to *high* and their weights."""
    weight_X = np.full(POINTS, 2.0)
    weight_X[1::2] = 4.0
    weight_X[[0, -1]] = 1.0
    return np.linspace(low, high, POINTS), weight_X * (high - low) / (3 * (POINTS - 1))


def leaving(mass_X: Floats, from_X: Floats, step: float, due: float, high: float) -> float:
    """Return the bound above which *due* of the mass lies a step later, by halving."""
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        is_low = float(mass_X @ ndtr((from_X - middle) / step)) > due
        low, high = (middle, high) if is_low else (low, middle)
    return (low + high) / 2


def drifting(rng: np.random.Generator, count: int, kept: float) -> Floats:
    """Return logs (N, P) of equal pairs on a machine whose speed keeps *kept* of its state from trial to trial."""
    trials = 2 * DESIGN.most_pairs
    shock = rng.normal(size=(count, trials))
    state = np.empty_like(shock)
    state[:, 0] = shock[:, 0]
    for n in range(1, trials):
        state[:, n] = kept * state[:, n - 1] + math.sqrt(1 - kept * kept) * shock[:, n]
    times = 0.05 * state + 0.005 * rng.normal(size=state.shape)
    return (times[:, 0::2] - times[:, 1::2]) * np.where(PAIRS_P % 2, 1, -1)


def t_of(logs: Floats) -> Floats:
    """Return Student's t at each look, float64 (N, K)."""
    mean = np.cumsum(logs, 1) / PAIRS_P
    spread = np.sqrt(np.maximum(np.cumsum(logs * logs, 1) - PAIRS_P * mean * mean, 0) / np.maximum(PAIRS_P - 1, 1))
    return (mean / np.maximum(spread, DESIGN.quietest) * np.sqrt(PAIRS_P))[:, DESIGN.least_pairs - 1 :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=200_000)
    count = parser.parse_args().sequences
    for name, bounds in PUBLISHED.items():
        assert np.allclose(-ndtri(integrated(0.025, 1, 5, spendings(0.025)[name])), bounds, atol=1e-3), name
    rng, most = np.random.default_rng(1), DESIGN.most_pairs
    nulls = {"normal": rng.normal(size=(count, most)), "t3": rng.standard_t(3, size=(count, most))}
    nulls = {name: t_of(0.02 * logs) for name, logs in nulls.items()}
    nulls |= {f"drift {kept}": t_of(drifting(rng, count, kept)) for kept in (0.3, 0.6, 0.9)}
    gains = {gain: t_of(math.log(gain[0]) + gain[1] * rng.normal(size=(count // 10, most))) for gain in GAINS}
    print("false faster by noise; pairs that a gain takes and its power, by ratio and noise")
    for name, spend in spendings(DESIGN.alpha).items():
        for how in (integrated, union):
            level_K = np.array(how(DESIGN.alpha, DESIGN.least_pairs, most, spend))
            bound_K = stdtrit(np.arange(DESIGN.least_pairs, most + 1) - 1, 1 - level_K)
            false = ", ".join(f"{noise} {(t > bound_K).any(1).mean():.2%}" for noise, t in nulls.items())
            took = []
            for (ratio, noise), t in gains.items():
                over = t > bound_K
                pairs = np.where(over.any(1), over.argmax(1) + DESIGN.least_pairs, most)
                took.append(f"{ratio} at {noise:.0%}: {pairs.mean():.2f} ({over.any(1).mean():.0%})")
            print(f"{name:15}{how.__name__:11} {false};  {', '.join(took)}")


if __name__ == "__main__":
    main()
