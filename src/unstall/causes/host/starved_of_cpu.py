"""The training is ready to run, but other programs of the machine have the CPU.

## What it is
The training thread, or a thread of its team, waits in the run queue while programs that are not this training's keep
the cores busy. The script is not to blame, and no change to it gives the time back.

## Why it costs
A thread without a CPU stands still. A parallel tensor operation ends with its slowest thread, so one thread that waits
holds up all of them, and the others spin meanwhile.

## How it is told
Run-queue time of all threads of the training, as the kernel counts it, against the CPU time of every other process: n
cores that others keep busy can hold a step up for n times its length at most. Where they keep less than half a core
busy, or the training itself has more threads than cores, it crowds itself out, which is another cause's matter: here is
silence then. Named from 10 % of the step on.

## Sources
Linux `proc(5)`: `/proc/PID/schedstat`; `/proc/pressure/cpu`.
"""

from __future__ import annotations

from collections.abc import Iterator

from unstall.causes._cause import Cause
from unstall.model.case import Fires, Given, Silent
from unstall.model.finding import Evidence, Finding, Machine, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Cores, Tables

LEAST_SHARE = 0.1  # of the step; below it the machine is shared as machines are
LEAST_BUSY = 0.5  # cores that others keep busy
EXCESS = 1.5  # threads a core; from there on the training is in its own way

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFBBBBBO|FFFFBBBBBO
"""
_PARTS = {(Phase.FORWARD, Activity.STARVED): 6_000_000, (Phase.FORWARD, Activity.COMPUTE): 4_000_000}


def _given(others: float, starved_ns: int = 6_000_000, threads: int = 2) -> Given:
    parts = {**_PARTS, (Phase.FORWARD, Activity.STARVED): starved_ns}
    return Given(
        facts={"threads.intra": threads},
        tables={"cores": Cores(2.0, 1, 1.0, 1.0, others, 0.3), "steady_parts": parts},
    )


class StarvedOfCpu(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.MACHINE, Sensor.RUN_QUEUE})

    cases = (
        Fires(_PICTURE, 6, _given(1.2)),
        Fires(_PICTURE, 11, _given(0.55, starved_ns=15_000_000)),
        Silent(_PICTURE, "nothing else runs: the training crowds itself out", _given(0.1)),
        Silent(_PICTURE, "the training has eight threads for two cores", _given(1.2, threads=8)),
        Silent(_PICTURE, "it waits for the CPU now and then, as on any machine", _given(1.2, starved_ns=1_500_000)),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        cores = tables.cores
        threads = run.ranks[0].facts.number("threads.intra") or 1.0
        others = cores.others_busy or 0.0
        if others < LEAST_BUSY or threads * cores.ranks_here > EXCESS * cores.usable:
            return
        spent = {phase: ns for (phase, activity), ns in tables.steady_parts.items() if activity is Activity.STARVED}
        starved_ns = sum(spent.values())
        most_ns = min(starved_ns, round(others * tables.steady_ns))
        if most_ns < LEAST_SHARE * tables.steady_ns or not most_ns:
            return
        stakes = tuple(
            Stake(phase, Activity.STARVED, round(ns * most_ns / starved_ns)) for phase, ns in spent.items() if ns
        )
        share = most_ns / tables.steady_ns
        yield Finding(
            self.id, f"{share:.0%} of the step the training was ready to run and had no CPU: other programs had it.",
            Machine(f"other programs keep {others:.1f} of {cores.usable:g} cores busy"), Scope.STEADY, stakes,
            Weight.TIMED, Basis.SAMPLED,
            (
                Evidence("time in the run queue", most_ns, "ns", "machine: run queue of all threads"),
                Evidence("cores that other programs keep busy", others, "count", "machine: CPU time of all processes"),
                Evidence("cores this training may use", cores.usable, "count", "machine"),
            ),
            Saving(0, most_ns // max(1, tables.steady_steps)),
            notes=("measure again on a quiet machine before anything else is changed",),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = "End what else runs there, or give the training cores of its own: taskset, a control group, a machine."
        yield Remedy(f"{self.id}#alone", "Let the training have the cores", Safety.SAME_BITS, why=why)
