"""Whether a training stayed the same under a remedy: bit for bit, in lockstep, or within the band of seeds.

Which of them is asked for follows from the remedy's safety class; all are pure functions of what trials captured.
Shape legend: L backward passes, P parameters' elements, N runs.

**Lockstep.**  Two runs that only round otherwise are compared over single steps from the same state.  The error of a step is
``|remedy - base| / |base|`` in the Euclidean norm, over all gradients and over all changes of parameters; it is held
against the largest error of *envelope* runs, which make the same steps from parameters that were moved by about one unit in
the last place, at random (Parker 1997, *Monte Carlo arithmetic*).  A product that is summed in another order gives what the first
order gives from weights that are moved by sqrt(n) u or less with high probability, n the terms of the sum and u half a unit
(Higham & Mary 2019, *A new approach to probabilistic rounding error analysis*, SIAM J. Sci. Comput. 41(5)), so 16 units
cover sums of 1000 terms in any order, and the far longer ones that are summed in blocks, as libraries do.  TF32 and
bfloat16 in place of float32 are 2^13 and 2^16 units away.

Some gradients are 0 but for rounding (a bias before a normalisation), and Adam makes steps of full size of them: there the
changes of the parameters are noise in any run, and their norm would hide a changed rate.  So the changes are compared by
quantiles of the elements' own errors as well: of one in 2, 4, 8, ... elements none may differ by more than 16 times
what the envelope leaves to half as many.  A group of parameters that is updated otherwise shows unless fewer than are noise.

**Seeds.**  Runs that draw other random numbers are compared by the mean of the last third of their losses: the remedy's
must lie within the band that runs which differ only by the seed leave for the mean of as many further runs (Student's t,
1 % over the two tests), and its differences from the base runs of the same seeds must be of mean 0 (paired t).
How large a difference would have been seen is part of the answer, and where that is too large the answer is no.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from unstall.model.trial import Captured, Compared, Equality

FACTOR = 16.0  # times the largest error of the envelope runs; see above
FLOOR = 2.0**-22  # four half units of float32, which is what gradients are kept in
ALPHA = 0.01  # of calling an equal training different, over both tests
POWER = 0.8  # with which the stated difference would have been seen
LEAST_IN_QUANTILE = 8  # elements; fewer are chance
LEAST_RUNS = 3  # of the base with different seeds; t of two runs is 64 standard deviations
RAREST = 10  # one in 2^10 elements is the rarest quantile of their errors
MOST_SORTED = 1 << 20  # elements that are sorted for quantiles; of more one in so many
SMALL = 0.05  # of the loss: a difference below it counts as seen well enough, whatever the training learns in the trial

GRADIENTS, CHANGES, HALF = "gradients", "changes of all parameters", "changes of half of the parameters"


def bits(base: Captured, remedy: Captured, least_epochs: int = 2) -> Equality:
    """Return whether all losses and the final parameters are equal bit for bit, over *least_epochs* epoch boundaries.

    NaN, a pass that started from no scalar, equals NaN.  Boundaries are asked for only where a DataLoader gives the batches.
    """
    trouble = _unlike(base, remedy)
    a_L, b_L = base.losses_L, remedy.losses_L
    scalars = int((~np.isnan(a_L)).sum())
    told = _kept(base, remedy)
    if not trouble and not scalars:
        told = False
        trouble = f"none of the {a_L.size} backward passes started from a number, so there are no losses to compare"
    if not trouble:
        differ = (a_L.view(np.uint64) != b_L.view(np.uint64)) & ~(np.isnan(a_L) & np.isnan(b_L))
        if differ.any():
            at = int(np.argmax(differ))
            trouble = (
                f"{int(differ.sum())} of {a_L.size} losses differ, first in backward pass {at + 1}: "
                f"{a_L[at]:.9g} without the remedy, {b_L[at]:.9g} with it"
            )
        elif not (base.parameters and remedy.parameters):
            told = False
            trouble = f"{scalars} losses are equal, but the final parameters could not be read{_notes(base, remedy)}"
        elif base.parameters != remedy.parameters:
            trouble = f"{scalars} losses are equal bit for bit, but the final parameters are not"
        elif base.through_loader and min(base.epochs, remedy.epochs) < least_epochs:
            told = False
            trouble = (
                f"{scalars} losses and the parameters are equal bit for bit, but over {min(base.epochs, remedy.epochs)} "
                f"epoch boundaries only, and {least_epochs} are asked for"
            )
    if trouble:
        return Equality(Compared.BITS, False, trouble, told)
    over = f" over {base.epochs + 1} epochs" if base.through_loader else ""
    return Equality(Compared.BITS, True, f"{scalars} losses and the parameters are equal bit for bit{over}")


def lockstep(base: Captured, remedy: Captured, envelopes: Sequence[Captured]) -> Equality:
    """Return whether single steps from the same state differ by no more than rounding does.

    Args:
        base: saved the state before each point; *remedy* and *envelopes* loaded it, the latter moved it.
    """
    if trouble := _unlike(base, remedy):
        return Equality(Compared.LOCKSTEP, False, trouble, _kept(base, remedy))
    if trouble := _no_points(base, remedy, envelopes):
        return Equality(Compared.LOCKSTEP, False, trouble, told=False)
    errors = [error for step in sorted(base.updates) for error in _errors(step, base, remedy, envelopes)]
    first = _relative(np.array([base.losses_L[0]]), np.array([remedy.losses_L[0]]))
    if not math.isnan(first):  # a loss is less sensitive than the gradients are
        largest = max((error.envelope for error in errors if error.what == GRADIENTS), default=0.0)
        errors.insert(0, _Error("before any step the losses", first, largest))
    for error in errors:
        if not error.is_rounding():
            because = (
                f"{error.said()} differ by {error.of_remedy:.2g} of their size from the same state, where rounding makes "
                f"{error.envelope:.2g} and {error.allowed():.2g} is allowed"
            )
            return Equality(Compared.LOCKSTEP, False, because)
    said = [f"{what} differ by {_worst(errors, what)}" for what in (GRADIENTS, HALF) if _worst(errors, what)]
    points = ", ".join(str(step) for step in sorted(base.updates))
    because = f"in steps {points} from the same state the loss is the same but for rounding, {' and '.join(said)}"
    return Equality(Compared.LOCKSTEP, True, because)


def seeds(bases: Sequence[Captured], remedies: Sequence[Captured]) -> Equality:
    """Return whether the remedy's losses lie within the band of runs that differ only by the seed.

    Args:
        bases, remedies: one a seed; those of the same place have the same seed.
    """
    trouble = ""
    for base, remedy in zip(bases, remedies):
        trouble = trouble or _unlike(base, remedy) or _other_samples(bases, base, remedy) or _diverged(base, remedy)
    if trouble:
        return Equality(Compared.SEEDS, False, trouble, _kept(*bases, *remedies))
    if few := _too_few(bases, remedies):
        return Equality(Compared.SEEDS, False, few, told=False)
    a_N, b_N = _ends(bases), _ends(remedies)
    level = 1 - ALPHA / 4  # two-sided, two tests
    spread = float(a_N.std(ddof=1)) * math.sqrt(1 / a_N.size + 1 / b_N.size)
    band = float(student.ppf(level, a_N.size - 1)) * spread
    seen = band + float(student.ppf(POWER, a_N.size - 1)) * spread
    apart = float(b_N.mean() - a_N.mean())
    pairs = min(a_N.size, b_N.size)
    ends = f"{b_N.mean():.4g} with the remedy and {a_N.mean():.4g} without"
    if not abs(apart) <= band:
        because = f"the last third of the losses is {ends}; runs that differ only by the seed allow {band:.2g}"
        return Equality(Compared.SEEDS, False, because)
    if pairs >= LEAST_RUNS:
        d_N = b_N[:pairs] - a_N[:pairs]
        scatter = float(d_N.std(ddof=1)) / math.sqrt(pairs)
        paired = float(student.ppf(level, pairs - 1)) * scatter
        if not abs(float(d_N.mean())) <= paired:
            because = (
                f"the last third of the losses is {ends}; with equal seeds it differs by {d_N.mean():.2g} in the mean of "
                f"{pairs} pairs, whose scatter allows {paired:.2g}"
            )
            return Equality(Compared.SEEDS, False, because)
        seen = min(seen, paired + float(student.ppf(POWER, pairs - 1)) * scatter)
    strong = max(SMALL * abs(float(a_N.mean())), _learned(bases))
    if seen > strong:
        because = (
            f"the seeds alone scatter the losses so much that only a difference of {seen:.2g} would be seen, and the "
            f"training learns {_learned(bases):.2g} meanwhile; more steps or seeds would tell"
        )
        return Equality(Compared.SEEDS, False, because, told=False)
    because = f"the last third of the losses is {ends}, over {a_N.size} and {b_N.size} seeds; {seen:.2g} apart would have been seen"
    return Equality(Compared.SEEDS, True, because + _same_samples(bases, remedies))


def curves(bases: Sequence[Captured], remedies: Sequence[Captured]) -> Equality:
    """Return the losses of a training that is meant to change, against the band of seeds: shown, not judged.

    It does not hold where there is nothing to show, or where the loss is no number any more with the remedy.
    """
    if not all(_finite(one.losses_L).size for one in (*bases, *remedies)) or not bases or not remedies:
        return Equality(Compared.CURVES, False, "no losses were captured, so there is nothing to show", told=False)
    for base, remedy in zip(bases, remedies):
        if np.isinf(remedy.losses_L).any() or (remedy.losses_L.size == base.losses_L.size and _diverged(base, remedy)):
            return Equality(Compared.CURVES, False, "with the remedy the loss is no number any more")
    a_N, b_N = _ends(bases), _ends(remedies)
    band = f"{a_N.min():.4g} to {a_N.max():.4g} over {a_N.size} seeds" if a_N.size > 1 else f"{a_N[0]:.4g}"
    inside = "within it" if a_N.min() <= b_N.mean() <= a_N.max() else "outside it"
    where = f", {inside}" if a_N.size > 1 else ""
    ends = f"{b_N.mean():.4g} with the remedy{where}, and {band} without"
    because = f"the last third of the losses is {ends}; the training is meant to change"
    return Equality(Compared.CURVES, True, because)


def _kept(*runs: Captured) -> bool:
    """Return whether each run kept losses; where one did not, nothing is told."""
    return all(run.losses_L.size for run in runs)


def _unlike(base: Captured, remedy: Captured) -> str:
    """Return why two runs cannot be set side by side at all, or ""."""
    for run, whose in ((base, "without"), (remedy, "with")):
        if not run.losses_L.size:
            return f"no losses were captured {whose} the remedy, so nothing shows that it trained the same"
    if base.shrunk != remedy.shrunk:
        return f"epochs were cut to {base.shrunk} batches without the remedy and to {remedy.shrunk} with it"
    if base.losses_L.size != remedy.losses_L.size:
        sizes = f"{base.losses_L.size} backward passes were made without the remedy and {remedy.losses_L.size} with it"
        return f"{sizes}, in equally many steps"
    if base.kinds != remedy.kinds:
        return (
            f"the parameters are {base.kinds or 'unknown'} without the remedy and {remedy.kinds or 'unknown'} with it"
        )
    return ""


def _no_points(base: Captured, remedy: Captured, envelopes: Sequence[Captured]) -> str:
    """Return why no steps can be compared, or ""."""
    if not base.updates:
        return f"no step was made in lockstep{_notes(base)}"
    if not envelopes:
        return "no run shows how far rounding alone goes"
    for run, whose in ((remedy, "with the remedy"), *((one, "for the envelope") for one in envelopes)):
        for step, update in base.updates.items():
            if step not in run.updates:
                return f"step {step} was not made in lockstep {whose}{_notes(run)}"
            if run.updates[step].size != update.size or (step in run.gradients) != (step in base.gradients):
                return f"step {step} has other parameters or gradients {whose}"
    return ""


@dataclass(frozen=True, slots=True)
class _Error:
    """How far the remedy is from the base in one respect, and the largest of the envelopes' errors in it."""

    what: str
    of_remedy: float
    envelope: float
    step: int | None = None

    def allowed(self) -> float:
        return max(FACTOR * self.envelope, FLOOR)

    def is_rounding(self) -> bool:
        return self.of_remedy <= self.allowed()

    def said(self) -> str:
        return self.what if self.step is None else f"in step {self.step} the {self.what}"


