"""Accounts of real traces against slow, obvious ones. The traces are no part of the repository.

The folder is named by UNSTALL_TRACES, or lies beside the repository as ``../shared/traces``.
"""

import os
from pathlib import Path

import pytest

from unstall.model.errors import UnstallError
from unstall.model.wire import Device
from unstall.pipeline import account
from unstall.readers import join

FOLDER = Path(os.environ.get("UNSTALL_TRACES") or Path(__file__).parents[3] / "shared" / "traces")
LARGE = 500_000  # bytes of gzip
FILES = sorted(FOLDER.glob("**/*.json*"))
CASES = [
    pytest.param(file, id=str(file.relative_to(FOLDER)), marks=[pytest.mark.slow] * (file.stat().st_size > LARGE))
    for file in FILES
] or [pytest.param(None, marks=pytest.mark.skip(f"no traces in {FOLDER}; name their folder by UNSTALL_TRACES"))]
SHOWN = (Device.COMPUTE, Device.COLLECTIVE, Device.COPY)


def swept(work, windows):
    """Return the ns of each state within *windows*, from the edges of all work, one by one."""
    edges = []
    for start, end, kind in zip(work.start_ns.tolist(), work.end_ns.tolist(), work.kind.tolist()):
        edges += [(start, kind, 1), (end, kind, -1)]
    edges += [(at, None, 0) for window in windows for at in window]
    running, found, before = dict.fromkeys(SHOWN, 0), dict.fromkeys((*SHOWN, Device.IDLE), 0), None
    ahead = sorted(windows)
    for at, kind, change in sorted(edges, key=lambda edge: edge[0]):
        while ahead and before is not None and ahead[0][1] <= before:
            ahead.pop(0)
        if before is not None and at > before and ahead and ahead[0][0] <= before:
            state = next((device for device in SHOWN if running[device]), Device.IDLE)
            found[state] += at - before
        before = at
        if kind is not None:
            running[kind] += change
    return found


@pytest.mark.parametrize("file", CASES)
def test_what_the_device_did_equals_a_sweep_over_all_work(file):
    try:
        run = join.read([file])
    except UnstallError:
        pytest.skip("not a trace")
    ledger, tables, segments = account(run)
    (rank,) = run.ranks
    use, steps = tables.device, segments.steps
    if not rank.trace.work.start_ns.size:
        assert use is None
        assert set(ledger.device.tolist()) == {Device.NONE}
        return
    whole = swept(rank.trace.work, [(rank.start_ns, rank.end_ns)])
    assert {device: int(ledger.ns[ledger.device == device].sum()) for device in whole} == whole
    steady = swept(rank.trace.work, list(zip(steps.start_SR[:, 0].tolist(), steps.end_SR[:, 0].tolist())))
    spent = (use.compute_ns, use.collective_ns, use.copy_ns, use.idle_ns)
    assert dict(zip((*SHOWN, Device.IDLE), spent)) == steady
    assert sum(row.ns for row in use.idling) == use.idle_ns
    assert sum(part.ns for part in use.critical) == sum(steady.values())
