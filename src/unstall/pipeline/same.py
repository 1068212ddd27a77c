"""See whether a remedy leaves the training the same, by the trials that its safety class asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from unstall.model.remedy import Safety
from unstall.model.trial import Captured, Equality, Trial
from unstall.pipeline.pairs import Pairs
from unstall.pipeline.trial import Ask
from unstall.trials import equality

SHRUNK = 4  # batches an epoch is cut to, where boundaries of epochs are wanted
SHRUNK_EPOCHS = 3
LEAST_EPOCHS = 2  # boundaries that are passed: a kept iterator draws no new seed at the first
POINTS = (1, 4, 10)  # steps that both arms make from the same state
ENVELOPES = 2  # runs whose parameters are moved by one unit in the last place
MOST_SEEDS = 10  # pairs, where the band of the seeds is too wide to tell

Make = Callable[[Ask, str], Trial]  # makes a trial whose time does not count; the words are for the user
More = Callable[[int], bool]  # makes one more pair of at most so many; whether both its trials came to their end


def same(safety: Safety, pairs: Pairs, make: Make, more: More, folder: Path) -> Equality:
    """Return whether the training stayed the same, as far as *safety* promises.

    Args:
        pairs: the pairs that showed the remedy to be faster.
        folder: for the states that both arms of a lockstep begin from; made where it is needed.
    """
    if safety is Safety.CHANGES_TRAINING:
        return equality.curves(*_captured(pairs))
    if safety is Safety.SAME_DISTRIBUTION:
        return _same_draws(pairs, more)
    if safety is Safety.SAME_BITS:
        return _same_bits(pairs, make, folder)
    return _lockstep(pairs, make, folder)


def _same_draws(pairs: Pairs, more: More) -> Equality:
    """Compare with the band of seeds; while it does not tell, make more pairs, each of another seed."""
    found = equality.seeds(*_captured(pairs))
    while not found.told and len(pairs.pairs) < MOST_SEEDS and more(MOST_SEEDS):
        found = equality.seeds(*_captured(pairs))
    return found


def _same_bits(pairs: Pairs, make: Make, folder: Path) -> Equality:
    """Compare bit for bit over boundaries of epochs; where two equal runs differ already, in lockstep."""
    shrunk = replace(pairs.ask, shrink=SHRUNK, steps=SHRUNK * SHRUNK_EPOCHS + 1)
    what = "are all bits the same?"
    base, other = (make(replace(shrunk, edits=edits), what) for edits in (pairs.base, pairs.remedy))
    # a script that comes to its end before has no more boundaries to pass
    least = LEAST_EPOCHS if base.stopped else min(LEAST_EPOCHS, base.captured.epochs)
    found = equality.bits(base.captured, other.captured, least)
    if found.held:
        bases, with_it = _captured(pairs)
        plain = equality.bits(bases[0], with_it[0], least_epochs=0)
        return found if plain.held else plain
    again = make(replace(shrunk, edits=pairs.base), what)
    if equality.bits(base.captured, again.captured, least_epochs=0).held:
        return found
    rounded = _lockstep(pairs, make, folder)
    return replace(rounded, because=f"two equal runs differ in bits already; {rounded.because}")


def _lockstep(pairs: Pairs, make: Make, folder: Path) -> Equality:
    folder.mkdir(parents=True, exist_ok=True)
    ask, what = replace(pairs.ask, points=POINTS, steps=max(POINTS) + 2), "does only rounding differ?"
    base = make(replace(ask, edits=pairs.base, save=folder), what)
    other = make(replace(ask, edits=pairs.remedy, load=folder), what)
    moved = [make(replace(ask, edits=pairs.base, load=folder, ulp=True), what) for _ in range(ENVELOPES)]
    return equality.lockstep(base.captured, other.captured, [trial.captured for trial in moved])


def _captured(pairs: Pairs) -> tuple[list[Captured], list[Captured]]:
    """Return what the two arms of all pairs kept, disturbed or not: time does not matter to it."""
    return [pair.base.captured for pair in pairs.pairs], [pair.remedy.captured for pair in pairs.pairs]
