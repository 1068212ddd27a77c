"""Prove one remedy: screen it, search its value, make fresh pairs until they tell, and see whether it trains the same."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from unstall.model.remedy import Edit, Remedy, Safety, SetEnvironment, SetKeyword
from unstall.model.trial import Equality, Measure, Outlook, Proof, Ratio, Screening, Trial, Tried, Verdict
from unstall.pipeline._asked import FixOptions, Progress
from unstall.pipeline.length import SLACK_S, Length
from unstall.pipeline.pairs import Pair, Pairs
from unstall.pipeline.same import same
from unstall.pipeline.screening import Room, planned, screen, words_of
from unstall.pipeline.trial import Ask, Bench, Interrupted
from unstall.trials.hours import pays_after
from unstall.trials.screening import best_value
from unstall.trials.search import Search
from unstall.trials.sequence import Design, decide, next_alpha, pairs_needed
from unstall.trials.statistics import p_faster
from unstall.trials.worth import Worth

MADE_AGAIN = (
    2  # pairs of a remedy, of which a trial failed once all its steps were made, as where ranks race to their end
)
SEEDED_PAIRS = 4  # at least, where only the band of seeds tells whether the training stayed the same


@dataclass
class Clock:
    """The budget of wall time, from when it was made; *began* is that moment by the calendar, as files have it."""

    budget_s: float
    start_s: float = field(default_factory=time.monotonic)
    began: float = field(default_factory=time.time)

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self.start_s

    @property
    def left_s(self) -> float:
        return self.budget_s - self.spent_s


class OutOfBudget(Exception):
    """The next trial would not end within the budget."""


def tell(
    options: FixOptions,
    clock: Clock,
    what: str,
    made: int = 0,
    most: int = 0,
    ratio: Ratio | None = None,
    verdict: Verdict | None = None,
    unit: str = "pair",
) -> None:
    """Say what is being done to who asked for it; arguments as `Progress` has them."""
    if options.progress is not None:
        options.progress(Progress(what, made, most, ratio, clock.spent_s, clock.budget_s, verdict, unit))


def tuned(remedy: Remedy, value: int) -> Remedy:
    """Return *remedy* with its knob at *value*."""
    knob = remedy.knobs[0]

    def at_value(edit: Edit) -> Edit:
        if isinstance(edit, SetKeyword) and edit.keyword == knob.keyword:
            return replace(edit, value=value)
        if isinstance(edit, SetEnvironment) and edit.value == str(knob.predicted):
            return replace(edit, value=str(value))
        return edit

    title = remedy.title.replace(str(knob.predicted), str(value), 1)
    return replace(remedy, title=title, edits=tuple(at_value(edit) for edit in remedy.edits))


@dataclass
class Prover:
    """Proves remedies, one after the other, each against all that were kept before it.

    Attributes:
        verdicts: of all remedies so far that had pairs, or were to; the next one's alpha depends on them.
        reserve_s: of the budget, kept for what comes after the remedies.
        ended: what a proof was left open for, the end of the budget or the user; to be raised once it has been kept.
        bases_ns: mean steps of the base, each of another run of the original; what equal runs differ by.
    """

    bench: Bench
    options: FixOptions
    clock: Clock
    folder: Path
    verdicts: list[Verdict] = field(default_factory=list)
    reserve_s: float = 0.0
    ended: OutOfBudget | Interrupted | None = None
    bases_ns: list[float] = field(default_factory=list)

    def prove(self, one: Worth, base: tuple[Edit, ...], length: Length, room: Room | None = None) -> Proof:
        """Return what trials of the remedy of *one* show, against the edits of *base*.

        Args:
            room: for a screening before the pairs; None where there is to be none.
        Raises:
            Interrupted: When the user ended it before one pair was made.
            OutOfBudget: When not one pair can be made within the budget.
        """
        screening = None if room is None else self._screened(one.remedy, base, length, room)
        if screening is not None and screening.outlook is Outlook.FUTILE:
            return self._refused(one, screening)
        tried: tuple[Tried, ...] = ()
        if one.remedy.knobs and one.remedy.knobs[0].low < one.remedy.knobs[0].high:
            tried, value, failed = self._valued(one.remedy, base, length, screening)
            if failed:
                return replace(self._done(one, Verdict.FAILED, because=failed), screening=screening)
            one = replace(one, remedy=tuned(one.remedy, value))
        return replace(self._proved(one, base, length, tried), screening=screening)

    def _proved(self, one: Worth, base: tuple[Edit, ...], length: Length, tried: tuple[Tried, ...]) -> Proof:
        """Return what fresh pairs of the remedy of *one* show, its knob as it is set."""
        remedy = one.remedy
        reseed = remedy.safety is Safety.SAME_DISTRIBUTION
        pairs = Pairs(self.bench, base, (*base, *remedy.edits), self._ask(length), one.measure, reseed)
        verdict, because = self._paired_to_the_end(one, pairs, length)
        if not base:
            self.bases_ns += pairs.base_steps_ns()
        if verdict is not Verdict.FASTER:
            return self._closed(self._proof(one, pairs, verdict, tried, because))
        try:
            equality = self._same(remedy, pairs, length)
        except (OutOfBudget, Interrupted) as end:
            unknown = f"it is faster, but {self._left_open(end)} before it was seen whether it trains the same"
            return self._closed(self._proof(one, pairs, Verdict.INCONCLUSIVE, tried, unknown))
        proof = replace(self._proof(one, pairs, verdict, tried, because), equality=equality)
        if not equality.held:
            verdict = Verdict.TRAINED_DIFFERENTLY if equality.told else Verdict.INCONCLUSIVE
            return self._closed(replace(proof, verdict=verdict, because=equality.because))
        return self._closed(replace(proof, verdict=Verdict.FASTER))

    def against(
        self, base: tuple[Edit, ...], edits: tuple[Edit, ...], measure: Measure, length: Length, what: str, least: int
    ) -> tuple[Pairs, Verdict | None]:
        """Return fresh pairs of *base* and *edits* until they tell, at least *least*; and what they do, None if nothing.

        Raises:
            Interrupted: When the user ended it. OutOfBudget: When the next pair would not end within the budget.
        """
        pairs = Pairs(self.bench, base, edits, self._ask(length), measure, False)
        design = self._design(Design().alpha)
        verdict = None
        while (len(pairs.counted) < least or verdict is None) and len(pairs.pairs) < 2 * design.most_pairs:
            self._tell(what, pairs, design.most_pairs)
            self._afford(2 * length.expected_s)
            pair = pairs.make()
            if pair.base.error or pair.remedy.error:
                return pairs, None
            logs = pairs.logs()
            verdict = decide(logs, design) if logs else None
        return pairs, verdict

    # ------------------------------------------------------------ blocks in one process

    def _screened(self, remedy: Remedy, base: tuple[Edit, ...], length: Length, room: Room) -> Screening | None:
        """Return what blocks in one process show of *remedy*; None where that costs more than the pairs it can save."""
        plan = planned(remedy, room, seed=self.bench.launched)
        saved_s = 2 * Design().least_pairs * length.expected_s
        if plan is None or plan.expected_s > min(saved_s, self.clock.left_s - self.reserve_s):
            return None
        blocks = len(plan.layout.order)
        self._tell(f"screening {remedy.title}", None, 0)

        def made(count: int) -> None:
            tell(self.options, self.clock, remedy.title, count, blocks, unit="screening block")

        return screen(self.bench, plan, base, self.options.seed, 4 * plan.expected_s + SLACK_S, made)

    def _refused(self, one: Worth, screening: Screening) -> Proof:
        """Return the proof of what a screening refused. It is no test, so it has no part in what `next_alpha` goes by."""
        value = best_value(screening)
        remedy, because = one.remedy if value is None else tuned(one.remedy, value), words_of(screening)
        tell(self.options, self.clock, f"{remedy.title}, {because}", verdict=Verdict.NO_EFFECT)
        return Proof(
            one.cause,
            one.where,
            remedy,
            Verdict.NO_EFFECT,
            one.measure,
            tried=screening.tried,
            predicted_low=one.predicted_low,
            predicted_high=one.predicted_high,
            because=because,
            screening=screening,
        )

    # ------------------------------------------------------------ the value of a knob

    def _valued(
        self, remedy: Remedy, base: tuple[Edit, ...], length: Length, screening: Screening | None
    ) -> tuple[tuple[Tried, ...], int, str]:
        """Return the values that were tried, the one to prove, and why the remedy cannot be tried at all, or ""."""
        value = None if screening is None else best_value(screening)
        if screening is not None and value is not None:
            return screening.tried, value, ""
        search, failed = self._searched(remedy, base, length)
        return search.tried, search.best(), failed

    def _searched(self, remedy: Remedy, base: tuple[Edit, ...], length: Length) -> tuple[Search, str]:
        """Return the search of the knob's value, ended, and why the remedy cannot be tried at all, or ""."""
        search, ask = Search(remedy.knobs[0]), self._ask(length)
        self._tell(f"{remedy.title}: the base", None, 0)
        self._afford(length.expected_s)
        base_trial = self.bench.make(replace(ask, edits=base))
        if base_trial.error:
            return search, f"the run without it failed: {base_trial.error}"
        while (value := search.next()) is not None:
            at_value = tuned(remedy, value)
            self._tell(f"search: {at_value.title}", None, 0)
            self._afford(length.expected_s)
            trial = self.bench.make(replace(ask, edits=(*base, *at_value.edits)))
            problem = _problem(trial, at_value, len(base))
            if problem and not search.tried:
                return search, problem
            search.tell(value, 0.0 if problem else _rough_ratio(base_trial, trial))
        return search, ""

    # ------------------------------------------------------------ pairs

    def _paired_to_the_end(self, one: Worth, pairs: Pairs, length: Length) -> tuple[Verdict, str]:
        try:
            return self._paired(one, pairs, length)
        except (OutOfBudget, Interrupted) as end:
            if not pairs.pairs:
                raise
            return Verdict.INCONCLUSIVE, f"{self._left_open(end)} after {len(pairs.pairs)} pairs"

    def _left_open(self, end: OutOfBudget | Interrupted) -> str:
        """Return what ended the proof in hand: its pairs were looked at, so it stays, and has its part of alpha."""
        self.ended = end
        return "the budget ended" if isinstance(end, OutOfBudget) else "you ended it"

    def _paired(self, one: Worth, pairs: Pairs, length: Length) -> tuple[Verdict, str]:
        """Make pairs until they tell, and return what they do."""
        design, again = self._design(next_alpha(self.verdicts)), MADE_AGAIN
        while True:
            self._tell(one.remedy.title, pairs, design.most_pairs)
            self._afford(2 * length.expected_s)
            pair = pairs.make()
            if again and _failed_at_the_end(pair):  # with or without the remedy: its steps were all made
                again -= 1
                pairs.pairs.pop()
                continue
            if pair.base.error:
                return Verdict.INCONCLUSIVE, f"the run without it failed: {pair.base.error}"
            problem = _problem(pair.remedy, one.remedy, len(pairs.base))
            if problem:
                return Verdict.FAILED, problem
            logs = pairs.logs()
            if not logs and len(pairs.counted) >= design.least_pairs:
                return Verdict.NO_STEADY_STATE, "the length of a step keeps changing until the end of the trials"
            if logs and (verdict := decide(logs, design)) is not None:
                enough = not pairs.reseed or verdict is not Verdict.FASTER or len(logs) >= SEEDED_PAIRS
                if enough:
                    return verdict, _takes(verdict, logs, design)
            if len(pairs.pairs) >= 2 * design.most_pairs:
                return Verdict.INCONCLUSIVE, f"{pairs.discarded} trials were disturbed: {pair.disturbed}"

    def _proof(self, one: Worth, pairs: Pairs, verdict: Verdict, tried: tuple[Tried, ...], because: str) -> Proof:
        """Return the proof but for its equality; what is faster is held inconclusive until that is known."""
        logs, start = pairs.logs(), pairs.ratio(Measure.START)
        return Proof(
            one.cause,
            one.where,
            one.remedy,
            Verdict.INCONCLUSIVE if verdict is Verdict.FASTER else verdict,
            one.measure,
            ratio=pairs.ratio(),
            start=start,
            step=pairs.ratio(Measure.STEP),
            tried=tried,
            predicted_low=one.predicted_low,
            predicted_high=one.predicted_high,
            p=p_faster(logs) if len(logs) >= 2 else None,
            pays_after=_pays_after(pairs) if start is not None and start.high < 1 else None,
            discarded=pairs.discarded,
            because=because or pairs.about_load(),
        )

    # ------------------------------------------------------------ trained the same

    def _same(self, remedy: Remedy, pairs: Pairs, length: Length) -> Equality:
        def make(ask: Ask, what: str) -> Trial:
            self._tell(f"{remedy.title}: {what}", pairs, 0)
            self._afford(length.expected_s)
            return self.bench.make(replace(ask, timed=False))

        def more(most: int) -> bool:
            self._tell(f"{remedy.title}: do only the draws differ?", pairs, most)
            self._afford(2 * length.expected_s)
            pair = pairs.make()
            return not (pair.base.error or pair.remedy.error)

        return same(remedy.safety, pairs, make, more, self.folder / f"points-{self.bench.launched}")

    # ------------------------------------------------------------ bookkeeping

    def _ask(self, length: Length) -> Ask:
        return Ask(steps=length.steps, seed=self.options.seed, limit_s=length.limit_s)

    def _design(self, alpha: float) -> Design:
        most = max(2, self.options.most_pairs or Design().most_pairs)
        return Design(alpha=alpha, most_pairs=most, least_pairs=min(Design().least_pairs, most))

    def _afford(self, seconds: float) -> None:
        if self.clock.left_s - self.reserve_s < seconds:
            raise OutOfBudget

    def _tell(self, what: str, pairs: Pairs | None, most: int) -> None:
        made, ratio = (len(pairs.pairs), pairs.ratio()) if pairs is not None else (0, None)
        tell(self.options, self.clock, what, made, most, ratio)

    def _done(self, one: Worth, verdict: Verdict, *, because: str) -> Proof:
        return self._closed(
            Proof(
                one.cause,
                one.where,
                one.remedy,
                verdict,
                one.measure,
                predicted_low=one.predicted_low,
                predicted_high=one.predicted_high,
                because=because,
            )
        )

    def _closed(self, proof: Proof) -> Proof:
        """Note the verdict, say it, and return *proof*."""
        self.verdicts.append(proof.verdict)
        pairs = proof.ratio.pairs if proof.ratio else 0
        tell(self.options, self.clock, proof.remedy.title, pairs, pairs, proof.ratio, proof.verdict)
        return proof


