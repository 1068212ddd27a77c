"""`unstall fix`: record and explain, prove remedy after remedy, keep what pays, and write the patch of what was proved."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from unstall import pipeline
from unstall.launch import command as commands
from unstall.launch import recording as recordings
from unstall.launch.redaction import redacted
from unstall.launch.workspace import prepare
from unstall.model.errors import UnstallError
from unstall.model.finding import Scope
from unstall.model.remedy import Edit
from unstall.model.report import Report
from unstall.model.trial import Bound, Fixed, Hours, Measure, Proof, Ratio, Untried, Verdict
from unstall.pipeline import _state
from unstall.pipeline._asked import BY_USER, FixOptions, Progress
from unstall.pipeline.bounds import Bounding, compiles
from unstall.pipeline.length import Length, length_of
from unstall.pipeline.pairs import Pairs
from unstall.pipeline.proving import Clock, OutOfBudget, Prover, tell
from unstall.pipeline.screening import Room, room_of
from unstall.pipeline.trial import WAIT_SHARE, Bench, Interrupted, said
from unstall.remedies import override, written
from unstall.trials.foresight import Foreseen, foreseen, time_needed_s
from unstall.trials.hours import hours
from unstall.trials.sequence import Design
from unstall.trials.statistics import spread_of
from unstall.trials.worth import Asked, Worth, worth_trying

RECORD_SHARE = 1 / 10  # of the budget; the recording of a longer job is stopped after so long
LEAST_RECORD_S, MOST_RECORD_S = 20.0, 120.0
TOTAL_PAIRS = 4  # at least, of the original against all that was kept


@dataclass
class Fix:
    """One fix, from the first recording to the patch.

    Attributes:
        first, last: the explained run without and with all kept remedies.
        kept: proofs of the remedies that stay, in the order they were kept.
    """

    options: FixOptions
    folder: Path
    bench: Bench
    prover: Prover
    clock: Clock
    first: Report
    last: Report
    proofs: list[Proof] = field(default_factory=list)
    kept: list[Proof] = field(default_factory=list)
    untried: tuple[Untried, ...] = ()
    total: Pairs | None = None
    notes: list[str] = field(default_factory=list)
    interrupted: str = ""
    bounds: tuple[Bound, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of all kept remedies."""
        return tuple(edit for proof in self.kept for edit in proof.remedy.edits)

    def go(self) -> None:
        """Try remedies until none is left that pays, the budget ends or the user ends it."""
        self._foresee()
        try:
            if self.options.bounds:
                self._bound()
            while (one := self._next()) is not None:
                self._prove(one)
                if self.prover.ended is not None:
                    raise self.prover.ended
            self.prover.reserve_s = 0.0
            self._peel()
        except OutOfBudget:
            self.interrupted = f"the budget of {self.clock.budget_s:.0f} s"
        except (Interrupted, KeyboardInterrupt):
            self.interrupted = BY_USER
            return
        except Exception as error:  # what was proved until now must not be lost by a fault of ours, or a full disk
            self._failed(error)
            return
        self._count_total()

    def _foresee(self) -> None:
        """Say at once what the budget can and cannot prove, where a trial takes long beside it."""
        expected_s = length_of(self.first, self.measure, False, self.options).expected_s
        found = words_of(foreseen(self.clock.left_s, expected_s, Design()), self.first.start_ns / 1e9, expected_s)
        if found:
            self.notes.append(found)
            if self.options.progress is not None:
                spent_s, budget_s = self.clock.spent_s, self.clock.budget_s
                self.options.progress(Progress(found, 0, 0, None, spent_s, budget_s, stays=True))

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, UnstallError):
            traceback.print_exc()
            self.notes.append(
                "This is a fault of unstall; the training's files were not touched by it. Please report it."
            )
        self.interrupted = f"an error: {error}"

    def _bound(self) -> None:
        """Measure the most that any fix of a layer can give; what is known is kept, whatever ends it."""
        bounding = Bounding(self.bench, self.options, self.clock, self.first, compiles(self.first))
        try:
            bounding.go()
        finally:
            self.bounds = bounding.bounds()
            self.notes += bounding.notes()

    # ------------------------------------------------------------ remedies

    def _next(self) -> Worth | None:
        """Return the remedy to try next, explained on the run as improved so far."""
        done = {proof.remedy.id for proof in self.proofs}
        asked = Asked(self.options.allow, self.options.only, self.options.skip, done)
        worth, self.untried = worth_trying(self.last, asked)
        return worth[0] if worth else None

    def _prove(self, one: Worth) -> None:
        proof = self.prover.prove(one, self.edits, self._length(one), self._room(one))
        self.proofs.append(proof)
        if proof.verdict is Verdict.FASTER:
            self.kept.append(proof)
            self._save()
            self.last = self._explained()
            self._keep_for_total()
        self._save()

    def _keep_for_total(self) -> None:
        """Keep enough of the budget to compare the original with all that is kept."""
        expected_s = length_of(self.first, self.measure, False, self.options).expected_s
        self.prover.reserve_s = 2 * TOTAL_PAIRS * expected_s

    def _is_periodic(self, one: Worth) -> bool:
        """Return whether what the remedy avoids comes now and then."""
        return any(finding.scope is Scope.PERIODIC for finding in self.last.findings if finding.cause == one.cause)

    def _length(self, one: Worth) -> Length:
        return length_of(self.last, one.measure, self._is_periodic(one), self.options)

    def _room(self, one: Worth) -> Room | None:
        """Return the room for a screening; None where the remedy cannot be switched, or a switch would compile anew."""
        if one.remedy.switch is None or one.measure is not Measure.STEP or self._is_periodic(one):
            return None
        return None if compiles(self.last) else room_of(self.last)

    def _explained(self) -> Report:
        """Return the report of the run with all kept remedies; the one before where it cannot be recorded."""
        for _ in range(2):  # ranks that race to their end may fail once, which is no fault of the remedies
            tell(self.options, self.clock, "recording the run with what was kept")
            report = _record(self.options, self.bench, self.edits, self.clock)
            if not report.exit_code and report.steady_steps:
                return report
        self.notes.append("With the kept remedies the run could not be explained anew; the list of faults is older.")
        return self.last

    def _peel(self) -> None:
        """Take back kept remedies that the others have made needless, the first kept first."""
        for proof in list(self.kept[:-1]):
            others = tuple(edit for each in self.kept if each is not proof for edit in each.remedy.edits)
            length = length_of(self.last, proof.measure, False, self.options)
            what = f"without {proof.remedy.title}"
            pairs, verdict = self.prover.against(others, self.edits, proof.measure, length, what, 3)
            ratio = pairs.ratio()
            if ratio is not None and verdict in (Verdict.NO_EFFECT, Verdict.SLOWER):
                self.kept.remove(proof)
                self.notes.append(
                    f"{proof.remedy.title} was kept at first and taken back: with the others it gives "
                    f"{ratio.value:.2f}x (95 % {ratio.low:.2f}-{ratio.high:.2f}, {ratio.pairs} pairs)."
                )
                self._save()

    def _count_total(self) -> None:
        """Make fresh pairs of the original against all that was kept; one remedy alone has its own."""
        if len(self.kept) < 2:
            return
        self.prover.reserve_s = 0.0
        measure = self.measure
        length = length_of(self.first, measure, False, self.options)
        try:
            what = "the original against all that was kept"
            self.total, _ = self.prover.against((), self.edits, measure, length, what, TOTAL_PAIRS)
        except OutOfBudget:
            self.notes.append("The budget ended before the original was compared with all kept remedies together.")
        except (Interrupted, KeyboardInterrupt):
            self.interrupted = BY_USER
        except UnstallError as error:
            self._failed(error)

    @property
    def measure(self) -> Measure:
        """The time that the whole is judged by: of the start only where nothing else was kept."""
        return Measure.START if self.kept and all(p.measure is Measure.START for p in self.kept) else Measure.STEP

    # ------------------------------------------------------------ the end

    def result(self) -> Fixed:
        """Write the patch, carry it out where asked, and return what came of it all."""
        found, patch, command = self._patch()
        applied = self._applied(found)
        self.notes += [f"{refused.edit.file}:{refused.edit.line} is not in the patch: {refused.why}."
                       for refused in found.refused]  # fmt: skip
        self.notes += [*_notes(self.bench)]
        step, start = self._ratios()
        total = start if self.measure is Measure.START else step
        return Fixed(
            command=redacted(self.bench.words),
            first=self.first,
            last=self.last,
            noise=spread_of(self.prover.bases_ns),
            proofs=tuple(self.proofs),
            kept=tuple(proof.remedy for proof in self.kept),
            untried=self.untried,
            total=total if self.kept else None,
            measure=self.measure,
            patch=patch,
            patch_file=str(self.options.patch) if command else "",
            apply_with=command,
            exports=override.environment(self.edits),
            applied=applied,
            hours=self._hours(step, start),
            spent_ns=round(self.clock.spent_s * 1e9),
            trials=self.bench.made,
            discarded=self.bench.discarded,
            notes=tuple(dict.fromkeys(self.notes)),
            interrupted=self.interrupted,
            folder=str(self.folder),
            bounds=self.bounds,
        )

    def _applied(self, found: written.Written) -> tuple[str, ...]:
        """Return the files that were changed on the user's word; why none could be becomes a note, the page comes all the same."""
        try:
            return tuple(written.apply(found)) if self.options.apply else ()
        except UnstallError as error:
            self.notes.append(str(error))
            return ()

    def _patch(self) -> tuple[written.Written, str, str]:
        """Return what the kept edits come to on disk, the patch as it was saved, and the command that applies it."""
        project = self.bench.workspace.project
        script = next((Path(word) for word in self.bench.words if word.endswith(".py")), None)
        found = written.written(self.edits, project, script, self.bench.words)
        file = self.options.patch
        if file is None:
            return found, written.patch_of(found, Path("unstall.patch"), project), ""
        self.notes += self._about_files(found, file)
        about = [f"{proof.remedy.title} ({proof.where})" for proof in self.kept]
        patch = written.patch_of(found, file, project, about)
        try:
            if patch:
                written.save_patch(patch, file)
        except UnstallError as error:  # the page, and the patch in the JSON, come all the same
            self.notes.append(str(error))
            return found, patch, ""
        return found, patch, written.apply_command(found, file, project) if patch else ""

    def _about_files(self, found: written.Written, patch: Path) -> Iterator[str]:
        """Yield what the user is to know of files that are not as the trials found them, or not of this fix."""
        for change in found.changes:
            if change.path.stat().st_mtime > self.clock.began:
                yield f"{change.name} was changed while trials ran: look whether the patch still means the same line."
        if not found.changes and patch.exists():
            yield f"{patch} is of an earlier fix: this one changes no source."

    def _ratios(self) -> tuple[Ratio | None, Ratio | None]:
        """Return the ratios of the steady step and of the start, original over all kept."""
        if self.total is not None:
            return self.total.ratio(Measure.STEP), self.total.ratio(Measure.START)
        return (self.kept[0].step, self.kept[0].start) if len(self.kept) == 1 else (None, None)

    def _hours(self, step: Ratio | None, start: Ratio | None) -> Hours | None:
        if step is None or not self.kept:
            return None
        first = self.first
        return hours(self.options.job, start_ns=first.start_ns, step_ns=first.mean_step_ns, step=step, start=start)

    def _save(self) -> None:
        project = self.bench.workspace.project
        verdicts, spent_s = self.prover.verdicts, self.clock.spent_s
        _state.save(self.folder, self.bench.words, project, self.proofs, self.kept, verdicts, spent_s)


