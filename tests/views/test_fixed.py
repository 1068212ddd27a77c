"""The page of a fix: every kind of end, in every width, and nothing said that was not proved."""

import re
from dataclasses import replace

import pytest
from fixes import (
    ALLOWED,
    BOUNDED,
    BROKEN,
    DIFFERENT,
    EVERYTHING,
    FIXES,
    INTERRUPTED,
    KEPT,
    MINUTE,
    NO_EFFECT,
    NOTHING,
    NOTHING_PROVED,
    ONE_KEPT,
    OUT_OF_TIME,
    TRAINING_FAILED,
    WORKERS,
)
from hypothesis import given
from hypothesis import strategies as st

from unstall.model.remedy import Knob
from unstall.model.trial import Hours, Verdict
from unstall.views import _proofs, fixed
from unstall.views._glyphs import fit


def page(one, width=100, **more):
    return fixed.render(one, width=width, **more)


def flat(one, **more):
    """Return the page as one line, so that where lines are broken does not matter."""
    return " ".join(page(one, **more).split())


@pytest.mark.parametrize("name", FIXES)
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_the_page_and_none_ends_in_blanks(name, verbose):
    for width in (60, 80, 110, 160):
        for line in page(FIXES[name], width, verbose=verbose).splitlines():
            assert len(line) <= width
            assert line == line.rstrip()


@pytest.mark.parametrize("name", FIXES)
def test_colour_changes_no_word(name):
    coloured = page(FIXES[name], colour=True)
    assert "\x1b[" in coloured
    assert "\x1b[" not in page(FIXES[name])
    plain = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert [line.rstrip() for line in plain.splitlines()] == page(FIXES[name]).splitlines()


@pytest.mark.parametrize("name", FIXES)
def test_a_terminal_without_its_characters_gets_as_long_lines(name):
    plain = fit(page(FIXES[name]), "ascii")
    assert plain.isascii()
    assert [len(line) for line in plain.splitlines()] == [len(line) for line in page(FIXES[name]).splitlines()]


def test_a_row_holds_ratio_interval_pairs_and_verdict_one_below_the_other():
    lines = page(ONE_KEPT, 80).splitlines()
    rows = [line for line in lines if re.search(r"\d\.\d\dx +\d\.\d\d-\d\.\d\d +\d+  \w", line)]
    assert [row.split()[-1] for row in rows] == ["kept", "undone", "effect"]
    assert len({row.index("x  ") for row in rows}) == 1
    assert rows[0].split() == ["num_workers=3", "3.05x", "2.91-3.20", "8", "faster,", "kept"]


def test_the_value_that_was_chosen_stands_in_the_title_not_the_one_that_was_predicted():
    assert WORKERS.title == "num_workers=4"
    assert _proofs.title_of(WORKERS) == "num_workers=3"
    assert _proofs.title_of(replace(WORKERS, title="4 threads, 4 in all")) == "4 threads, 4 in all (num_workers=3)"
    assert _proofs.title_of(replace(WORKERS, title="0.4 s less")) == "0.4 s less (num_workers=3)"
    assert _proofs.title_of(replace(WORKERS, title="num_workers=3")) == "num_workers=3"
    assert _proofs.title_of(replace(WORKERS, knobs=(Knob("num_workers", 3, 1, 8),), title="more")) == "more"


def test_what_stayed_equal_is_said_of_what_is_kept_and_of_the_rest_with_verbose():
    equal = "trained the same: gradients of 3 steps"
    assert "trained the same: 240 losses lie within the band" in flat(ONE_KEPT)
    assert equal not in flat(ONE_KEPT)
    assert flat(ONE_KEPT, verbose=True).count(equal) == 2


def test_a_training_that_came_out_different_is_never_called_the_same():
    said = flat(replace(NOTHING_PROVED, proofs=(DIFFERENT,)))
    assert "did not train the same: loss 0.412" in said
    assert " trained the same" not in said
    assert "faster, kept" not in said


