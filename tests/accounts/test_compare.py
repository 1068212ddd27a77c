"""What is said to differ between two runs, and what is said to be the same."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from unstall.accounts.compare import compare
from unstall.model.compared import Entry, Row, Side, Told
from unstall.model.finding import Line
from unstall.model.fusion import Apart, Graph
from unstall.model.report import StepTimes

MS = 1_000_000
LEAKY = Apart("mine.leaky.default", Line("train.py", 31, "forward", "h = leaky(h)"), 6, 600, 400)
FUSED = Graph("train.py", "Block.forward", "forward", 2, 1, 8, 3_000, 2_000, (("norm_where", 1), ("add_mul", 1)))
HIDDEN = replace(FUSED, nodes=9, moved=3_500, patterns=(("norm", 1), ("add_mul", 1)), apart=(LEAKY,))
STARVED = Told("data/starved-loader", "Waits.", "train.py:41", "loader = DataLoader(d)", 70 * MS)


def a_side(*entries: tuple[str, int], median: int = 100, name: str = "a", **known: object) -> Side:
    step = StepTimes(median * MS * 9 // 10, median * MS, median * MS * 11 // 10)
    side = Side(name, ("train.py",), 90, 1, step, tuple(Entry(n, ms * MS) for n, ms in entries), (), (), (), {})
    return replace(side, **known)  # type: ignore[arg-type]


def test_a_run_and_itself_differ_in_nothing():
    one = a_side(("forward · compute", 60), told=(STARVED,), graphs=(FUSED, HIDDEN, FUSED), facts={"torch": "2.13.0"})
    found = compare(one, one)
    assert found.ratio == 1.0 and not found.apart and found.same_graphs == 3
    assert not (found.rows or found.outside or found.appeared or found.gone or found.graphs or found.operators)
    assert not (found.differing or found.notes) and all(row.a == row.b for row in found.fusion)


def test_the_ratio_is_that_of_the_second_run_to_the_first_and_ranges_that_meet_are_not_apart():
    assert compare(a_side(median=100), a_side(median=150)).ratio == 1.5
    assert compare(a_side(median=100), a_side(median=150)).apart
    assert not compare(a_side(median=100), a_side(median=110)).apart
    without = compare(a_side(), a_side(step_ns=None, name="b"))
    assert without.ratio is None and without.notes == (
        "b: no steady step was seen, so there is no step time to compare",
    )


def test_entries_that_moved_by_two_per_cent_of_the_step_are_told_the_most_moved_first():
    a = a_side(("forward · compute", 50), ("backward · compute", 40), ("optimizer · compute", 10))
    b = a_side(("forward · compute", 51), ("backward · compute", 60), ("forward · guards", 5))
    assert compare(a, b).rows == (
        Row("backward · compute", 40 * MS, 60 * MS),
        Row("optimizer · compute", 10 * MS, None),
        Row("forward · guards", None, 5 * MS),
    )


def test_outside_the_steps_a_second_that_is_a_fifth_is_told_and_either_alone_is_not():
    def told(a_ms: int, b_ms: int) -> bool:
        one, other = (a_side(outside=(Entry("start-up", ms * MS),)) for ms in (a_ms, b_ms))
        return bool(compare(one, other).outside)

    assert told(4_000, 6_000) and told(6_000, 4_000)
    assert not told(100, 900)
    assert not told(20_000, 22_000)


def test_a_fault_is_the_same_where_its_line_moved_or_its_text_was_edited_and_another_where_there_are_two():
    moved = replace(STARVED, place="train.py:44", title="Waits longer.")
    edited = replace(moved, code="loader = DataLoader(d, 64)")
    for other in (moved, edited):
        found = compare(a_side(told=(STARVED,)), a_side(told=(other,)))
        assert not found.appeared and not found.gone
    found = compare(a_side(told=(STARVED,)), a_side(told=(edited, moved)))
    assert found.appeared == (edited,) and not found.gone


def test_a_candidate_that_became_a_fault_has_appeared_and_the_candidate_is_gone():
    candidate = replace(STARVED, fault=False, a_step_ns=None)
    found = compare(a_side(told=(candidate,)), a_side(told=(STARVED,)))
    assert found.appeared == (STARVED,) and found.gone == (candidate,)


def test_an_operator_that_stopped_fusing_is_named_with_its_line_and_the_kernels_that_it_was_in():
    found = compare(a_side(graphs=(FUSED,)), a_side(graphs=(HIDDEN,)))
    (operator,) = found.operators
    assert (operator.operator, operator.stopped, operator.calls, operator.nbytes) == ("mine.leaky", True, 6, 1_000)
    assert operator.place == "train.py:31" and operator.code == "h = leaky(h)"
    (graph,) = found.graphs
    assert graph.kernels_gone == (("norm_where", 1),) and graph.kernels_new == (("norm", 1),)
    assert (
        Row("calls left to other code", 0, 6) in found.fusion
        and Row("bytes that kernels move", 3_000, 3_500) in found.fusion
    )
    (back,) = compare(a_side(graphs=(HIDDEN,)), a_side(graphs=(FUSED,))).operators
    assert not back.stopped


def test_an_operator_that_both_leave_is_told_only_by_what_is_more():
    twice = replace(HIDDEN, apart=(replace(LEAKY, calls=8),))
    assert not compare(a_side(graphs=(HIDDEN,)), a_side(graphs=(HIDDEN,))).operators
    assert [one.calls for one in compare(a_side(graphs=(HIDDEN,)), a_side(graphs=(twice,))).operators] == [2]


def test_graphs_are_joined_in_order_by_function_and_pass_whatever_the_file_is_called():
    backward = replace(FUSED, kind="backward")
    renamed = replace(FUSED, file="other.py")
    assert compare(a_side(graphs=(FUSED, backward)), a_side(graphs=(backward, renamed))).same_graphs == 2
    alone = compare(a_side(graphs=(FUSED, backward)), a_side(graphs=(FUSED,)))
    assert [(one.a, one.b) for one in alone.graphs] == [(backward, None)]
    other = compare(a_side(graphs=(FUSED,)), a_side(graphs=(replace(FUSED, function="Head.forward"),)))
    assert sorted((one.a is None, one.b is None) for one in other.graphs) == [(False, True), (True, False)]


def test_where_one_report_tells_no_graphs_fusion_is_not_compared_and_it_is_said():
    found = compare(a_side(graphs=(HIDDEN,)), a_side(graphs=None, name="old.json"))
    assert not found.fusion and not found.graphs and not found.operators
    assert found.notes[0].startswith("old.json: ")


def test_settings_and_versions_that_differ_are_told_and_what_an_older_report_does_not_tell_is_not():
    a = a_side(facts={"torch": "2.13.0", "env.OMP_NUM_THREADS": "2", "machine.load1": 0.1})
    b = a_side(facts={"torch": "2.10.0", "machine.load1": 3.0})
    assert compare(a, b).differing == (("OMP_NUM_THREADS", "2", ""), ("torch", "2.13.0", "2.10.0"))
    assert compare(a_side(), a_side(facts={"torch": "2.10.0"})).differing == ()


def test_where_no_core_was_free_it_is_said_and_the_time_without_that_is_compared():
    busy = a_side(
        ("forward · compute", 50), ("forward · starved of CPU", 50), starved=0.5, name="b", others_busy="busy"
    )
    free = a_side(("forward · compute", 25))
    found = compare(free, busy)
    assert found.free_ratio == 2.0 and found.notes == ("b: for 50% of the step no core was free: busy",)
    assert compare(free, free).free_ratio is None


graphs = st.lists(
    st.sampled_from([FUSED, HIDDEN, replace(FUSED, kind="backward"), replace(HIDDEN, file="b.py")]), max_size=6
)


@given(graphs, graphs)
def test_every_graph_of_both_runs_is_counted_once_and_turning_the_runs_round_turns_the_result(one, other):
    found, back = (compare(a_side(graphs=tuple(x)), a_side(graphs=tuple(y))) for x, y in ((one, other), (other, one)))
    only_a = sum(pair.b is None for pair in found.graphs)
    only_b = sum(pair.a is None for pair in found.graphs)
    both = found.same_graphs + len(found.graphs) - only_a - only_b
    assert both + only_a == len(one) and both + only_b == len(other)
    assert [(row.b, row.a) for row in back.fusion] == [(row.a, row.b) for row in found.fusion]
    assert {(o.operator, o.calls, not o.stopped) for o in back.operators} == {
        (o.operator, o.calls, o.stopped) for o in found.operators
    }
