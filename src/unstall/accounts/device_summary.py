"""Sum up for a report what the device did in the mean steady step, and what the traces cover that it is known from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from unstall.accounts import summary
from unstall.accounts.segment import segment
from unstall.model.device import Critical, DeviceUse, Idle
from unstall.model.ledger import Device, Ledger, Phase
from unstall.model.report import DeviceSummary, Report, Share, Traced, TraceFile
from unstall.model.run import Run, Sensor
from unstall.model.steps import Steps

STATES = {
    Device.COMPUTE: "compute",
    Device.COLLECTIVE: "collectives",
    Device.COPY: "copies",
    Device.IDLE: "idle",
}
ON_PATH = {Device.COMPUTE: "kernels", Device.COLLECTIVE: "collectives", Device.COPY: "copies"}
NOT_BEGUN = "launched and not begun"  # on the critical path: the device was free, and took its time
BEFORE = {"start-up": "before the first step"}  # a trace begins in the middle of a run
DILATED = 1.05  # times longer under the profiler; from there on what the host does looks larger than it is


def device_summary(use: DeviceUse | None, ledger: Ledger, steps: Steps, ranks: int) -> DeviceSummary | None:
    """Return what the device did a step, or None where it was not observed."""
    if use is None:
        return None
    count = max(1, steps.steady_count * ranks)
    whole = max(1, use.busy_ns + use.idle_ns)
    spent = {
        Device.COMPUTE: use.compute_ns,
        Device.COLLECTIVE: use.collective_ns,
        Device.COPY: use.copy_ns,
        Device.IDLE: use.idle_ns,
    }
    reasons: defaultdict[str, int] = defaultdict(int)
    for idling in use.idling:
        reasons[idling.why.value] += idling.ns
    why = _shares(reasons.items(), count, whole)
    states = tuple(
        Share(STATES[state], ns // count, ns / whole, why if state is Device.IDLE else ())
        for state, ns in spent.items()
        if ns
    )
    return DeviceSummary(
        states, _by_phase(ledger, steps, count), _critical(use.critical, count), use.launches_per_step, use.launch_ns,
        use.dilation,
    )  # fmt: skip


def _shares(spent: Iterable[tuple[str, int]], count: int, whole: int) -> tuple[Share, ...]:
    """Return a share for each name that took time, the largest first."""
    shares = [Share(name, ns // count, ns / whole) for name, ns in spent if ns]
    return tuple(sorted(shares, key=lambda share: (-share.ns, share.name)))


def _by_phase(ledger: Ledger, steps: Steps, count: int) -> tuple[Share, ...]:
    inside = ledger.rows(steps=steps.steady)
    whole = max(1, int(ledger.ns[inside].sum()))
    found = []
    for phase in Phase:
        of_phase = inside & (ledger.phase == phase)
        spent = {name: int(ledger.ns[of_phase & (ledger.device == state)].sum()) for state, name in STATES.items()}
        ns = sum(spent.values())
        if ns:
            parts = tuple(
                Share(name, of_state // count, of_state / whole) for name, of_state in spent.items() if of_state
            )
            found.append(Share(phase.name.lower(), ns // count, ns / whole, parts))
    return tuple(found)


def _critical(path: Sequence[Critical], count: int) -> tuple[Share, ...]:
    """Return the critical path by what it runs over: kinds of device work, and what the host does."""
    spent: defaultdict[str, int] = defaultdict(int)
    for part in path:
        if part.device in ON_PATH:
            name = ON_PATH[part.device]
        else:
            name = NOT_BEGUN if part.activity is None else summary.NAMES[part.activity]
        spent["compute on the host" if name == "compute" else name] += part.ns
    return _shares(spent.items(), count, max(1, sum(spent.values())))


BOUND = {
    Idle.HOST: "Bound by the host",
    Idle.DATA: "Bound by data",
    Idle.SYNC: "Bound by waits of the host for the device",
    Idle.RANK: "Bound by another rank",
    Idle.LATENCY: "Bound by the delay between launch and begin",
    Idle.UNEXPLAINED: "Bound by idle time that the trace does not explain",
}
BECAUSE = {
    Idle.HOST: "the host had not launched more",
    Idle.DATA: "the host waited for data",
    Idle.SYNC: "the host waited for the device and launched nothing",
    Idle.RANK: "another rank was late",
    Idle.LATENCY: "what was launched had not begun yet",
    Idle.UNEXPLAINED: "of something that the trace does not show",
}
LEAST_IDLE = 0.15  # of the step; a device that idles less is what bounds it


def bound_by(device: DeviceSummary) -> str:
    """Return what bounds the step, as the device sees it, and the most that any fix of its idle time could give."""
    shares = {state.name: state for state in device.states}
    idle = shares.get(STATES[Device.IDLE])
    busy = 1.0 - (idle.share if idle else 0.0)
    if idle is None or idle.share < LEAST_IDLE or not idle.parts:
        work = max((state for state in device.states if state is not idle), key=lambda state: state.ns, default=None)
        most = f", most of it in {'kernels' if work.name == 'compute' else work.name}" if work else ""
        return f"Bound by the device. It is busy for {busy:.0%} of the step{most}."
    why = idle.parts[0]
    verdict = BOUND[Idle(why.name)]
    most = f"a device that never idled could give at most {1 / busy:.1f}x" if busy > 0.01 else "it hardly works at all"
    of_it = "" if len(idle.parts) == 1 else f", {why.share / idle.share:.0%} of that"
    return f"{verdict}. The device idles for {idle.share:.0%} of the step{of_it} because {BECAUSE[Idle(why.name)]}; {most}."


def of_traces(report: Report, run: Run) -> Report:
    """Return *report* with what is different where *run* was read from traces; as it is where it was recorded live."""
    about = traced(run) if all(rank.rows is None for rank in run.ranks) else None
    if about is None:
        return report
    if Sensor.DEVICE not in run.coverage.observed:
        report = replace(report, device=None, bound_by=summary.bound_by(report.step_parts))
    dilation = next(rank.trace.dilation for rank in run.ranks if rank.trace is not None)
    return replace(
        report,
        traced=about,
        outside=tuple(replace(share, name=BEFORE.get(share.name, share.name)) for share in report.outside),
        warnings=warnings(run, about, dilation, report.steady_steps),
        overhead_share=None if dilation is None else 1 - 1 / max(1.0, dilation),
        overhead_how="from the time of a step without it, as stated" if dilation else "--step-ms tells it",
        projection=summary.project(report.job, report.step_ns.median if report.step_ns else 0, 0, report.findings),
    )


def dilated(run: Run, unprofiled_ns: int) -> Run:
    """Return *run* with how many times longer its median step took than *unprofiled_ns*, without the profiler."""
    times = summary.step_times(segment(run).steps)
    if times is None:
        return run
    ratio = times.median / unprofiled_ns
    return replace(
        run,
        ranks=tuple(
            replace(rank, trace=replace(rank.trace, dilation=ratio)) if rank.trace is not None else rank
            for rank in run.ranks
        ),
    )


def traced(run: Run) -> Traced | None:
    """Return what the traces cover that *run* was read from, or None where it was recorded live."""
    files = tuple(
        TraceFile(
            rank.trace.path,
            rank.rank,
            int(rank.trace.calls.start_ns.size + rank.trace.work.start_ns.size),
            rank.end_ns - rank.start_ns,
            rank.trace.cut_at,
        )
        for rank in run.ranks
        if rank.trace is not None and rank.trace.path
    )
    return Traced(files, _told_by(run), run.missing_ranks) if files else None


def _told_by(run: Run) -> str:
    """Return how the steps were told, as a clause that follows their number."""
    facts = next(rank.facts for rank in run.ranks if rank.trace is not None)
    inferred = facts.text("steps.inferred")
    if inferred is None:
        return "as the profiler marks them (ProfilerStep#)"
    return f"inferred: {inferred}" if facts.flag("steps.seen") else f"for {inferred}"


def warnings(run: Run, about: Traced, dilation: float | None, steady: int) -> tuple[str, ...]:
    """Return what a reader of the report must know of the traces before he believes it."""
    said = list(run.coverage.trouble)
    if about.missing_ranks:
        missing = ", ".join(map(str, about.missing_ranks[:8])) + (", ..." if len(about.missing_ranks) > 8 else "")
        said.append(
            f"no trace of rank {missing}: how long these ranks kept the others waiting cannot be told. "
            "Give the traces of all ranks, as a folder"
        )
    if dilation is not None and dilation > DILATED:
        said.append(
            f"under the profiler a step took {dilation:.2f} times as long as without it: what the host does, "
            "and launching above all, looks larger than it is"
        )
    if 0 < steady < 5:
        some = f"only {steady} steady step" + ("s" if steady > 1 else "")
        said.append(f"{some}: shares are rough. Let the profiler record more")
    return tuple(said)
