"""The page of a comparison."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unstall.accounts.compare import compare
from unstall.model.compared import Entry, Side, Told
from unstall.model.finding import Line
from unstall.model.fusion import Apart, Graph
from unstall.model.report import StepTimes
from unstall.views.compared import GRAPHS_SHOWN, UNPAIRED, render

MS = 1_000_000
LEAKY = Apart("mine.leaky.default", Line("train.py", 31, "forward", "h = leaky(h)"), 6, 600_000, 400_000)
FUSED = Graph("train.py", "Block.forward", "forward", 2, 1, 8, 3_000_000, 2_000_000, (("norm_where", 6), ("add", 1)))
HIDDEN = replace(FUSED, nodes=9, patterns=(("norm", 6), ("add", 1)), apart=(LEAKY,))
FAULT = Told("compiler/lost-fusion", "It runs outside.", "train.py:31", "h = leaky(h)", 14 * MS)
A = Side(
    "runs/a", ("train.py",), 90, 1, StepTimes(40 * MS, 45 * MS, 50 * MS), (Entry("forward · compute", 45 * MS),), (), (),
    (FUSED,), {"torch": "2.13.0"},
)  # fmt: skip
B = replace(
    A, name="b.json", step_ns=StepTimes(80 * MS, 90 * MS, 99 * MS), entries=(Entry("forward · compute", 90 * MS),),
    told=(FAULT, replace(FAULT, fault=False, a_step_ns=None)), graphs=(HIDDEN,), facts={"torch": "2.14.0"},
)  # fmt: skip


def words_of(page: str) -> str:
    return " ".join(page.split())


def test_it_says_how_much_where_who_and_which_operator_and_that_nothing_is_proved():
    page = words_of(render(compare(A, B), width=110))
    for said in (
        "A step takes 45 ms in A and 90 ms in B: B takes 2.00 times as long (medians; p10-p90 40-50 ms; 80-99 ms, which do not",
        UNPAIRED,
        "forward · compute 45 ms 90 ms +45 ms",
        "compiler/lost-fusion train.py:31 14 ms a step It runs outside.",
        "compiler/lost-fusion train.py:31 candidate, unproved",
        "mine.leaky is not fused in B at train.py:31: 6 calls to it in the graphs, 1 MB through memory h = leaky(h)",
        "Block.forward, forward (train.py): 2 kernels, 8 -> 9 operations before fusion, 3 MB moved",
        "- norm_where (6 calls) + norm (6 calls)",
        "torch: 2.13.0 -> 2.14.0",
    ):
        assert said in page


def test_turned_round_the_operator_is_one_of_the_first_run_and_its_fault_is_gone():
    page = words_of(render(compare(B, A), width=110))
    assert "B takes 0.50 times as long" in page and "mine.leaky is called apart in A only" in page
    assert "Named in A, and not in B compiler/lost-fusion" in page and "Named in B" not in page


def test_equal_runs_are_said_to_be_and_nothing_is_listed():
    page = words_of(render(compare(A, A), width=110))
    assert (
        "B takes as long" in page and "No part of the step differs by 2 % of it." in page and "1 graph is alike" in page
    )
    assert "Named" not in page and "What else differs" not in page


def test_runs_without_a_compiler_have_no_part_on_it():
    plain = replace(A, graphs=())
    assert "compiler made" not in render(compare(plain, plain))


def test_of_many_graphs_some_are_shown_and_all_where_asked():
    many = [replace(graph, function=f"Block{n}.forward") for graph in (FUSED,) for n in range(GRAPHS_SHOWN + 2)]
    found = compare(replace(A, graphs=tuple(many)), replace(B, graphs=()))
    assert "and 2 graphs more that differ" in render(found)
    assert f"Block{GRAPHS_SHOWN + 1}.forward" in render(found, verbose=True)


@pytest.mark.parametrize("width", [60, 80, 160])
def test_no_line_is_wider_than_the_page(width):
    assert max(map(len, render(compare(A, B), width=width).splitlines())) <= width