def test_a_remedy_that_changes_the_training_says_so():
    said = flat(replace(ONE_KEPT, proofs=(ALLOWED,), kept=(ALLOWED.remedy,)))
    assert "changes the training, as you allowed: mean loss" in said
    assert " trained the same" not in said


def test_a_proof_that_was_taken_back_is_not_called_kept():
    said = flat(replace(EVERYTHING, kept=(ALLOWED.remedy,)))
    assert "3.05x 2.91-3.20 8 faster, not kept" in said


def test_the_whole_is_said_to_be_of_fresh_pairs_only_where_it_is():
    assert "3.05x faster a step (95 % interval 2.91-3.20, 8 pairs)" in flat(ONE_KEPT)
    assert "8 fresh pairs of the original against all that is kept" in flat(EVERYTHING)
    assert "2 remedies proved and kept; all of them together were not measured" in flat(replace(EVERYTHING, total=None))


def test_a_failed_remedy_shows_the_last_lines_of_its_error():
    said = page(BROKEN, 80)
    assert "killed by signal: Bus error. It is possible that" in " ".join(said.split())
    assert "line 4, in main" not in said and "line 5, in main" in said
    assert "6 lines before these" in said
    assert "line 0, in main" in page(BROKEN, 80, verbose=True)


def test_nothing_worth_a_trial_says_why_and_names_no_patch():
    said = flat(NOTHING)
    assert "Nothing here is worth a trial. step 239 ms, bound by data. Fetch takes 70% of the step." in said
    assert "0.4 % of the step is less than what two equal runs differ by" in said
    assert "patch" not in said and "ratio:" not in said


def test_nothing_proved_is_said_as_plainly_as_a_gain():
    said = flat(NOTHING_PROVED)
    assert "Nothing is proved faster: 4 remedies were tried, and none is kept." in said
    assert "No patch is written, and no file of yours is changed." in said
    assert "git apply" not in said


def test_an_interrupted_fix_keeps_what_is_proved_and_says_how_to_go_on():
    said = flat(INTERRUPTED)
    assert "Ended early by Ctrl-C" in said
    assert "1 remedy proved and kept" in said
    assert "git apply unstall.patch" in said
    assert "unstall fix --resume /tmp/unstall/fix-1" in said
    assert "Nothing here is worth a trial" not in flat(OUT_OF_TIME)


def test_a_training_that_fails_by_itself_is_said_so():
    said = flat(TRAINING_FAILED)
    assert "The training failed by itself, with exit code 1: nothing was tried. | Traceback" in said
    assert said.count("ValueError: no such data set") == 1
    assert "Nothing here is worth a trial" not in said


def test_hours_and_money_are_net_of_the_trials_and_only_where_known():
    said = flat(ONE_KEPT)
    assert "60.0 h → 20.0 h (19.1-20.9): saves 40.0 h, 100.00 at 2.50 an hour" in said
    assert "less the 11 min that this took: 39.8 h, 99.54" in said
    unpaid = replace(ONE_KEPT, hours=Hours(60.0, 20.0, 19.1, 20.9))
    assert "saves 40.0 h; less the 11 min that this took: 39.8 h" in flat(unpaid)
    assert "--job-hours" in flat(replace(ONE_KEPT, hours=None))
    assert "a job of" not in flat(replace(NOTHING_PROVED, hours=Hours(60.0, 60.0, 60.0, 60.0)))


def test_the_command_that_applies_the_patch_is_the_one_that_was_given():
    assert "unstall.patch: 1 change in train.py apply it with: git apply unstall.patch" in flat(ONE_KEPT)
    below = replace(ONE_KEPT, apply_with="git -C /top apply /top/sub/unstall.patch")
    assert "apply it with: git -C /top apply /top/sub/unstall.patch" in flat(below)
    assert "which is applied already" in flat(EVERYTHING) and "apply it with" not in flat(EVERYTHING)


