"""The host waits for the device in every step, and the device then has nothing to do until the host has caught up.

## What it is
Something in the step reads a value back: `loss.item()`, `.cpu()`, `print(loss)`, `if tensor:`, `nonzero` and indexing
with a mask (their sizes are values), `torch.cuda.synchronize()`.

## Why it costs
The host launches ahead of the device, and that is what hides its own time. A wait takes the lead away: when the device
has finished, nothing is launched, and it idles while the host starts anew.

## How it is told
Calls in which the host waits for the device, by line and by operator; and for each the time for which the device idled
afterwards until the host had launched again. Without the wait the host would be ahead by no more than it waited, so the
smaller of the two is claimed. A wait after which the device had work left, or that ended at once because the device had
caught up before, costs nothing and is not told; neither are waits that come in fewer than one step of two, as for a log,
nor the waits of the profiler itself, nor those for a copy of the input (`data/pageable-copy`).

## Sources
PyTorch Performance Tuning Guide, "Avoid unnecessary CPU-GPU synchronization"; PyTorch documentation, CUDA semantics,
"Asynchronous execution", and `torch.cuda.set_sync_debug_mode`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._device import idle_stakes, percent, where
from unstall.model.case import Fires, Given, Silent
from unstall.model.device import Copies, DeviceUse, Idle, Idling, Syncs
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Weight
from unstall.model.ledger import Activity, Basis, Device, Ledger, Phase
from unstall.model.remedy import Remedy, RemoveCall, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

EVERY = 0.5  # waits a step; what comes less often is no matter of every step
OFTEN = 2  # waits in all; what is seen once may be the end of it all, where the result is read
WHOLE_DEVICE = ("DeviceSynchronize", "CtxSynchronize")  # the profiler waits like this where it starts and stops
_STATEMENT = re.compile(r"^(?:\w+\.)*synchronize\([^()]*\)\s*(?:#.*)?$")
BY_SIZE = ("nonzero", "masked_select", "unique", "where", "repeat_interleave", "index")

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFFFBBBO|FFFFFFBBBO
    host   |.yyy......|.yyy......
    stream |kkkk..kkkk|kkkk..kkkk
"""
_LINE = Line("train.py", 31, "main", "if loss.item() > best:")
_ITEM = Syncs("cudaStreamSynchronize", "aten::item", Phase.FORWARD, 2, 1.0, 6_000_000, 4_000_000, _LINE)
_COPY = Copies("Memcpy HtoD (Pageable -> Device)", 2, 400_000, 0, 6_000_000, 1 << 20, Phase.FORWARD, "aten::to", _LINE)
_IDLE = Idling(Idle.SYNC, Phase.FORWARD, Activity.COMPUTE, 4_000_000, 2, _LINE, "aten::item")
_PARTS = {(Phase.FORWARD, Activity.COMPUTE, Device.IDLE): 4_000_000}


def _given(*syncs: Syncs, idling: tuple[Idling, ...] = (_IDLE,), copies: tuple[Copies, ...] = ()) -> Given:
    use = DeviceUse(16_000_000, 16_000_000, 0, 0, 4_000_000, idling, (), copies, syncs, (), (), 100.0, 6_000)
    return Given(tables={"device": use, "device_parts": _PARTS})