class EndedAtOnce(UnstallError):
    """Ctrl-C, before there was anything to show."""

    exit_code = 130  # the shell's own code for it


class NoTraining(UnstallError):
    """The command ended without a training that could be explained.

    Attributes:
        exit_code: the command's own, if it failed.
    """

    def __init__(self, said: str, exit_code: int) -> None:
        super().__init__(said)
        self.exit_code = exit_code or UnstallError.exit_code


def fix(options: FixOptions) -> Fixed:
    """Return what was tried and proved for the command, and what is kept.

    Raises:
        UnstallError: When the command cannot be started, its folder not be copied, or the state not be read.
    """
    folder, options, earlier = _state.begun(options)
    clock = Clock(options.budget_s)
    workspace = prepare(options.workdir, Path.cwd(), folder, options.share, options.outputs)
    commands.resolve(options.command, os.environ)  # what is mistyped is said before anything is copied
    bench = Bench(options.command, folder / "trials", workspace, patience_s=options.budget_s * WAIT_SHARE)
    prover = Prover(bench, options, clock, folder, _state.verdicts(options.resume))
    kept = [proof for proof, stays in earlier if stays]
    edits = tuple(edit for proof in kept for edit in proof.remedy.edits)
    try:
        tell(options, clock, "recording the run as it is")
        first = _record(options, bench, (), clock)
        last = first
        if edits and not first.exit_code:
            last = _record(options, bench, edits, clock)
        made = Fix(options, folder, bench, prover, clock, first, last, [proof for proof, _ in earlier], kept)
        made.notes += _about_first(first, bench)
        made._save()
        if first.steady_steps and (first.stopped_by_us or not first.exit_code):
            made.go()
        return made.result()
    except (Interrupted, KeyboardInterrupt):
        raise EndedAtOnce("Ended before the first run had been recorded; nothing was tried.") from None
    finally:
        workspace.remove()