def _pays_after(pairs: Pairs) -> int | None:
    """Return the steps after which a dearer start has paid itself back, by the means of the arms."""
    seen = [pairs.mean_ns(arm, measure) for measure in (Measure.START, Measure.STEP) for arm in (False, True)]
    known = [time_ns for time_ns in seen if time_ns is not None]
    return pays_after(*known) if len(known) == len(seen) else None


def _problem(trial: Trial, remedy: Remedy, before: int) -> str:
    """Return why the trial of *remedy*, whose edits come after *before* others, does not count, or ""."""
    if trial.error:
        return trial.error
    own = [number - before for number in trial.missed if number >= before]
    if own:
        edit = remedy.edits[own[0]]
        place = "" if isinstance(edit, SetEnvironment) else f" at {edit.file}:{edit.line}"
        return f"the call that it changes{place} was never made in the trial"
    return ""


def _failed_at_the_end(pair: Pair) -> bool:
    """Return whether a trial of the pair failed though it had made as many steps as the other, or more."""
    made = (pair.base.end_S.size, pair.remedy.end_S.size)
    return (bool(pair.base.error) and made[0] >= made[1] > 0) or (bool(pair.remedy.error) and made[1] >= made[0] > 0)


def _rough_ratio(base: Trial, trial: Trial) -> float:
    """Return how many times faster the later half of the steps of *trial* is than the same steps of *base*."""
    last = min(base.end_S.size, trial.end_S.size)
    first = max(1, last // 2)
    return base.mean_step_ns(first, last) / trial.mean_step_ns(first, last) if last > first else 0.0


def _takes(verdict: Verdict, logs: Sequence[float], design: Design) -> str:
    """Return what it would take where the pairs do not tell, or ""."""
    if verdict is not Verdict.INCONCLUSIVE:
        return ""
    needed = pairs_needed(logs, design)
    if needed is None:
        return "no number of such pairs would tell; it would take a quieter machine or longer trials (--steps)"
    return f"about {needed} pairs would tell, were gain and noise as they look now"
