"""Proofs in words: a row of the table each, and below it what it rests on and what stayed equal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unstall.model.remedy import Remedy, Safety, SetEnvironment, SetKeyword
from unstall.model.trial import Measure, Proof, Ratio, Verdict
from unstall.views import _words as words

ERROR_LINES = 8  # the last ones of what a failed remedy said; --verbose shows all
GAP = 2  # columns between two columns of the table
LEAST_TITLE = 24  # columns; a narrower first column looks torn off
_RATIO, _INTERVAL, _PAIRS, _VERDICT = 7, 13, 5, 19  # columns; 19 is the longest verdict, "trained differently"

OF = {Measure.STEP: "a step", Measure.START: "to start", Measure.RUN: "as a whole run"}
_STYLES = {
    Verdict.FASTER: "bold green",
    Verdict.NO_EFFECT: "dim",
    Verdict.SLOWER: "yellow",
    Verdict.TRAINED_DIFFERENTLY: "bold yellow",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NO_STEADY_STATE: "yellow",
    Verdict.FAILED: "bold red",
}


def table(proofs: Collection[Proof], kept: Collection[Remedy], width: int, verbose: bool) -> Table:
    """Return the proofs, a row each with its columns aligned, and indented below it what it rests on."""
    kept_ids = {remedy.id for remedy in kept}
    page = Table.grid(expand=True)
    page.add_column()
    room = max(LEAST_TITLE, width - _RATIO - _INTERVAL - _PAIRS - _VERDICT - 4 * GAP)
    lengths = [len(title_of(proof.remedy)) for proof in proofs]
    first = max([LEAST_TITLE, *(length for length in lengths if length <= room)])
    names = ("ratio", "95 % interval", "pairs", "verdict")
    page.add_row(_row(Text("remedy", "dim"), [Text(name, "dim") for name in names], first))
    for proof in proofs:
        title, stays = Text(title_of(proof.remedy), "bold"), proof.remedy.id in kept_ids
        if len(title) > room:  # a line of its own, rather than a narrow column of words
            page.add_row(title)
            title = Text("")
        page.add_row(_row(title, _cells(proof, stays), first))
        for part in _below(proof, stays, verbose):
            page.add_row(Padding(part, (0, 0, 0, 2)))
    return page


def _row(title: Text, cells: Sequence[Text], first: int) -> Table:
    """Return one line of the table, its first column *first* wide."""
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True, width=first)
    for room in (_RATIO, _INTERVAL, _PAIRS):
        grid.add_column(justify="right", no_wrap=True, width=room)
    grid.add_column(no_wrap=True, width=_VERDICT)
    grid.add_row(title, *cells)
    return grid


def _cells(proof: Proof, kept: bool) -> list[Text]:
    style = _STYLES[proof.verdict]
    verdict = Text(verdict_of(proof.verdict, kept), style)
    if proof.ratio is None:
        return [Text("-", "dim"), Text("-", "dim"), Text("-", "dim"), verdict]
    ratio = proof.ratio
    said = "dim" if proof.verdict is Verdict.TRAINED_DIFFERENTLY else style  # however fast, it is no gain
    return [Text(times(ratio.value), said), Text(interval(ratio)), Text(str(ratio.pairs)), verdict]


def verdict_of(verdict: Verdict, kept: bool) -> str:
    """Return the verdict and what became of the remedy."""
    if verdict is Verdict.FASTER:
        return "faster, kept" if kept else "faster, not kept"
    return "slower, undone" if verdict is Verdict.SLOWER else verdict.value


def times(value: float) -> str:
    """Return ``3.05x``; three digits, so that a gain of one per cent shows."""
    return f"{value:.2f}x" if value < 99.95 else f"{value:.0f}x"


def interval(ratio: Ratio) -> str:
    """Return the bounds of *ratio*, as ``2.91-3.20``."""
    low, high = (f"{value:.2f}" if value < 99.95 else f"{value:.0f}" for value in (ratio.low, ratio.high))
    return f"{low}-{high}"


def proved(ratio: Ratio, what: str = "") -> str:
    """Return a ratio with all that a reader needs to judge it."""
    pairs = words.count(ratio.pairs, f"{what} pair".strip())
    return f"95{words.GLUE}%{words.GLUE}interval {interval(ratio)}, {pairs}"


def title_of(remedy: Remedy) -> str:
    """Return the remedy's title with the value that was chosen in place of the one that was predicted."""
    if not remedy.knobs or not remedy.edits:
        return remedy.title
    knob, edit = remedy.knobs[0], remedy.edits[0]
    value = str(edit.value) if isinstance(edit, (SetKeyword, SetEnvironment)) else ""
    predicted = re.compile(rf"(?<![\w.]){knob.predicted}(?![\w.])")
    if not value or value == str(knob.predicted) or re.search(rf"(?<![\w.]){re.escape(value)}(?![\w.])", remedy.title):
        return remedy.title
    if len(predicted.findall(remedy.title)) == 1:
        return predicted.sub(value, remedy.title)
    return f"{remedy.title} ({knob.keyword}={value})"