def test_a_command_to_copy_is_never_broken():
    folder = "/var/lib/a/rather/long/folder/for/what/is/kept/of/trials/20260102-030405-train.py-4242"
    command = f"unstall fix --resume {folder}"
    assert any(line.endswith(command) for line in page(replace(INTERRUPTED, folder=folder), 60).splitlines())


def test_environment_variables_can_be_pasted_into_a_shell():
    assert "export OMP_NUM_THREADS=2" in flat(EVERYTHING)
    assert "export A='b c'" in flat(EVERYTHING)
    assert "export" not in flat(ONE_KEPT)


def test_advice_is_said_once_and_apart_from_what_was_not_tried():
    said = flat(ONE_KEPT)
    assert said.count("Save once an epoch") == 1
    by_hand, _, rest = said.partition("Not tried")
    assert "To be done by hand, unproved → Save once an epoch io/checkpoint-in-loop · train.py:118 · 4.1 %" in by_hand
    assert "train in float32" in rest


def test_trials_left_out_are_counted():
    assert "2 trials of 53 left out: the machine was disturbed" in flat(ONE_KEPT)
    disturbed = flat(replace(OUT_OF_TIME, discarded=3))
    assert "3 trials of 3 left out: the machine was disturbed" in disturbed and "ratio" not in disturbed
    assert "no trial came to a verdict" in flat(OUT_OF_TIME)
    assert "left out" not in flat(replace(ONE_KEPT, discarded=0, proofs=(NO_EFFECT,)))


def test_how_the_values_did_is_said_with_verbose():
    assert "tried 2, 3, 4 ·" in flat(ONE_KEPT)
    assert "tried 2 (1.90x), 3 (3.01x), 4 (2.98x)" in flat(ONE_KEPT, verbose=True)


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.FASTER])
def test_no_verdict_but_faster_is_ever_kept(verdict):
    assert "kept" not in _proofs.verdict_of(verdict, kept=False)
    assert len(_proofs.verdict_of(verdict, kept=False)) <= 19


def test_no_proof_lacks_its_row():
    assert flat(EVERYTHING).count("environment variable OMP_NUM_THREADS") == 2
    assert KEPT.cause in flat(EVERYTHING)


@given(st.integers(0, 10**16))
def test_a_span_reads_as_a_time_that_rounds_to_it(ns):
    number, unit = fixed.span(ns).replace("\ue000", " ").split()
    size = {"ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": MINUTE, "h": 60 * MINUTE}[unit]
    assert abs(float(number) * size - ns) <= max(0.06 * size, 0.006 * ns, MINUTE / 2 if unit == "min" else 0)


def test_what_a_layer_can_give_at_most_is_said_with_its_interval_alone_and_with_the_others_removed():
    said = flat(BOUNDED, width=140)
    assert "The most any fix of a layer can give" in said
    assert (
        "input: 3.38x (95 % interval 3.21-3.57, 4 pairs); with the others removed 3.46x (95 % interval 3.30-3.62"
        in said
    )
    assert "compile: 0.52x (95 % interval 0.50-0.54, 3 pairs) when nothing is compiled." in said


def test_a_bound_that_cannot_be_told_says_why_and_shows_no_ratio():
    said = flat(replace(BOUNDED, bounds=BOUNDED.bounds[1:2]), width=140)
    assert "checkpoint: cannot be told when torch.save, safetensors" in said
    assert "no checkpoint was written within the 79 steps of a trial" in said
    assert "x (95" not in said.partition("The most any fix")[2]


def test_trials_of_bounds_alone_are_not_said_to_have_come_to_no_verdict():
    assert "no trial came to a verdict" not in flat(replace(OUT_OF_TIME, bounds=BOUNDED.bounds))
    assert "no trial came to a verdict" in flat(OUT_OF_TIME)


def test_without_bounds_the_page_has_no_word_of_them():
    assert "The most any fix" not in flat(ONE_KEPT)
