"""The device runs out of work between short kernels, because the host cannot launch them as fast as they end.

## What it is
A step is made of many small operations. Each costs the host some microseconds (Python, dispatch, the launch itself), and
the device less than that: it waits for the host after every kernel.

## Why it costs
The step takes as long as the host needs to launch it, however fast the device is. A faster device changes nothing.

## How it is told
Stretches in which the device idles, the host is at work and had not launched more: many a step, each short, between
kernels that are short themselves. Not told are stretches in which the host waits for data or for the device, and long
ones, in which it does something else than launching. The saving is what a replayed graph would leave: between its kernels
lies about a microsecond. A profiler slows the host down and so makes these stretches longer than they are: where the
steps are known to take more than 1.05 times as long under it, nothing is claimed, and where it recorded Python stacks,
the least saving is said to be none.

## Sources
PyTorch blog, "Accelerating PyTorch with CUDA Graphs"; NVIDIA blog, "Constant Time Launch for Straight-Line CUDA Graphs";
PyTorch Performance Tuning Guide; documentation of `torch.compile` (mode="reduce-overhead").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from unstall.causes._cause import Cause
from unstall.causes._device import DILATED, has_stacks, idle_stakes, percent, where
from unstall.causes._models import compiling
from unstall.model.case import Fires, Given, Silent
from unstall.model.device import DeviceUse, Idle, Idling, Kernels
from unstall.model.finding import Abstained, Evidence, Finding, Line, Saving, Scope, Weight
from unstall.model.ledger import Activity, Basis, Device, Ledger, Phase
from unstall.model.remedy import Edit, Remedy, Safety, SetKeyword
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

LEAST_SHARE = 0.05  # of the steady step
LEAST_WITH_STACKS = 0.1  # the same where the profiler recorded Python stacks, and so about halved the host's speed
LEAST_GAPS = 10  # stretches of idle time a step; fewer are no matter of launching
LEAST_LAUNCHES = 20  # a step
SHORT_GAP_NS = 500_000  # on the mean; an operator with its Python takes 10 to 100 us, under a profiler up to 400
LATENCY_NS = (4_000, 50_000)  # from a launch to its begin on a stream that had run empty; 1 us where more was queued
SHORT_KERNEL_NS = 100_000  # on the mean; the host launches ahead of longer ones
NODE_NS = 1_500  # between two kernels of a replayed graph
_FUSED = ("SGD", "Adam", "AdamW")  # optimizers that have a fused form on a GPU
MOSTLY = 0.5  # of the idle time, to blame one line or one phase

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFBBBBOO|FFFFBBBBOO
    stream |k.k.k.k.k.|k.k.k.k.k.
"""
_ENTRIES = {
    (Phase.FORWARD, Activity.COMPUTE): 4_000_000,
    (Phase.BACKWARD, Activity.COMPUTE): 4_000_000,
    (Phase.OPTIMIZER, Activity.COMPUTE): 2_000_000,
}
_USE = DeviceUse(
    10_000_000, 10_000_000, 0, 0, 10_000_000,
    tuple(Idling(Idle.HOST, phase, activity, ns, ns // 40_000) for (phase, activity), ns in _ENTRIES.items()),
    (Kernels("void at::native::vectorized_elementwise_kernel", Device.COMPUTE, 1000, 10_000_000, 10_000_000, "aten::add"),),
    (), (), (), (), 500.0, 6_000,
)  # fmt: skip
_PARTS = {(*entry, Device.IDLE): ns for entry, ns in _ENTRIES.items()}


def _given(use: DeviceUse) -> Given:
    return Given(tables={"device": use, "device_parts": _PARTS})


def _for(why: Idle, ns_a_gap: int) -> DeviceUse:
    return replace(_USE, idling=tuple(replace(row, why=why, gaps=max(1, row.ns // ns_a_gap)) for row in _USE.idling))


class LaunchBound(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.DEVICE})

    cases = (
        # 125 stretches of 40 us a step: 5 of 10 ms
        Fires(_PICTURE, spent_ms=10.0, given=_given(_USE)),
        Fires(_PICTURE, spent_ms=10.0, given=_given(replace(_USE, dilation=1.01))),
        Silent(_PICTURE, "the profiler made the steps longer: how long is not known", _given(replace(_USE, dilation=1.6))),
        Silent(_PICTURE, "the host waits for data", _given(_for(Idle.DATA, 40_000))),
        Silent(_PICTURE, "the host waits for the device", _given(_for(Idle.SYNC, 40_000))),
        Silent(_PICTURE, "in a few long stretches the host does something else", _given(_for(Idle.HOST, 2_000_000))),
        Silent(
            _PICTURE,
            "the kernels are long: the host can launch ahead of them",
            _given(replace(_USE, kernels=(replace(_USE.kernels[0], count=20),))),
        ),
        Silent(
            """
            step   |ssssssssss|ssssssssss
            main   |FFFBBBOyyy|FFFBBBOyyy
            stream |kkkkkkkkkk|kkkkkkkkkk
            """,
            "many short kernels, and the host is ahead of them: the device never idles",
            _given(replace(_USE, busy_ns=20_000_000, compute_ns=20_000_000, idle_ns=0, idling=())),
        ),
    )  # fmt: skip

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Abstained]:
        use = tables.device
        if use is None:
            return
        rows = [row for row in use.idling if _is_launching(row)]
        lost, gaps = sum(row.ns for row in rows), sum(row.gaps for row in rows)
        steps = tables.rank_steps
        short = 0 < _kernel_ns(use) <= SHORT_KERNEL_NS
        least = LEAST_WITH_STACKS if has_stacks(run) else LEAST_SHARE
        few = use.launches_per_step < LEAST_LAUNCHES or gaps < LEAST_GAPS * steps
        if lost < least * max(1, tables.steady_ns) or few or not short:
            return
        if use.dilation is not None and use.dilation > DILATED:
            yield Abstained(
                self.id,
                f"under the profiler a step takes {use.dilation:.2f} times as long, and what is added looks like this fault; "
                "record without stacks, shapes and memory, or compare step times with the profiler off",
            )
            return
        yield self._finding(rows, use, steps, run, tables)

    def _finding(self, rows: Sequence[Idling], use: DeviceUse, steps: int, run: Run, tables: Tables) -> Finding:
        lost, gaps = sum(row.ns for row in rows), sum(row.gaps for row in rows)
        stacks = has_stacks(run)
        share = lost / max(1, tables.steady_ns)
        high = max(0, lost - gaps * NODE_NS) // steps
        low = 0 if stacks else high // 2
        note = "the profiler recorded Python stacks, which slows the host down: without it this is less"
        line, phase = _most(rows)
        return Finding(
            self.id,
            f"The device idles for {percent(share)} of the step, {gaps / steps:.0f} times, because the host launches too slowly: "
            f"{use.launches_per_step:.0f} pieces of work a step.",
            where(line, "", phase), Scope.STEADY, idle_stakes(rows), Weight.OVERLAP, Basis.MEASURED,
            (
                Evidence("idle, the host had not launched more", lost / steps, "ns a step", "all ranks: table idle"),
                Evidence("stretches of it a step", gaps / steps, "count", "all ranks: table idle"),
                Evidence("pieces of work launched a step, median", use.launches_per_step, "count", "trace: calls"),
                Evidence("length of a kernel, mean", _kernel_ns(use), "ns", "all ranks: table kernels"),
                Evidence("host time of one launch call, median", use.launch_ns, "ns", "trace: calls"),
            ),
            Saving(low, high),
            notes=(note,) if stacks else () if use.dilation else ("how much the profiler slowed the host is not known",),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        in_optimizer = sum(stake.ns for stake in finding.stakes if stake.phase is Phase.OPTIMIZER)
        fused = Remedy(
            f"{self.id}#fused-optimizer", "one kernel for all parameters in the optimizer", Safety.SAME_MATH,
            _fusing(run, tables),
            why="Pass fused=True (or foreach=True) to torch.optim's SGD, Adam or AdamW: a step of hundreds of small kernels "
            "becomes a few. Gradient clipping has foreach=True as well, and zero_grad(set_to_none=True) launches nothing.",
        )  # fmt: skip
        if in_optimizer >= MOSTLY * finding.claim_ns:
            yield fused
        yield Remedy(
            f"{self.id}#graphs", 'torch.compile(model, mode="reduce-overhead")', Safety.SAME_MATH,
            () if tables.compiles else compiling(run, tables, [("mode", "reduce-overhead")]),
            why="It fuses small operations and replays the step as a CUDA graph, which the host launches at once. Shapes must "
            "not change from step to step, and nothing in it may wait for the device. torch.cuda.make_graphed_callables does "
            "the same by hand.",
        )  # fmt: skip
        if 0 < in_optimizer < MOSTLY * finding.claim_ns:
            yield fused
        yield Remedy(
            f"{self.id}#larger-batch", "a larger batch, with the learning rate to fit", Safety.CHANGES_TRAINING,
            why="The same launches then carry more work each: up to the batch at which the device is busy all the time, "
            "it takes no longer a step.",
        )  # fmt: skip


def _fusing(run: Run, tables: Tables) -> tuple[Edit, ...]:
    """Return the edits that fuse each optimizer that can be; none where a library makes one, or it is settled already."""
    edits = []
    for facts in run.ranks[0].facts.family("optimizer").values():
        line, kind = tables.place(facts.text("site") or ""), facts.text("class")
        if (
            facts.text("library")
            or line is None
            or kind not in _FUSED
            or facts.flag("fused")
            or facts.flag("capturable")
        ):
            continue
        edits.append(SetKeyword(line.file, line.line, f"torch.optim.{kind}", "fused", True))
    return tuple(edits)


def _is_launching(row: Idling) -> bool:
    """Return whether the host was launching one small thing after another meanwhile."""
    mean = row.ns / max(1, row.gaps)
    if row.why is Idle.LATENCY:
        return LATENCY_NS[0] <= mean <= LATENCY_NS[1]
    return row.why is Idle.HOST and mean <= SHORT_GAP_NS


def _kernel_ns(use: DeviceUse) -> float:
    """Return the mean length of a kernel, 0 where there is none."""
    kernels = [kernel for kernel in use.kernels if kernel.kind is Device.COMPUTE]
    return sum(kernel.ns for kernel in kernels) / max(1, sum(kernel.count for kernel in kernels))


def _most(rows: Sequence[Idling]) -> tuple[Line | None, Phase]:
    """Return the line that most of the time is on, if there is one, and the phase that has the most."""
    lines: defaultdict[tuple[str, int], int] = defaultdict(int)
    phases: defaultdict[Phase, int] = defaultdict(int)
    for row in rows:
        phases[row.phase] += row.ns
        if row.line is not None:
            lines[row.line.file, row.line.line] += row.ns
    place = max(lines, key=lambda at: lines[at], default=None)
    known = next((row.line for row in rows if row.line and (row.line.file, row.line.line) == place), None)
    mostly = place is not None and lines[place] >= MOSTLY * sum(phases.values())
    return known if mostly else None, max(phases, key=lambda phase: (phases[phase], -phase))
