"""Join the stages: record, read, account, explain. The only module that imports more than one of them."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from glob import has_magic
from pathlib import Path

import numpy as np

from unstall.accounts import calibration, device_summary, holdings, summary
from unstall.accounts.device import ledger_of, states_of
from unstall.accounts.enter import enter
from unstall.accounts.evidence import Evidence
from unstall.accounts.fusion import graphs
from unstall.accounts.label import Labelled, label
from unstall.accounts.segment import Segments, segment
from unstall.accounts.tabulate import tabulate
from unstall.accounts.tracks import tracks
from unstall.accounts.warnings import warnings
from unstall.accounts.windows import cost, windows_of, with_device
from unstall.causes import Cause, load
from unstall.causes._explain import explain
from unstall.launch import command as commands
from unstall.launch import recording as recordings
from unstall.launch import supervise
from unstall.launch.machine import machine_facts
from unstall.launch.redaction import redacted
from unstall.model.errors import UnstallError
from unstall.model.finding import Abstained, Candidate, Finding
from unstall.model.ledger import Activity, Ledger
from unstall.model.remedy import Remedy
from unstall.model.report import Job, Report
from unstall.model.run import Facts, Run
from unstall.readers import join
from unstall.readers import recording as reader
from unstall.readers.originals import originals
from unstall.views import perfetto

# Of the recorder on the training thread, ns a step, by the length of a step: the longer, the less of ours is in the caches.
# Switched on and off in turns, bench/recorder.py; between them on a logarithmic scale, beyond them the nearest.
STEP_COSTS_NS = ((700_000, 40_000), (3_100_000, 70_000), (21_000_000, 100_000))


def step_cost_ns(median_ns: int) -> float:
    """Return what the recorder takes of a step of *median_ns* on the training thread, ns."""
    lengths, costs = zip(*STEP_COSTS_NS, strict=True)
    return float(np.interp(np.log(max(1, median_ns)), np.log(lengths), costs))


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What `unstall run` was asked for.

    Attributes:
        steps: stop after so many steady steps; warmup: steps left out before; seconds: stop after so long.
        out: folder to record to; a fresh one in the default place where None.
        status: called about once a second with a line on how far the run is.
    """

    command: tuple[str, ...]
    steps: int | None = None
    warmup: int | None = None
    seconds: float | None = None
    out: Path | None = None
    job: Job = field(default_factory=Job)
    status: Callable[[str], None] | None = None


def run(argv: list[str], options: RunOptions) -> Report:
    """Run *argv* with the probes in it, and return the report. The training's own exit code is in it in any case.

    Raises:
        UnstallError: When the command cannot be started or the recording's folder cannot be made.
    """
    command = commands.resolve(argv, os.environ)
    folder = recordings.create(command.name, options.out, os.environ)
    recordings.write_config(
        folder,
        {"steps": options.steps, "warmup": options.warmup, "seconds": options.seconds, "step_limit": _limit(options)},
    )
    about: dict[str, object] = {"command": list(redacted(argv)), "cwd": os.getcwd(), "warmup": options.warmup}
    try:
        recordings.update(folder, {**about, "facts": dict(machine_facts(os.environ))})
    except OSError as error:
        raise UnstallError(
            f"{folder} cannot be recorded to: {error.strerror}.\nPass another folder with --out."
        ) from None
    tell = options.status
    status = None if tell is None else lambda seconds, seen: tell(f"recording, {seconds:.0f} s")
    launched = supervise.launch(command.argv, os.environ, folder, status=status)
    try:
        found = diagnose(folder, options.job)
    except UnstallError as error:
        why = commands.why_silent(command.argv) if not launched.seen else None
        return _empty(folder, why or str(error), options.job, argv, launched)
    except Exception as error:  # a fault of ours must not cost the training's exit code
        traceback.print_exc()
        why = (
            f"the report could not be made: {type(error).__name__}: {error}.\n"
            f"This is a fault of unstall; the training was not touched by it. Please report it with {folder}."
        )
        return _empty(folder, why, options.job, argv, launched)
    return found if found.stopped_by_us else replace(found, exit_code=launched.exit_code)


DEFAULT_WARMUP = 10  # steps that `--steps N` lets pass first; all ranks count alike, so all stop at the same step


