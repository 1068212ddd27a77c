"""The contract of a cause, the part that trains: found where planted, silent where not, and taken away by its edits."""

import functools
import re

import pytest

from unstall import causes
from unstall.model.remedy import Safety
from unstall.testing.contract import (
    fitted,
    objections_after,
    objections_before,
    objections_to_edits,
    train,
    without_marks,
)
from unstall.testing.overridden import output_of

NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


def each_planted(kept=lambda planted: True):
    params = [
        pytest.param(cause, planted, id=f"{cause.id}-{n}", marks=[pytest.mark.slow, pytest.mark.planted(cause.id)])
        for cause in causes.load()
        for n, planted in enumerate(cause.planted)
        if kept(planted)
    ]
    return pytest.mark.parametrize(("cause", "planted"), params)


def by_two_of_three(judge):
    """Return what is objected to in two of three runs: the machine may be busy once, and one run is noise."""
    first = judge(0)
    if not first:
        return []
    return [*first, *again] if (again := judge(1)) else judge(2)


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """Return what trains `before` for the n-th time; each time once, for both tests that look at it."""

    @functools.cache
    def trained(source, n):
        folder = tmp_path_factory.mktemp("before")
        return train(source, folder), folder / "train.py"

    return trained


@each_planted()
def test_the_planted_fault_is_the_first_finding(cause, planted, before):
    def judge(n):
        return objections_before(cause, planted, before(planted.before, n)[0])

    assert by_two_of_three(judge) == []


@each_planted()
def test_nothing_is_found_where_the_fault_is_taken_out(cause, planted, tmp_path):
    def judge(n):
        return objections_after(cause, planted, train(planted.after, tmp_path / str(n)))

    assert by_two_of_three(judge) == []


@each_planted(lambda planted: planted.edited)
def test_its_edits_take_the_fault_away_in_the_source_and_live(cause, planted, before, tmp_path):
    remedy, script = first_remedy(cause, planted, before)
    edits = fitted(remedy, planted.after)
    assert edits, f"{cause.id} proposes no edit first; where that is meant, the case says edited=False"
    assert objections_to_edits(planted, edits, str(script)) == []
    script.write_text(without_marks(planted.before))
    live = output_of(script, edits)
    written = tmp_path / "train.py"
    written.write_text(planted.after)
    assert live == output_of(written), "the override trains otherwise than the patched script"
    assert_safe(remedy.safety, live, output_of(script))


def first_remedy(cause, planted, before):
    """Return the first remedy for the planted fault, from a run in which it was found, and the script that it names."""
    for n in range(3):
        report, script = before(planted.before, n)
        for finding, remedies in zip(report.findings, report.remedies, strict=True):
            if finding.cause == cause.id and remedies:
                return remedies[0], script
        for one in report.candidates:
            if one.cause == cause.id and one.remedies:
                return one.remedies[0], script
    pytest.fail(f"{cause.id} was found in none of three runs")


def assert_safe(safety, live, before):
    """Assert that the training under the override printed what its safety class promises beside the one without."""
    if safety is Safety.SAME_BITS:
        assert live == before
    elif safety is Safety.SAME_MATH:
        numbers = [[float(n) for n in NUMBER.findall(text)] for text in (live, before)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-2)  # rounding grows over the steps
    else:
        assert NUMBER.sub("#", live) == NUMBER.sub("#", before), "it prints the same words, with other numbers"