def _errors(step: int, base: Captured, remedy: Captured, envelopes: Sequence[Captured]) -> list[_Error]:
    """Return every error of one step: of the gradients, of the changes of the parameters, and of the loss."""
    found = []
    for what, of in ((GRADIENTS, "gradients"), (CHANGES, "updates")):
        arrays = getattr(base, of)
        if step in arrays:
            far = [_relative(arrays[step], getattr(one, of)[step]) for one in envelopes]
            found.append(_Error(what, _relative(arrays[step], getattr(remedy, of)[step]), max(far), step))
    loss = base.point_losses.get(step, math.nan)
    if not math.isnan(loss):
        far = [_relative(np.array([loss]), np.array([one.point_losses[step]])) for one in envelopes]
        # one number may happen to be hardly moved by what moves all gradients
        envelope = max(*far, *(error.envelope for error in found[:1]))
        found.append(
            _Error("losses", _relative(np.array([loss]), np.array([remedy.point_losses[step]])), envelope, step)
        )
    return found + _by_quantiles(step, base, remedy, envelopes)


def _by_quantiles(step: int, base: Captured, remedy: Captured, envelopes: Sequence[Captured]) -> list[_Error]:
    """Return the errors of the changes of single elements: that of one in 2, 4, ..., against what half as many have."""
    change_P = base.updates[step]
    of_remedy_P = _sorted_errors(change_P, remedy.updates[step])
    envelopes_P = [_sorted_errors(change_P, one.updates[step]) for one in envelopes]
    size = of_remedy_P.size
    found = []
    for times in range(1, RAREST + 1):
        rank, half_as_many = size - 1 - (size >> times), size - 1 - (size >> times + 1)
        if size >> times < LEAST_IN_QUANTILE:
            break
        envelope = max(float(one_P[half_as_many]) for one_P in envelopes_P)
        what = HALF if times == 1 else f"changes of one in {1 << times} parameters"
        found.append(_Error(what, float(of_remedy_P[rank]), envelope, step))
    return found