class SyncEveryStep(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.DEVICE})

    cases = (
        # the host waits 3 ms for work that it launched, then takes 2 ms to launch the next: the device idles for these
        Fires(
            """
            step   |ssssssssss|ssssssssss
            main   |FFFFFFFFOO|FFFFFFFFOO
            host   |LyyyxxL...|LyyyxxL...
            stream |.kkk...kkk|.kkk...kkk
            """,
            spent_ms=6.0,
        ),
        Silent(
            """
            step   |ssssssssss|ssssssssss
            main   |FFFFFFFFOO|FFFFFFFFOO
            host   |LLyyxxxxxx|LLyyxxxxxx
            stream |.kkkkkkkkk|.kkkkkkkkk
            """,
            "while the host waits for one kernel, the next is there: the device never idles after the wait",
        ),
        Fires(_PICTURE, spent_ms=4.0, given=_given(_ITEM)),
        # two places are told together where each is small; and no more is claimed than the host waited
        Fires(_PICTURE, spent_ms=1.0, given=_given(replace(_ITEM, ns=1_000_000))),
        Fires(
            _PICTURE,
            spent_ms=0.6,
            given=_given(replace(_ITEM, idle_ns=300_000), replace(_ITEM, idle_ns=300_000, line=Line("train.py", 40))),
        ),
        Silent(
            """
            step   |ssssssssss|ssssssssss
            main   |FFFBBBOyyy|FFFBBBOyyy
            stream |kkkkkkkkkk|kkkkkkkkkk
            """,
            "the device has work until the step's end, where the host waits",
            _given(replace(_ITEM, idle_ns=0), idling=()),
        ),
        Silent(
            _PICTURE,
            "the device had caught up before: the host hardly waited",
            _given(replace(_ITEM, ns=20_000)),
        ),
        Silent(_PICTURE, "a single wait, where a single step reads its result", _given(replace(_ITEM, count=1))),
        Silent(_PICTURE, "one step of ten reads the loss", _given(replace(_ITEM, count=1, per_step=0.1))),
        Silent(
            _PICTURE,
            "the profiler waits for the device where it stops",
            _given(replace(_ITEM, call="cudaDeviceSynchronize", operator="", line=None, count=1)),
        ),
        Silent(
            _PICTURE,
            "the host waits for the copy of its input",
            _given(replace(_ITEM, operator="aten::to"), copies=(_COPY,)),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        use = tables.device
        if use is None:
            return
        places: defaultdict[object, list[Syncs]] = defaultdict(list)
        for sync in use.syncs:
            if _is_of_the_loop(sync, tables) and not _is_of_an_input(sync, use.copies):
                at = (sync.line.file, sync.line.line) if sync.line else (sync.operator or sync.call, sync.phase)
                places[at].append(sync)
        least = LEAST_SHARE * max(1, tables.steady_ns)
        groups = sorted(places.values(), key=_cost, reverse=True)
        small = [sync for group in groups if _cost(group) < least for sync in group]
        for group in [group for group in groups if _cost(group) >= least] + [small]:
            if _cost(group) >= least:
                yield self._finding(group, use, run, tables)

    def _finding(self, group: Sequence[Syncs], use: DeviceUse, run: Run, tables: Tables) -> Finding:
        worst = max(group, key=lambda sync: min(sync.ns, sync.idle_ns))
        cost, steps = _cost(group), tables.rank_steps
        stakes = idle_stakes(_idle_after(group, use), cost)
        waited, idle = sum(sync.ns for sync in group), sum(sync.idle_ns for sync in group)
        calls = sum(sync.per_step for sync in group)
        often = "once" if round(calls) == 1 else f"{calls:.0f} times"
        name = worst.operator or worst.call
        return Finding(
            self.id,
            f"{name} makes the host wait for the device {often} a step; the device then idles for "
            f"{percent(cost / max(1, tables.steady_ns))} of the step.",
            where(worst.line, name, worst.phase), Scope.STEADY, stakes, Weight.NEEDLESS, Basis.MEASURED,
            (
                Evidence("waits a step", calls, "count", "all ranks: table syncs"),
                Evidence("the host waits", waited / steps, "ns a step", "all ranks: table syncs"),
                Evidence("the device idles afterwards", idle / steps, "ns a step", "all ranks: table syncs"),
            ),
            Saving(cost // steps // 2, cost // steps),
            notes=(f"at {len({_name(sync) for sync in group})} places",) if len({_name(s) for s in group}) > 1 else (),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        operator = finding.title.partition(" ")[0]
        if any(operator.rpartition("::")[2].startswith(name) for name in BY_SIZE):
            yield Remedy(
                f"{self.id}#fixed-size", "work on the whole tensor with a mask", Safety.SAME_MATH,
                why="The size of the result is a value that the host must wait for. torch.where(mask, x, 0), a product with "
                "the mask, or a gather with indices of a fixed number need no wait; where the indices come from the data, "
                "make them on the host, in the loader.",
            )  # fmt: skip
        elif any(operator.endswith(name) for name in WHOLE_DEVICE):
            at = finding.where
            alone = isinstance(at, Line) and at.framework is None and _STATEMENT.match(at.code)
            yield Remedy(
                f"{self.id}#no-synchronize", "do not call torch.cuda.synchronize() in the loop", Safety.SAME_BITS,
                (RemoveCall(at.file, at.line, "torch.cuda.synchronize"),) if isinstance(at, Line) and alone else (),
                why="It is needed to time the device only; torch.cuda.Event times it without a wait.",
            )  # fmt: skip
        else:
            yield Remedy(
                f"{self.id}#read-later", "read values later, or less often", Safety.SAME_BITS,
                why="Sum up the loss on the device (total += loss.detach()) and read it every N steps; or copy it with "
                "non_blocking=True into pinned memory, and read it one step later. A branch on a value becomes torch.where; "
                "GradScaler, clip_grad_norm_ and the schedulers need no value on the host.",
            )  # fmt: skip


def _is_of_the_loop(sync: Syncs, tables: Tables) -> bool:
    """Return whether the steps make this wait: every one of them, and not the profiler around them."""
    around = sync.line is None and not sync.operator and sync.call.endswith(WHOLE_DEVICE)
    if around and (tables.steady_steps < 2 or sync.count < tables.steady_steps):
        return False
    return sync.per_step >= EVERY and sync.count >= OFTEN


def _is_of_an_input(sync: Syncs, copies: Sequence[Copies]) -> bool:
    """Return whether the wait is for a copy to the device that the same operator makes, and for none from it."""
    if "Memcpy" in sync.call:  # what copies to the device and holds the host is no wait, but a copy
        return False
    at = (sync.operator, sync.phase, sync.line)
    ways = [copy.name for copy in copies if (copy.operator, copy.phase, copy.line) == at]
    return any("HtoD" in way for way in ways) and not any("DtoH" in way for way in ways)


def _cost(group: Sequence[Syncs]) -> int:
    return sum(min(sync.ns, sync.idle_ns) for sync in group)


def _name(sync: Syncs) -> tuple[str, object]:
    return sync.operator or sync.call, (sync.line.file, sync.line.line) if sync.line else sync.phase


def _idle_after(group: Sequence[Syncs], use: DeviceUse) -> list[Idling]:
    """Return idle time that may follow these waits, the likeliest first: of the waits themselves, then of launching."""
    phases = {sync.phase for sync in group}
    reasons = (Idle.SYNC, Idle.HOST, Idle.LATENCY, Idle.UNEXPLAINED)
    rows = [row for row in use.idling if row.why in reasons]
    return sorted(rows, key=lambda row: (row.phase not in phases, reasons.index(row.why)))