def _record(options: FixOptions, bench: Bench, edits: tuple[Edit, ...], clock: Clock) -> Report:
    """Return the report of the command with *edits* in force, recorded for a part of the budget only.

    Raises:
        Interrupted: When the user ended it.
    """
    seconds = min(MOST_RECORD_S, max(LEAST_RECORD_S, clock.budget_s * RECORD_SHARE))
    config: dict[str, object] = {"steps": options.steps, "warmup": None, "seconds": seconds, "step_limit": None}
    if options.steps is not None:
        config |= {"seconds": None, "step_limit": pipeline.DEFAULT_WARMUP + options.steps}
    folder = bench.record(edits, config, limit_s=None)
    try:
        return pipeline.diagnose(folder, options.job)
    except UnstallError as error:
        code = recordings.read_json(folder / "recording.json").get("exit_code")
        failed = code if isinstance(code, int) else 0
        hint = f"{_IN_A_COPY}\n" if failed and bench.workspace.place is not None else ""
        raise NoTraining(f"{error}\n{hint}{said(folder)}".strip(), failed) from None


_IN_A_COPY = (
    "It ran in a copy of the working folder, where files that are named by a path outside of it (../data) are missing: "
    "if that is why, run the trials in the folder itself with --workdir same."
)


def words_of(found: Foreseen, start_s: float, trial_s: float) -> str:
    """Return what the budget can prove, in words; "" where it suffices for all pairs of a remedy."""
    design = Design()
    if found.pairs >= design.most_pairs:
        return ""
    takes = f"A trial takes about {trial_s:.0f} s, {start_s:.0f} s of it the start; {found.trials} fit into the budget"
    if found.least_gain is None:
        needed_s = time_needed_s(trial_s, design)
        return f"{takes}, and a remedy takes {needed_s / trial_s:.0f}: nothing can be proved. Give {needed_s / 60:.0f}m more."
    return (
        f"{takes}, so {found.pairs} pairs at most: on an ordinary machine they tell gains from {found.least_gain:.2f}x on, "
        "of one remedy; smaller ones need a larger --budget."
    )


def _about_first(first: Report, bench: Bench) -> list[str]:
    if first.exit_code and not first.stopped_by_us:
        return [*([_IN_A_COPY] if bench.workspace.place is not None else []), said(Path(first.recording))]
    if first.stopped_by_us:
        return [f"The run was recorded for {first.steps} steps, then stopped; trials are stopped likewise."]
    return []


def _notes(bench: Bench) -> Iterator[str]:
    """Yield what the user is to know about how the trials were made."""
    space = bench.workspace
    if not bench.made:
        return
    if space.place is None:
        yield f"Trials ran in {space.project} itself: what the training writes there is of the last trial."
    else:
        yield f"Each trial ran in a fresh copy of the working folder ({space.copied_bytes / 1e6:.1f} MB)."
    if bench.discarded:
        yield f"{bench.discarded} of {bench.made} trials were disturbed by other programs."
    if bench.waited_s >= 1:
        yield f"Trials waited {bench.waited_s:.0f} s for other programs to end."
