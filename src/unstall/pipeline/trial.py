"""Make one trial: run the command with edits in force under the light recorder, and read what came of it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.segment import segment
from unstall.launch import command as commands
from unstall.launch import quiet, supervise
from unstall.launch import recording as recordings
from unstall.launch.machine import machine_facts
from unstall.launch.redaction import redacted
from unstall.launch.workspace import Workspace
from unstall.model.codec import plan_to_json
from unstall.model.errors import UnstallError
from unstall.model.remedy import Edit, Remedy, Safety, SetEnvironment
from unstall.model.run import Run
from unstall.model.steps import Steps
from unstall.model.trial import Captured, Trial
from unstall.model.wire import PLAN
from unstall.readers import captured
from unstall.readers import recording as reader
from unstall.remedies import override

NEEDED = ("backward", "optimizers")  # probes beside a trial's own; the others would only cost time
TOLD_BY_MODULES = {"input-maker", "evaluation"}  # found by what the model is given, or by its call with gradients off
MOST_STEPS = 3900  # the recorder writes so many one by one
WAIT_S, WAIT_SHARE = 20.0, 1 / 8  # for other programs to end, before a trial; and at most, of the budget
WAITED_SHARE = 0.05  # of the wall time: a thread of the training was runnable and had no core
NOTICED_SHARE, TAKEN_SHARE = 0.25, 0.6  # of the usable cores, that others keep busy; workers that ended count as others
THROTTLED_SHARE = 0.02  # of the wall time
SLEPT_NS = 1_000_000_000  # the machine was suspended
OUTPUT = "output.txt"  # what the training printed
TAIL = 12  # last lines of what a failed trial said


@dataclass(frozen=True, slots=True)
class Ask:
    """What a trial is asked for.

    Attributes:
        edits: in force during it.
        steps: after which it is stopped, counted from the first; None to let it end by itself.
        seed: 0 for the script's own.
        points: steps whose gradients are kept; the state before them is written to *save*, or loaded from *load*.
        ulp: whether each loaded parameter is moved by one unit in its last place.
        shrink: batches that an epoch is cut to; None leaves it whole.
        limit_s: it is ended once it has run so long; None waits for ever.
        timed: whether its time counts; only then other programs are waited for.
        ablate: what is taken away for a bound, by the names of `probes/trial/ablating.py`; such a trial trains nothing right.
        switch: the blocks of a screening, as `probes/trial/_asked.py` reads them; empty where nothing is switched.
        alone: whether one rank trains in the place of all; as *ablate*, only its time counts.
    """

    edits: tuple[Edit, ...] = ()
    steps: int | None = None
    seed: int = 0
    shrink: int | None = None
    points: tuple[int, ...] = ()
    save: Path | None = None
    load: Path | None = None
    ulp: bool = False
    limit_s: float | None = None
    ablate: tuple[str, ...] = ()
    timed: bool = True
    switch: Mapping[str, object] = field(default_factory=dict)
    alone: bool = False

    def config(self) -> dict[str, object]:
        """Return what the probes are told."""
        trial: dict[str, object] = {
            "seed": self.seed,
            "shrink": self.shrink,
            "points": list(self.points),
            "save_points": None if self.save is None else str(self.save),
            "load_points": None if self.load is None else str(self.load),
            "ulp": self.ulp,
        }
        if self.ablate:
            trial["ablate"] = list(self.ablate)
        if self.switch:
            trial["switch"] = dict(self.switch)
        steps = None if self.steps is None else min(MOST_STEPS, self.steps)
        needed = NEEDED if TOLD_BY_MODULES.isdisjoint(self.ablate) else (*NEEDED, "modules")
        return {"step_limit": steps, "only": list(needed), "trial": trial}


class Interrupted(Exception):
    """The user asked us to end while a trial ran; the trial has ended."""


@dataclass
class Bench:
    """Makes trials of one command, one after the other.

    Attributes:
        words: the command as typed; folder: where recordings of trials lie while they are read.
        env: the environment of the training, without ours.
        made, discarded: trials so far, and those of them whose times could not be compared; launched: runs of all kinds.
        patience_s: how long all trials together may wait for other programs to end; waited_s: how long they have.
    """

    words: tuple[str, ...]
    folder: Path
    workspace: Workspace
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    made: int = 0
    discarded: int = 0
    launched: int = 0
    patience_s: float = 0.0
    waited_s: float = 0.0

    def record(self, edits: tuple[Edit, ...], config: Mapping[str, object], limit_s: float | None) -> Path:
        """Run the command under the whole recorder with *edits* in force, and return the recording.

        Raises:
            Interrupted: When the user ended it.
        """
        folder = self._new("recorded")
        recordings.write_config(folder, config)
        ended = self._launch(folder, edits, sampled=True, limit_s=limit_s)
        if ended.signals:
            raise Interrupted
        return folder

    def make(self, ask: Ask, blocks: Callable[[int], None] | None = None) -> Trial:
        """Run one trial.

        Args:
            blocks: told about once a second how many blocks of a screening have been made.
        Raises:
            Interrupted: When the user ended it.
            UnstallError: When it cannot be started at all.
        """
        self.made += 1
        if ask.timed:
            self._await_quiet()
        folder = self._new("trial")
        recordings.write_config(folder, ask.config())
        clock = _Slept()
        status = None if blocks is None else lambda *_: blocks(_blocks_made(folder))
        ended = self._launch(folder, ask.edits, sampled=False, limit_s=ask.limit_s, status=status, alone=ask.alone)
        if ended.signals:
            raise Interrupted
        slept_ns = clock.slept_ns()
        trial = _read(folder, ask.edits, ended)
        if slept_ns > SLEPT_NS:
            trial = replace(trial, disturbed=f"the machine slept for {slept_ns / 1e9:.0f} s")
        if trial.disturbed and ask.timed:
            self.discarded += 1
        shutil.rmtree(folder, ignore_errors=True)
        return trial

    def _await_quiet(self) -> None:
        """Let other programs come to their end, as far as the time for waiting goes."""
        left_s = self.patience_s - self.waited_s
        if left_s > 0:
            self.waited_s += quiet.await_quiet(self._usable, min(WAIT_S, left_s))

    @cached_property
    def _usable(self) -> float:
        return float(str(machine_facts(self.env).get("machine.usable_cores") or 1.0))

    def _launch(
        self,
        folder: Path,
        edits: tuple[Edit, ...],
        *,
        sampled: bool,
        limit_s: float | None,
        status: supervise.Status | None = None,
        alone: bool = False,
    ) -> supervise.Ended:
        there = self.workspace.fresh()
        given = (commands.alone(self.words) or self.words) if alone else self.words
        words = [self.workspace.moved(word, there) for word in given]
        env = {**self.env, **override.environment(edits)}
        if edits:
            env[PLAN] = str(_write_plan(folder, edits, there))
        before = os.getcwd()
        os.chdir(there)  # what the command names is looked up from where it will run
        try:
            argv = commands.resolve(words, env).argv
        finally:
            os.chdir(before)
        about = {"command": list(redacted(self.words)), "cwd": str(there), "facts": dict(machine_facts(env))}
        recordings.update(folder, about)
        output = folder / OUTPUT
        return supervise.launch(
            argv, env, folder, cwd=str(there), status=status, sampled=sampled, output=output, limit_s=limit_s
        )

    def _new(self, kind: str) -> Path:
        self.launched += 1
        return recordings.create(kind, self.folder / f"{kind}-{self.launched}", self.env)


def said(folder: Path) -> str:
    """Return the last lines that the training of the recording in *folder* printed."""
    try:
        text = (folder / OUTPUT).read_text("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-TAIL:])


def _blocks_made(folder: Path) -> int:
    """Return how many blocks of a screening have been made: each process writes a byte for each."""
    return max((path.stat().st_size for path in folder.glob("blocks-*")), default=0)


def _write_plan(folder: Path, edits: Sequence[Edit], there: Path) -> Path:
    """Write *edits* for the processes of a trial that runs in *there*, and return the file."""
    placed = tuple(
        edit if isinstance(edit, SetEnvironment) else replace(edit, file=os.path.join(there, edit.file))
        for edit in edits
    )
    plan = folder / "plan.json"
    recordings.write_json(plan, plan_to_json([Remedy("trial", "what is tried", Safety.SAME_BITS, placed)]))
    return plan


def _read(folder: Path, edits: tuple[Edit, ...], ended: supervise.Ended) -> Trial:
    """Return the trial that was recorded to *folder*."""
    failed = _failure(folder, edits, ended)
    try:
        run = reader.read(folder)
        steps = segment(run, warmup=0).steps
        kept = captured.read(folder)
    except UnstallError as error:
        why = failed or f"{error}\n{said(folder)}".strip()
        return Trial(np.zeros(0, np.int64), _wall(ended), False, Captured(np.zeros(0)), error=why)
    met = {int(path.name.split("-")[1]) for path in folder.glob("met-*")}
    return Trial(
        end_S=_ends(steps) - ended.spawn_ns,
        wall_ns=_wall(ended),
        stopped=bool(run.facts.text("stopped")),
        captured=kept,
        missed=tuple(n for n, edit in enumerate(edits) if n not in met and not isinstance(edit, SetEnvironment)),
        disturbed=_disturbed(run, steps),
        error=failed,
    )


def _wall(ended: supervise.Ended) -> int:
    return ended.reap_ns - ended.spawn_ns


def _failure(folder: Path, edits: Sequence[Edit], ended: supervise.Ended) -> str:
    """Return why the trial failed, or ""."""
    unmet = sorted(folder.glob("unmet-*"))
    if unmet:
        return f"an edit could not be carried out: {unmet[0].read_text('utf-8', 'replace')}"
    if ended.timed_out:
        return f"it did not come to its end in {_wall(ended) / 1e9:.0f} s, and was ended\n{said(folder)}".strip()
    if ended.exit_code == 0:
        return ""
    killed = " (killed; often the machine had no memory left)" if ended.signal == 9 else ""
    return f"it ended with exit code {ended.exit_code}{killed}\n{said(folder)}".strip()


def _ends(steps: Steps) -> NDArray[np.int64]:
    """Return when each step had ended on every rank, ns; steps of a rolled-up row end evenly within it."""
    end_S, weight_S = steps.end_SR.max(axis=1, initial=0), np.maximum(1, steps.weight_S)
    if (weight_S == 1).all():
        return np.asarray(end_S, np.int64)
    start_S = np.concatenate([steps.start_SR[:1].max(axis=1, initial=0), end_S[:-1]])
    parts = [np.linspace(a, b, n + 1)[1:] for a, b, n in zip(start_S, end_S, weight_S, strict=True)]
    return np.concatenate(parts).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _During:
    """What the machine did during the steps.

    Attributes:
        others: cores that other programs kept busy. waited, throttled: shares of the wall time in which a thread of the
            training was runnable and had no core, and in which the control group was held back.
    """

    others: float
    waited: float
    throttled: float


def _during(run: Run, steps: Steps) -> _During | None:
    """Return what the machine did from the first step on; None where that was not observed."""
    gauges = run.ranks[0].gauges
    if gauges is None or not steps.count:
        return None
    inside = np.flatnonzero(gauges.at_ns >= steps.start_SR[0, 0])
    first, last = max(0, int(inside[0]) - 1) if inside.size else 0, gauges.at_ns.size - 1
    wall = int(gauges.at_ns[last] - gauges.at_ns[first])
    if wall <= 0:
        return None

    def share(column: NDArray[np.int64]) -> float:
        return max(0.0, float(column[last] - column[first]) / wall)

    waited = max(share(gauges.main_run_queue_ns), share(gauges.team_run_queue_ns))
    return _During(share(gauges.others_cpu_ns), waited, share(gauges.throttled_ns))


def _disturbed(run: Run, steps: Steps) -> str:
    """Return why the time of the trial cannot be compared, or ""."""
    during = _during(run, steps)
    if during is None:
        return ""
    usable = run.facts.number("machine.usable_cores") or 1.0
    # waiting alone may be the training's own fault: more threads than cores
    waited = during.waited > WAITED_SHARE and during.others > NOTICED_SHARE * usable
    if waited or quiet.taken(during.others, usable, TAKEN_SHARE):
        return f"other programs kept {during.others:.1f} of {usable:g} cores busy"
    if during.throttled > THROTTLED_SHARE:
        return f"the machine held the training back for {during.throttled:.0%} of its time (throttled)"
    return ""


class _Slept:
    """Tells how long the machine was suspended since it was made."""

    def __init__(self) -> None:
        self._before = self._gap_ns()

    def slept_ns(self) -> int:
        return self._gap_ns() - self._before

    @staticmethod
    def _gap_ns() -> int:
        clock = getattr(time, "CLOCK_BOOTTIME", None)  # Linux: it goes on while the machine is suspended
        return 0 if clock is None else time.clock_gettime_ns(clock) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