def _below(proof: Proof, kept: bool, verbose: bool) -> Iterator[RenderableType]:
    yield Text(" · ".join(_about(proof, verbose)), "dim")
    if proof.verdict is Verdict.FAILED:
        yield from last_lines(proof.because, verbose)
        return
    same = _trained(proof)
    needed = kept or proof.verdict in (Verdict.FASTER, Verdict.TRAINED_DIFFERENTLY)  # else it is undone in any case
    if same is not None and (needed or verbose):
        yield same
    if proof.because:
        yield Text(sentence(proof.because))


def _about(proof: Proof, verbose: bool) -> Iterator[str]:
    """Yield where it is, which values were tried, what was predicted, and what the other times say."""
    yield proof.cause
    if proof.where:
        yield words.shorten(proof.where, 40)
    if len(proof.tried) > 1 or (verbose and proof.tried):
        tried = sorted(proof.tried, key=lambda one: one.value)
        each = [f"{one.value}{f' ({times(one.ratio)})' if verbose else ''}" for one in tried]
        yield f"tried {', '.join(each)}"
    if proof.ratio is not None and proof.measure is not Measure.STEP:
        yield f"the ratio is of {'the start' if proof.measure is Measure.START else 'the whole run'}"
    if proof.start is not None and proof.measure is not Measure.START and (verbose or proof.pays_after):
        yield f"start-up {times(proof.start.value)} ({interval(proof.start)})"
    if proof.pays_after:
        yield f"pays its dearer start back after {proof.pays_after:,} step{'s' if proof.pays_after > 1 else ''}"
    if proof.step is not None and proof.measure is not Measure.STEP and verbose:
        yield f"a step {times(proof.step.value)} ({interval(proof.step)})"
    if proof.predicted_low is not None and proof.predicted_high is not None:
        yield f"predicted {words.ratio_range(proof.predicted_low, proof.predicted_high)}"
    if proof.discarded:
        yield f"{words.count(proof.discarded, 'trial')} left out, the machine was disturbed"
    if verbose and proof.p is not None:
        yield f"p {proof.p:.2g}"


def _trained(proof: Proof) -> Text | None:
    """Return what stayed equal, or did not, in the training."""
    equality = proof.equality
    if equality is None:
        return None
    if proof.remedy.safety is Safety.CHANGES_TRAINING:
        return Text(f"changes the training, as you allowed: {sentence(equality.because)}", "yellow")
    if equality.held:
        return Text(
            f"trained the same: {sentence(equality.because)}", "green" if proof.verdict is Verdict.FASTER else "dim"
        )
    return Text(f"did not train the same: {sentence(equality.because)}", "yellow")


def last_lines(said: str, verbose: bool) -> Iterator[RenderableType]:
    """Yield the last lines of what a failed run said, as they stand."""
    lines = said.strip().splitlines()
    shown = lines if verbose else lines[-ERROR_LINES:]
    if len(shown) < len(lines):
        yield Text(f"{words.count(len(lines) - len(shown), 'line')} before these: -v shows them", "dim")
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for line in shown:
        grid.add_row(Text("|", "dim"), Text(line, "red"))
    yield grid


def sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?:" else text + "."
