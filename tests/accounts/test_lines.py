"""Lines of the user's code with ledger time on them."""

from __future__ import annotations

from collections import Counter

import pytest
from made import MS, N, Stack, U, outside, rank, row, rows, run, sampled

from unstall.model.run import Place, Rank
from unstall.model.tables import HotLine
from unstall.model.wire import Activity, Phase
from unstall.pipeline import account

SITE = "/venv/lib/python3.11/site-packages/"
MAIN = Place("/home/me/train.py", 30, "main")
LOG = (MAIN, Place("/home/me/log.py", 9, "log"))
DUMP = (
    *LOG,
    Place("/usr/lib/python3.11/json/__init__.py", 179, "dump"),
    Place("/usr/lib/python3.11/json/encoder.py", 432, "_iterencode"),
)
OURS = (
    *LOG,
    Place("/home/me/unstall/probes/_around.py", 32, "observed"),
    Place(SITE + "torch/serialization.py", 943, "save"),
)
LIBRARY = (Place(SITE + "lightning/loop.py", 5, "run"), Place(SITE + "torch/x.py", 7, "f"))
STEPS = 40


def made(seen: dict[Stack, int], held: dict[Stack, int] | None = None, active: dict[Stack, int] | None = None) -> Rank:
    """Return a rank of 100 ms steps, all BETWEEN, in which each stack is seen so often a step."""
    table = rows([outside({U: 1000 * MS}), *[row({N: 100 * MS})] * STEPS, outside({N: MS})])
    each = [stack for stack, times in seen.items() for _ in range(times)]
    points = [
        (int(start) + (n + 1) * 100 * MS // (len(each) + 1), stack)
        for start in table.start_ns[1:-1]
        for n, stack in enumerate(each)
    ]
    return rank(table, samples=sampled(points, held or {}, active or {}))


def hot(*ranks: Rank) -> tuple[HotLine, ...]:
    return account(run(*ranks))[1].lines


def test_lines_of_a_phase_take_at_most_the_phase() -> None:
    found = hot(made({(MAIN,): 2, DUMP: 3, LIBRARY: 1}))
    assert sum(line.spent_ns for line in found) <= (STEPS - 1) * 100 * MS
    assert [(line.line.line, line.spent_ns) for line in found] == [
        (9, pytest.approx(3 / 6 * 39 * 100 * MS, abs=2)), (30, pytest.approx(2 / 6 * 39 * 100 * MS, abs=2)),
    ]  # fmt: skip


def test_time_in_a_library_alone_is_on_no_users_line() -> None:
    assert hot(made({LIBRARY: 3})) == ()


def test_the_parts_of_a_line_sum_to_it() -> None:
    for line in hot(made({DUMP: 2, (MAIN,): 2}, {DUMP: 80}, {DUMP: 80, (MAIN,): 30})):
        assert sum(ns for _, ns in line.parts) == line.spent_ns


def test_a_line_knows_what_it_calls_and_who_led_to_it() -> None:
    (line,) = hot(made({DUMP: 2}, {DUMP: 80}, {DUMP: 80}))
    assert line.callee == "json.dump" and line.callees == (("json.dump", 1.0),)
    assert line.library.endswith("json/encoder.py")
    assert [(place.file, place.line) for place in line.chain] == [("/home/me/train.py", 30), ("/home/me/log.py", 9)]
    assert line.part_ns(Activity.PYTHON) > 0.99 * line.spent_ns


def test_a_line_that_is_itself_the_leaf_calls_nothing() -> None:
    (line,) = hot(made({LOG: 2}))
    assert line.callee == "" and line.callees == ()


def test_our_own_frames_are_not_what_a_line_calls() -> None:
    assert {line.callee for line in hot(made({OURS: 2}))} <= {"torch.serialization.save"}


def test_two_ranks_add_up() -> None:
    one, other = made({LOG: 2}), made({LOG: 2})
    (line,) = hot(one, other)
    assert line.spent_ns == 2 * hot(one)[0].spent_ns and line.samples == 2 * hot(one)[0].samples


def test_the_error_shrinks_with_more_samples() -> None:
    few, many = hot(made({LOG: 1, (MAIN,): 1})), hot(made({LOG: 4, (MAIN,): 4}))
    assert few[0].error_ns == pytest.approx(2 * many[0].error_ns, rel=0.05)


def test_samples_outside_the_steady_steps_count_apart() -> None:
    tables = account(run(made({LOG: 2})))[1]
    phases = Counter(line.phase for line in tables.outside_lines)
    assert phases == {Phase.BETWEEN: 1}  # the first step, which is warm-up
    assert tables.outside_lines[0].spent_ns < tables.lines[0].spent_ns


def test_code_that_the_compiler_wrote_is_told_in_words_and_not_by_its_temporary_file() -> None:
    within = (MAIN, Place(SITE + "torch/_dynamo/eval_frame.py", 5, "compile_wrapper"))
    (written,) = hot(made({(*within, Place("/tmp/torchinductor_me/ab/cab.py", 90, "call")): 3}))
    (plain,) = hot(made({within: 3}))
    assert written.library == "code that torch.compile wrote"
    assert plain.library == SITE + "torch/_dynamo/eval_frame.py"
