"""What the kernel did a step, from readings that fall within the steady steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made import MS, B, F, N, U, gauges, outside, rank, row, rows, run

from unstall.model.run import Gauges
from unstall.model.tables import Kernel
from unstall.pipeline import account

STEPS, STEP_NS = 40, 100 * MS


def kernel_of(readings: Gauges | None) -> Kernel | None:
    table = [outside({U: MS}), *[row({F: STEP_NS // 2, B: STEP_NS // 2}) for _ in range(STEPS)], outside({N: MS})]
    return account(run(replace(rank(rows(table)), gauges=readings)))[1].kernel


def readings(every_ns: int, faults_a_step: float, system: float) -> Gauges:
    """Return readings of a process whose one thread computes all the time, the share *system* of it in the kernel."""
    at = np.arange(0, STEPS * STEP_NS, every_ns)
    made = gauges(at.tolist(), at.tolist(), np.zeros_like(at).tolist())
    faults = np.round(faults_a_step * at / STEP_NS).astype(np.int64)
    return replace(made, system_ns=np.round(system * at).astype(np.int64), page_faults=faults)


def test_faults_are_told_a_step_and_the_kernels_time_as_a_share_of_the_cpu_time() -> None:
    found = kernel_of(readings(500 * MS, 1200, 0.3))
    assert found is not None
    assert found.page_faults == pytest.approx(1200, rel=0.01)
    assert found.system_share == pytest.approx(0.3)
    assert found.cpu_ns == pytest.approx(STEP_NS, rel=0.01)


@pytest.mark.parametrize("given", [None, gauges([0, STEPS * STEP_NS], [0, 1], [0, 0]), readings(60_000 * MS, 10, 0.1)])
def test_what_was_not_read_twice_in_the_steady_steps_is_not_told(given: Gauges | None) -> None:
    assert kernel_of(given) is None
