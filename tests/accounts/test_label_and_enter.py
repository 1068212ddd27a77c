"""Samples get their phase, their line's rates and their place in the ledger."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import MS, OPT, WAITING, B, C, D, E, F, N, Stack, U, gauges, outside, rank, row, rows, run, sampled

from unstall.accounts.enter import enter
from unstall.accounts.label import label
from unstall.accounts.segment import segment
from unstall.model.ledger import Basis, Ledger
from unstall.model.run import Place, Rank, Run, Samples
from unstall.model.wire import Activity, Phase

SECOND = 1_000_000_000
LOOP = Place("/home/me/train.py", 30, "main")
MODULE = Place("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1776, "_call_impl")
ENGINE = Place("/venv/lib/python3.11/site-packages/torch/autograd/graph.py", 800, "_engine_run_backward")
MATH = (LOOP, MODULE, Place("/venv/lib/python3.11/site-packages/torch/nn/functional.py", 10, "linear"))
LOOKUP = (LOOP, MODULE, Place("/home/me/model.py", 12, "forward"))
BACK = (LOOP, ENGINE)
LOG = (Place("/home/me/train.py", 44, "main"), Place("/home/me/train.py", 9, "log"))


def account(of: Run) -> Ledger:
    segments = segment(of)
    return enter(of, segments, [label(r, t) for r, t in zip(of.ranks, segments.teaches, strict=True)])


def spent(ledger: Ledger, rank: int = 0, steps: object = None) -> Counter[tuple[Phase, Activity]]:
    found: Counter[tuple[Phase, Activity]] = Counter()
    for n in np.flatnonzero(ledger.rows(rank=rank, steps=steps)):  # type: ignore[arg-type]
        found[Phase(int(ledger.phase[n])), Activity(int(ledger.activity[n]))] += int(ledger.ns[n])
    return found


def steady(*cells: dict, count: int = 50) -> list[dict[str, object]]:
    """Return a start-up, *count* steps alike and an end."""
    return [outside({U: SECOND}), *[row(cells[0]) for _ in range(count)], outside({N: 20 * MS})]


STEP = {F: 60 * MS, B: 30 * MS, N: 10 * MS}


def every_step(
    table: list[dict[str, object]], seen: dict[Stack, list[int]], off_ns: int = 0, **rates: object
) -> Samples:
    """Return samples of each stack at so many ms after the start of every step."""
    made = rows(table)
    points = [
        (int(start) + at * MS - off_ns, stack)
        for start, steps in zip(made.start_ns, made.steps, strict=True)
        if steps
        for stack, ats in seen.items()
        for at in ats
    ]
    return sampled(sorted(points, key=lambda point: point[0]), **rates)  # type: ignore[arg-type]


ALL_MATH: dict[Stack, list[int]] = {MATH: [10, 20, 30, 40, 50], BACK: [65, 75, 85], LOG: [95]}


def in_steps(samples: Samples, *shares: tuple[Stack, float]) -> dict[Stack, int]:
    """Return how often each stack was seen, in shares of its samples."""
    count = Counter(samples.stacks[int(n)] for n in samples.stack)
    return {stack: round(count[stack] * share) for stack, share in shares}


@pytest.mark.parametrize("off_ms", [-12, 0, 30, 60])
def test_the_samplers_clock_is_found_where_stacks_tell_their_phase(off_ms: int) -> None:
    table = steady(STEP)
    samples = every_step(table, ALL_MATH, off_ms * MS)
    found = label(rank(rows(table), samples=samples))
    assert found is not None
    told = {BACK: Phase.BACKWARD, MATH: Phase.FORWARD, LOG: Phase.BETWEEN}
    right = [told[found.stacks[int(s)]] == phase for s, phase in zip(found.stack, found.phase, strict=True)]
    assert np.mean(right) > 0.99


def test_a_sample_in_the_phase_beside_goes_where_its_line_usually_is() -> None:
    table = steady({D: 20 * MS, F: 30 * MS, N: 20 * MS}, count=60)
    made = rows(table)
    starts = made.start_ns[made.steps > 0]
    # the loop's own line lies in BETWEEN; one sample in five comes 12 ms late, in the next step's fetch
    points = [(int(start) + (62 + (12 if n % 5 == 0 else 0)) * MS, LOG) for n, start in enumerate(starts[:-1])]
    found = label(rank(made, samples=sampled(points)))
    assert found is not None and (found.phase == Phase.BETWEEN).all()


FETCHER = Place("/venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", 54, "_MapDatasetFetcher.fetch")
SAMPLE = Place("/home/me/data.py", 7, "Clips.__getitem__")
MAKER = Place("/home/me/train.py", 20, "Clips.get_batch")


@pytest.mark.parametrize(
    ("stack", "producer", "phase"),
    [
        ((FETCHER, SAMPLE), "", Phase.FETCH),  # read while it changed: the loop's frame is missing
        ((SAMPLE,), "", Phase.FORWARD),
        ((LOOP, MAKER), "/home/me/train.py:18:get_batch", Phase.FETCH),
        ((LOOP, MAKER), "/home/me/train.py:18:other", Phase.FORWARD),
    ],
)
def test_what_makes_batches_is_told_by_its_frames_where_the_clock_says_another_phase(
    stack: Stack, producer: str, phase: Phase
) -> None:
    table = steady({D: 2 * MS, F: 96 * MS, B: 2 * MS})
    facts = {"producer:0": {"site": producer}} if producer else {}
    found = label(rank(rows(table), samples=every_step(table, {stack: [50]}), facts=facts))
    assert found is not None
    assert set(found.phase) == {phase}


def test_a_line_that_truly_runs_in_two_phases_stays_in_both() -> None:
    table = [
        outside({U: SECOND}),
        *[row(STEP) for _ in range(20)],
        row({E: 4 * SECOND, **STEP}),
        row(STEP),
        outside({N: MS}),
    ]
    made = rows(table)
    begins = int(made.start_ns[21])
    usual = [(int(start) + 95 * MS, LOG) for start in made.start_ns[1:20]]
    found = label(rank(made, samples=sampled(usual + [(begins + n * 300 * MS, LOG) for n in range(1, 8)])))
    assert found is not None
    assert Counter(found.phase.tolist())[Phase.EVALUATE] == 7


def test_held_is_python_active_is_compute_and_the_rest_waits() -> None:
    table = steady({F: 60 * MS, B: 30 * MS, N: 10 * MS})
    seen = {MATH: [10, 20, 30], LOOKUP: [40, 50, 55], BACK: [65, 75, 85], LOG: [93, 97]}
    samples = every_step(table, seen)
    samples = replace(
        samples, gil=in_steps(samples, (LOOKUP, 1.0)), active=in_steps(samples, (MATH, 1), (LOOKUP, 1), (BACK, 1))
    )
    found = spent(account(run(rank(rows(table), samples=samples))), steps=range(50))
    assert found[Phase.FORWARD, Activity.COMPUTE] == pytest.approx(50 * 30 * MS, rel=0.02)
    assert found[Phase.FORWARD, Activity.PYTHON] == pytest.approx(50 * 30 * MS, rel=0.02)
    assert found[Phase.BACKWARD, Activity.COMPUTE] == pytest.approx(50 * 30 * MS, rel=0.02)
    assert found[Phase.BETWEEN, Activity.IO] == pytest.approx(50 * 10 * MS, rel=0.02)


def test_waiting_inside_torch_is_its_team_of_threads_at_work() -> None:
    table = steady(STEP)
    samples = every_step(table, ALL_MATH)
    samples = replace(samples, gil={}, active=in_steps(samples, (MATH, 0.4), (BACK, 0.4)))
    found = spent(account(run(rank(rows(table), samples=samples))), steps=range(50))
    assert (Phase.FORWARD, Activity.IO) not in found and (Phase.BACKWARD, Activity.IO) not in found


def test_of_several_ranks_one_that_waits_inside_torch_waits_for_the_others() -> None:
    table = steady(STEP)
    samples = every_step(table, ALL_MATH)
    samples = replace(samples, gil={LOG: 50}, active=in_steps(samples, (MATH, 1), (BACK, 0), (LOG, 1)))
    made = [rank(rows(table), n, samples=samples) for n in (0, 1)]
    found = spent(account(run(*made)), steps=range(50))
    assert found[Phase.BACKWARD, Activity.COLLECTIVE] > 0.95 * 50 * 30 * MS


def test_a_line_always_on_a_cpu_loses_nothing_to_waiting_by_chance() -> None:
    table = steady(STEP)
    samples = every_step(table, ALL_MATH)
    samples = replace(samples, gil={}, active=in_steps(samples, (MATH, 0.93), (BACK, 1.05), (LOG, 0.9)))
    found = spent(account(run(rank(rows(table), samples=samples))), steps=range(50))
    assert found[Phase.BETWEEN, Activity.IO] < 0.1 * 50 * 10 * MS


def test_a_line_that_is_blocked_half_of_the_time_is_said_to_be() -> None:
    table = steady(STEP, count=200)
    samples = every_step(table, ALL_MATH)
    samples = replace(samples, gil={}, active=in_steps(samples, (MATH, 1), (BACK, 1), (LOG, 0.5)))
    found = spent(account(run(rank(rows(table), samples=samples))), steps=range(200))
    assert found[Phase.BETWEEN, Activity.IO] == pytest.approx(0.5 * 200 * 10 * MS, rel=0.15)


def test_without_samples_torch_computes_and_the_rest_is_unknown() -> None:
    ledger = account(run(rank(rows(steady({D: 5 * MS, C: 7 * MS, **STEP})))))
    found = spent(ledger, steps=range(50))
    assert found == {
        (Phase.FETCH, Activity.LOAD): 50 * 5 * MS, (Phase.CHECKPOINT, Activity.IO): 50 * 7 * MS,
        (Phase.FORWARD, Activity.COMPUTE): 50 * 60 * MS, (Phase.BACKWARD, Activity.COMPUTE): 50 * 30 * MS,
        (Phase.BETWEEN, Activity.UNKNOWN): 50 * 10 * MS,
    }  # fmt: skip
    assert (ledger.basis[ledger.step >= 0] == Basis.RESIDUAL).all()


def test_what_a_probe_measured_is_not_divided() -> None:
    table = steady({WAITING: 40 * MS, (Phase.BETWEEN, Activity.GC): 10 * MS, **STEP})
    samples = every_step(table, {LOG: [10, 20, 45], BACK: [115, 125]})
    ledger = account(run(rank(rows(table), samples=replace(samples, gil={LOG: 150}, active={LOG: 150}))))
    found = spent(ledger, steps=range(50))
    assert found[WAITING] == 50 * 40 * MS and found[Phase.BETWEEN, Activity.GC] == 50 * 10 * MS
    assert (ledger.basis[ledger.rows(activity=Activity.WAIT_DATA)] == Basis.MEASURED).all()


def busy(table: list[dict[str, object]], cpu: float, queued: float, team: float = 0.0) -> Rank:
    """Return a rank whose thread ran for *cpu* of the time and was queued for *queued* of it."""
    made = rows(table)
    at = np.linspace(made.start_ns[0], made.end_ns[-1], 12).astype(np.int64)
    passed = at - at[0]
    return rank(
        made, gauges=gauges(at, (passed * cpu).astype(int), (passed * queued).astype(int), (passed * team).astype(int))
    )


def test_time_without_a_cpu_is_starved_in_what_could_have_run() -> None:
    found = spent(account(run(busy(steady(STEP), cpu=0.6, queued=0.2))), steps=range(50))
    assert found[Phase.FORWARD, Activity.STARVED] == pytest.approx(0.25 * 50 * 60 * MS, rel=0.03)
    assert found[Phase.FORWARD, Activity.COMPUTE] == pytest.approx(0.75 * 50 * 60 * MS, rel=0.03)


def test_a_thread_that_sleeps_is_not_starved_meanwhile() -> None:
    table = steady({F: 50 * MS, N: 50 * MS})
    made = every_step(table, {MATH: [10, 20, 30, 40], LOG: [60, 70, 80, 90]})
    sleeping = replace(made, gil={}, active=in_steps(made, (MATH, 1.0)))
    found = spent(account(run(replace(busy(table, cpu=0.25, queued=0.25), samples=sleeping))), steps=range(50))
    assert found[Phase.BETWEEN, Activity.IO] > 0.97 * 50 * 50 * MS
    assert found[Phase.FORWARD, Activity.STARVED] == pytest.approx(0.5 * 50 * 50 * MS, rel=0.02)


def test_the_schedulers_ordinary_work_is_no_starvation() -> None:
    found = spent(account(run(busy(steady(STEP), cpu=0.9, queued=0.004))))
    assert not [entry for entry in found if entry[1] == Activity.STARVED]


def test_a_starved_thread_of_the_team_starves_the_step() -> None:
    found = spent(account(run(busy(steady(STEP), cpu=1.0, queued=0.0, team=0.3))), steps=range(50))
    assert found[Phase.FORWARD, Activity.STARVED] == pytest.approx(0.3 * 50 * 60 * MS, rel=0.03)


def test_a_teachers_forwards_are_forward_and_an_evaluations_are_not() -> None:
    taught = spent(account(run(rank(rows(steady({E: 20 * MS, **STEP}))))))
    assert taught[Phase.FORWARD, Activity.COMPUTE] == 50 * 80 * MS and not any(p == Phase.EVALUATE for p, _ in taught)
    rare = [row({E: 20 * MS, **STEP}) if n % 10 == 5 else row(STEP) for n in range(50)]
    evaluated = spent(account(run(rank(rows([outside({U: MS}), *rare, outside({N: MS})])))))
    assert evaluated[Phase.EVALUATE, Activity.COMPUTE] == 5 * 20 * MS


def test_what_follows_the_last_step_is_shutdown() -> None:
    found = spent(account(run(rank(rows([outside({U: MS}), *[row(STEP)] * 5, outside({N: 9 * MS, C: 4 * MS})])))))
    assert found[Phase.SHUTDOWN, Activity.UNKNOWN] == 9 * MS
    assert found[Phase.CHECKPOINT, Activity.IO] == 4 * MS


def test_edges_that_no_one_saw_are_unknown() -> None:
    made = rank(rows([outside({U: MS}), *[row({OPT: MS})] * 5, outside({N: MS})]), before_ns=30 * MS, after_ns=70 * MS)
    found = spent(account(run(made)), steps=[-1])
    assert found[Phase.STARTUP, Activity.UNKNOWN] == 31 * MS and found[Phase.SHUTDOWN, Activity.UNKNOWN] == 71 * MS


cells = st.dictionaries(
    st.tuples(st.sampled_from(Phase), st.sampled_from(Activity)), st.integers(1, 10**10), min_size=1, max_size=6
)
stacks = st.sampled_from([MATH, LOOKUP, BACK, LOG])


@given(
    st.lists(cells, min_size=1, max_size=12), st.lists(st.tuples(st.integers(0, 10**11), stacks), max_size=20),
    st.dictionaries(stacks, st.integers(0, 30)), st.dictionaries(stacks, st.integers(0, 30)), st.floats(0, 1), st.floats(0, 1),
    st.integers(0, 10**9),
)  # fmt: skip
def test_a_rank_adds_up_to_its_wall_whatever_was_seen(
    of_steps: list, points: list, held: dict, active: dict, cpu: float, queued: float, edge: int
) -> None:
    table = [outside({U: MS}), *[row(one) for one in of_steps], outside({N: MS})]
    samples = sampled(sorted(points, key=lambda point: point[0]), held, active) if points else None
    made = replace(busy(table, cpu, queued), samples=samples, start_ns=-edge)
    ledger = account(run(made))
    assert int(ledger.ns.sum()) == made.end_ns - made.start_ns
    assert (ledger.ns > 0).all()


@given(st.integers(0, 10**18))
def test_shifting_the_clock_changes_nothing(by: int) -> None:
    table = steady(STEP)
    seen = every_step(table, ALL_MATH)
    seen = replace(seen, gil=in_steps(seen, (LOG, 1.0)), active=in_steps(seen, (MATH, 1), (BACK, 1), (LOG, 1)))
    moved = rank(rows(table, by), samples=replace(seen, at_ns=seen.at_ns + by))
    assert spent(account(run(moved))) == spent(account(run(rank(rows(table), samples=seen))))


def test_a_write_to_the_page_cache_is_input_and_output(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("total = left @ right\nfile.write(block)\n")
    writes, computes = (Place(str(script), 2, "main"),), (Place(str(script), 1, "main"),)
    table = steady({F: 60 * MS, N: 40 * MS})
    samples = every_step(table, {MATH: [10, 30, 50], writes: [70, 75], computes: [85, 90]})
    samples = replace(samples, gil={}, active=in_steps(samples, (MATH, 1), (writes, 1), (computes, 1)))
    found = spent(account(run(rank(rows(table), samples=samples))), steps=range(50))
    assert found[Phase.BETWEEN, Activity.IO] == pytest.approx(0.5 * 50 * 40 * MS, rel=0.05)
    assert found[Phase.BETWEEN, Activity.COMPUTE] == pytest.approx(0.5 * 50 * 40 * MS, rel=0.05)