def _limit(options: RunOptions) -> int | None:
    warmup = DEFAULT_WARMUP if options.warmup is None else options.warmup
    return None if options.steps is None else warmup + options.steps


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a report holds besides the account: tables by name, and whether tracks over time."""

    tables: Collection[str] = ()
    tracks: bool = False


def diagnose(folder: Path, job: Job, wanted: Wanted | None = None) -> Report:
    """Return the report of the recording in *folder*.

    Raises:
        NotARecording: When it is none. NothingRecorded: When no process in it trained.
    """
    recorded = reader.read(Path(folder))
    return report(recorded, reader.read_ended(Path(folder)), job, str(folder), wanted)


def diagnose_traces(
    paths: Sequence[Path | str], job: Job, wanted: Wanted | None = None, unprofiled_ns: int | None = None
) -> Report:
    """Return the report of one job's profiler traces: files, folders of them, or glob patterns.

    Args:
        unprofiled_ns: how long a step takes without the profiler, as far as the user said.
    Raises:
        UnstallError: When a file is no trace, or they are not of one job.
    """
    recorded = join.read(paths)
    if unprofiled_ns is not None:
        recorded = device_summary.dilated(recorded, unprofiled_ns)
    longest_ns = max(rank.end_ns - rank.start_ns for rank in recorded.ranks)  # their clocks need not be comparable
    ended = reader.Ended((), "", 0, 0, longest_ns, 0, {}, "", {})
    return report(recorded, ended, job, "", wanted)


def diagnose_paths(
    paths: Sequence[str], job: Job, wanted: Wanted | None = None, unprofiled_ns: int | None = None
) -> Report:
    """Return the report of a recording, or of traces, whichever *paths* hold; args as of `diagnose_traces`.

    Raises:
        UnstallError: As `diagnose` and `diagnose_traces`, and when recordings and traces are mixed.
    """
    for path in paths:
        if not Path(path).exists() and not has_magic(path):
            raise UnstallError(
                f"{path}: there is no such file or folder.\n"
                "Give the folder that `unstall run` named at its end, or traces that torch.profiler wrote."
            )
    folders = [Path(path) for path in paths if reader.is_recording(Path(path))]
    if not folders:
        return diagnose_traces(paths, job, wanted, unprofiled_ns)
    if len(paths) > 1:
        raise UnstallError(
            f"{folders[0]} is a recording, which is explained by itself: {len(paths)} paths were given.\n"
            "Give one recording, or the traces of one job."
        )
    if unprofiled_ns is not None:
        raise UnstallError(f"{folders[0]} is a recording, made without a profiler: leave --step-ms out.")
    return diagnose(folders[0], job, wanted)


def save_perfetto(made: Report, path: Path) -> None:
    """Write the tracks of *made*, beside the events of the traces it is of, for ui.perfetto.dev.

    Raises:
        UnstallError: When a trace can no longer be read, or the file cannot be written.
    """
    files = made.traced.files if made.traced is not None else ()
    base_ns, events = originals([Path(file.path) for file in files], [file.rank for file in files])
    perfetto.save(made, events, base_ns, path)


def account(recorded: Run, warmup: int | None = None) -> tuple[Ledger, Evidence, Segments]:
    """Return the ledger of a run, the shared tables, and the steps they rest on."""
    segments = segment(recorded, warmup)
    if all(rank.rows is None for rank in recorded.ranks):
        labelled: tuple[Labelled | None, ...] = tuple(None for _ in recorded.ranks)
        states, seen = states_of(recorded, segments.steps), None
        ledger = ledger_of(recorded, states)
    else:
        states = ()
        labelled = tuple(label(rank, teaches) for rank, teaches in zip(recorded.ranks, segments.teaches))
        ledger = enter(recorded, segments, labelled)
        seen = windows_of(recorded, segments)
        if seen is not None:
            ledger = with_device(ledger, segments.steps, seen)
    return ledger, Evidence(recorded, segments, ledger, labelled, states, seen), segments


@dataclass(frozen=True, slots=True)
class Explained:
    """What the causes said."""

    findings: tuple[Finding, ...]
    remedies: tuple[tuple[Remedy, ...], ...]
    candidates: tuple[Candidate, ...]
    abstained: tuple[Abstained, ...]


def explained(
    recorded: Run,
    ledger: Ledger,
    tables: Evidence,
    segments: Segments,
    causes: tuple[Cause, ...] | None = None,
    job: Job | None = None,
) -> Explained:
    """Ask every cause, allot the time, and add the remedies."""
    proposed: list[Finding] = []
    candidates: list[Candidate] = []
    abstained: list[Abstained] = []
    by_id = {cause.id: cause for cause in (load() if causes is None else causes)}
    for cause in by_id.values():
        lacking = cause.needs - recorded.coverage.observed
        if lacking:
            why = "; ".join(
                f"{sensor.value}: {recorded.coverage.missing.get(sensor, 'not recorded')}" for sensor in sorted(lacking)
            )
            abstained.append(Abstained(cause.id, why))
            continue
        for said in cause.find(recorded, ledger, tables):
            if isinstance(said, Finding):
                proposed.append(said)
            elif isinstance(said, Candidate):
                candidates.append(said)
            else:
                abstained.append(said)
    steps = segments.steps
    findings = explain(proposed, holdings.held(ledger, steps), holdings.wholes(ledger, steps, job))
    remedies = tuple(tuple(by_id[finding.cause].remedies(finding, recorded, tables)) for finding in findings)
    return Explained(findings, remedies, tuple(candidates), tuple(abstained))


def report(recorded: Run, ended: reader.Ended, job: Job, folder: str, wanted: Wanted | None = None) -> Report:
    """Account for a run, explain it, and return the finished report."""
    wanted = wanted or Wanted()
    if wanted.tables and all(rank.trace is None for rank in recorded.ranks):
        raise UnstallError(
            f"{folder}: a recording holds no calls and no kernels, which tables are made of.\n"
            "Give traces that torch.profiler wrote."
        )
    warmup = recorded.facts.number("warmup")
    ledger, tables, segments = account(recorded, None if warmup is None else int(warmup))
    said = explained(recorded, ledger, tables, segments, job=job)
    steps, ranks = segments.steps, recorded.ranks
    times = summary.step_times(steps)
    parts = summary.step_parts(ledger, steps, len(ranks))
    walls = tuple(int(wall) for wall in ledger.wall_R)
    edges_ns = sum(rank.seen_start_ns - rank.start_ns + rank.end_ns - rank.seen_end_ns for rank in ranks)
    stopped = recorded.facts.text("stopped") or ""
    outside_ns = walls[0] - ledger.total_ns(steps=steps.steady, rank=0)
    median_ns = times.median if times else 0
    whole_ns = calibration.wholes(ledger, sum(part.ns for part in parts), steps.steady_count)
    findings = calibration.calibrate(said.findings, whole_ns, calibration.known())
    threads = ranks[0].facts.number("threads.intra") or 1.0
    used = device_summary.device_summary(tables.device, ledger, steps, len(ranks))
    made = Report(
        command=ended.command,
        exit_code=0 if stopped else ended.exit_code,
        stopped_by_us=bool(stopped),
        stop_reason=stopped,
        wall_ns=ended.reap_ns - ended.spawn_ns,
        rank_wall_ns=walls,
        steps=steps.count,
        steady_steps=steps.steady_count,
        warmup_steps=int(steps.weight_S[: steps.steady[0]].sum()) if steps.steady.size else steps.count,
        step_ns=times,
        step_parts=parts,
        outside=summary.outside(ledger, steps, walls[0]),
        bound_by=device_summary.bound_by(used) if used is not None and parts else summary.bound_by(parts),
        unknown_share=max(0, ledger.total_ns(activity=Activity.UNKNOWN) - edges_ns) / max(1, sum(walls)),
        edges_ns=edges_ns,
        overhead_share=step_cost_ns(median_ns) / median_ns if median_ns else 0.0,
        overhead_how=f"{step_cost_ns(median_ns) / 1000:.0f} us a step of this length, measured by bench/recorder.py; "
        "stacks are read from outside" + cost(ranks[0]),
        findings=findings,
        remedies=said.remedies,
        candidates=said.candidates,
        abstained=said.abstained,
        warnings=warnings(recorded, summary.starved(ledger, steps, tables.cores, threads), steps.steady_count),
        ranks=summary.rank_summaries(ledger, steps, recorded),
        observed=tuple(sorted(recorded.coverage.observed)),
        missing=recorded.coverage.missing,
        facts=recorded.facts,
        job=job,
        projection=summary.project(job, median_ns, outside_ns, findings),
        ledger=ledger,
        recording=folder,
        machine_load=_load(tables),
        device=used,
        tables=tuple(tabulate(name, recorded, steps, tables.device) for name in wanted.tables),
        tracks=tracks(recorded, steps, tables.states) if wanted.tracks else (),
        graphs=graphs(ranks[0].facts, recorded.project),
    )
    return device_summary.of_traces(made, recorded)


def _load(tables: Evidence) -> str:
    cores = tables.cores
    if cores.others_busy is None:
        return ""
    return f"other programs kept {cores.others_busy:.1f} of {cores.usable:g} cores busy"


def _empty(folder: Path, why: str, job: Job, argv: list[str], launched: supervise.Ended) -> Report:
    """Return the report of a command of which there is no account: its wall time, and why there is no more."""
    wall = launched.reap_ns - launched.spawn_ns
    return Report(
        redacted(argv), launched.exit_code, False, "", wall, (wall,), 0, 0, 0, None, (), (), "No step was found.",
        1.0, wall, 0.0,
        "nothing was recorded", (), (), (), (), (why,), (), (), {}, Facts(dict(machine_facts(os.environ))), job, None,
        None, str(folder),
    )  # fmt: skip


__all__ = ["RunOptions", "UnstallError", "account", "diagnose", "explained", "report", "run"]