def _sorted_errors(base_P: NDArray[np.float32], other_P: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return each element's ``|other - base| / |base|``, sorted; infinite where only the base's is 0, NaN last."""
    every = -(-base_P.size // MOST_SORTED) or 1
    size_P = np.abs(base_P[::every].astype(np.float64))
    apart_P = np.abs(other_P[::every].astype(np.float64) - base_P[::every])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sort(np.where(apart_P == 0, 0.0, apart_P / size_P))


def _worst(errors: Sequence[_Error], what: str) -> str:
    """Return the largest error of that kind and what was allowed of it; "" where there is none."""
    ours = [error for error in errors if error.what == what]
    if not ours:
        return ""
    worst = max(ours, key=lambda error: error.of_remedy / error.allowed())
    return f"{worst.of_remedy:.2g} of their size ({worst.allowed():.2g} is allowed)"


def _relative(base: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Return ``|other - base| / |base|``; NaN where either holds one, 0 for two zeros."""
    apart = float(np.linalg.norm(other.astype(np.float64) - base.astype(np.float64)))
    size = float(np.linalg.norm(base.astype(np.float64)))
    return apart / size if size else (math.inf if apart else 0.0)


def _too_few(bases: Sequence[Captured], remedies: Sequence[Captured]) -> str:
    if len(bases) < LEAST_RUNS or not remedies:
        runs = f"{len(bases)} runs without the remedy and {len(remedies)} with it"
        return f"{runs}: {LEAST_RUNS} and 1 are the least that show a band"
    return ""


def _other_samples(bases: Sequence[Captured], base: Captured, remedy: Captured) -> str:
    """Return how the samples of an epoch differ, or ""; of epochs that are a draw of their own only the first is compared."""
    epochs = min(len(base.samples), len(remedy.samples))
    if abs(len(base.samples) - len(remedy.samples)) > 1:
        return f"{len(base.samples)} whole epochs were seen without the remedy and {len(remedy.samples)} with it"
    fixed = len({digest for one in bases for digest in one.samples}) == 1
    for epoch in range(epochs if fixed else min(1, epochs)):
        if base.samples[epoch] != remedy.samples[epoch]:
            return f"epoch {epoch + 1} has other samples with the remedy than without it"
    return ""


def _same_samples(bases: Sequence[Captured], remedies: Sequence[Captured]) -> str:
    epochs = min(len(one.samples) for one in (*bases, *remedies))
    fixed = len({digest for one in bases for digest in one.samples}) == 1
    if not epochs:
        return ""
    return f"; each of {epochs} epochs has the same samples" if fixed else "; the first epoch has the same samples"


def _diverged(base: Captured, remedy: Captured) -> str:
    """Return where the remedy's loss is no number though the base's is, or ""; the same number of passes is expected."""
    lost = np.isfinite(base.losses_L) & ~np.isfinite(remedy.losses_L)
    return f"with the remedy the loss of backward pass {int(np.argmax(lost)) + 1} is no number" if lost.any() else ""


def _finite(losses_L: NDArray[np.float64]) -> NDArray[np.float64]:
    return losses_L[np.isfinite(losses_L)]


def _ends(runs: Sequence[Captured]) -> NDArray[np.float64]:
    """Return float64 (N,): the mean of the last third of each run's losses."""
    thirds = [(scalars, -(-scalars.size // 3)) for scalars in (_finite(run.losses_L) for run in runs)]
    return np.array([scalars[scalars.size - third :].mean() if third else np.nan for scalars, third in thirds])


def _learned(runs: Sequence[Captured]) -> float:
    """Return by how much the loss fell from the first third to the last, in the mean of the runs; 0 where it rose."""
    fell = []
    for run in runs:
        scalars = _finite(run.losses_L)
        third = -(-scalars.size // 3)
        fell.append(float(scalars[:third].mean() - scalars[scalars.size - third :].mean()) if third else 0.0)
    return max(0.0, float(np.mean(fell)))


def _notes(*runs: Captured) -> str:
    notes = dict.fromkeys(note for run in runs for note in run.notes)
    return f" ({'; '.join(notes)})" if notes else ""
