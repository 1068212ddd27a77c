"""The page in the terminal, over every kind of report."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from unstall.model.finding import Calibrated, Evidence, Saving
from unstall.model.report import RankSummary, Report
from unstall.model.run import Facts, Sensor
from unstall.views import terminal
from unstall.views._glyphs import fit

WIDTHS = (60, 100, 160)
MS = 1_000_000


def flat(page: str) -> str:
    """Return the page as one line: what is asserted of words must not depend on where lines break."""
    return re.sub(r"\s+", " ", re.sub(r"\x1b\[[0-9;]*m", "", page))


def page(report: Report, width: int = 100, verbose: bool = False) -> str:
    return flat(terminal.render(report, width=width, colour=False, verbose=verbose))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_the_terminal_or_has_blanks_at_its_end(sample, width, verbose):
    text = terminal.render(sample, width=width, colour=False, verbose=verbose)
    assert text.endswith("\n")
    for line in text.splitlines():
        assert len(line) <= width, line
        assert line == line.rstrip()
        assert "\ue000" not in line


@pytest.mark.parametrize("width", WIDTHS)
def test_colour_changes_nothing_but_colour(sample, width):
    plain = terminal.render(sample, width=width, colour=False, verbose=False)
    coloured = terminal.render(sample, width=width, colour=True, verbose=False)
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    assert flat(coloured) == flat(plain)


@pytest.mark.parametrize("width", WIDTHS)
def test_an_ascii_terminal_gets_the_same_page_in_the_same_width(sample, width):
    text = fit(terminal.render(sample, width=width, colour=False, verbose=True), "ascii")
    assert text.isascii()
    assert "?" not in text
    assert max(map(len, text.splitlines())) <= width


def test_bars_of_an_ascii_terminal_are_hashes(samples):
    assert "########" in fit(terminal.render(samples["healthy"], width=80, colour=False, verbose=False), "ascii")


def test_a_terminal_of_unknown_encoding_is_taken_for_ascii():
    assert fit("█ 1 ms   ± 2 µs", "no-such-encoding") == "# 1 ms   +- 2 us"
    assert fit("a          9 ms ± 2 ms", None) == "a         9 ms +- 2 ms"
    assert fit("█", "utf-8") == "█"


@pytest.mark.parametrize("width", [0, 10, 1000])
def test_a_width_out_of_bounds_is_taken_for_the_nearest_that_works(samples, width):
    text = terminal.render(samples["starved"], width=width, colour=False, verbose=False)
    assert max(map(len, text.splitlines())) <= terminal.MOST_WIDTH


def test_the_mean_step_is_said_where_the_parts_add_up_to_another_number_than_the_median(samples):
    report = samples["starved"]
    assert " mean " not in page(report)
    few_long = replace(report, step_ns=replace(report.step_ns, median=160 * MS))
    assert "step 160 ms (p10 228 ms, p90 260 ms, mean 239 ms):" in page(few_long)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_numbers_of_the_report_stand_on_the_page(samples, width):
    said = page(samples["starved"], width)
    for number in (
        "1 process, 2 cores, no GPU",
        "212 steps in 54.3 s, 180 of them steady",
        "step 239 ms (p10 228 ms, p90 260 ms): bound by data.",
        "70 % 168 ms loading",
        "start-up 6.1 s",
        "70 % of the step, 168 ms",
        "train.py:41 loader = DataLoader(",
        "blocked on reads: 149 ms",
        "a batch: 12.4 MB",
        "saves 150-168 ms a step, 2.7-3.4x faster",
        "differs only in random draws (train.py:27 flips images)",
        "also explains host/hot-line at train.py:23",
        "4.1 % of the step, 400 ms in this run",
        "keeps every bit of the training",
        "unknown 0.6 %",
        "210 ms",
        "recorder 0.3 %",
        "other programs kept 0.1 of 2 cores busy",
        "/tmp/recordings/train-0007",
        "unstall explain data/starved-loader",
    ):
        assert number in said, number


def test_faults_are_numbered_in_their_order_and_what_is_unproved_stands_apart(samples):
    said = page(samples["starved"])
    order = ["1 data/starved-loader", "2 io/checkpoint-in-loop", "3 host/no-free-core", "unproved", "memory/pageable"]
    places = [said.index(words) for words in order]
    assert places == sorted(places)


def test_what_was_not_observed_is_said_with_its_reason(samples):
    assert "not observed: device (none here) · who holds the interpreter lock (ptrace is not permitted)" in page(
        samples["starved"]
    )


def test_reasons_of_abstaining_are_counted_and_told_on_demand(samples):
    short, long = page(samples["starved"]), page(samples["starved"], verbose=True)
    assert "abstained: 3 causes (-v says why)" in short
    assert "no compiler was at work" not in short
    assert "compiler/recompile-storm abstained: no compiler was at work" in long


def test_verbose_gives_the_source_of_evidence_and_the_edits(samples):
    long = page(samples["starved"], 160, verbose=True)
    assert "[rank 0: events FETCH[212]]" in long
    assert "edit train.py:41: torch.utils.data.DataLoader(..., num_workers=3)" in long
    assert "num_workers from 1 to 8, 3 at first" in long


def test_a_clean_bill_names_the_sensors_it_rests_on(samples):
    said = page(samples["healthy"])
    assert "No fault found by these sensors: steps, stack samples, data loaders" in said
    assert "What bounds it, no fault" in said
    assert "sampled 48 % of the step, 31 ms ± 1.4 ms" in said
    assert "unstall explain" not in said


def test_a_clean_bill_does_not_speak_for_sensors_that_were_off(samples):
    said = page(replace(samples["healthy"], missing={Sensor.MEMORY: "off"}))
    assert "nothing is claimed" in said


def test_without_sensors_nothing_is_claimed(samples):
    said = page(samples["no-step"])
    assert "No fault found" not in said
    assert "nothing can be said about faults" in said


def test_a_run_without_a_step_shows_where_its_time_went(samples):
    said = page(samples["no-step"])
    assert "no step in 54.3 s" in said
    assert "ended with exit code 1" in said
    assert "start-up █" in said
    assert "python 92 %" in said
    assert "rank 0: no optimizer was seen" in said


def test_ranks_are_shown_when_there_are_several_and_the_one_that_bounds_is_named(samples):
    said = page(samples["two-ranks"])
    assert "2 processes" in said
    assert "0 240 ms 238 ms 2 ms bounds the step" in said
    assert "1 240 ms 181 ms 59 ms" in said
    assert "bounds the step" not in page(samples["starved"])


def test_time_of_several_ranks_is_told_for_one_step_of_one_rank(samples):
    assert "70 % of the job, 168 ms" in page(samples["two-ranks"])


def test_many_ranks_are_cut_to_the_slowest_and_the_fastest(samples):
    many = tuple(RankSummary(rank, 240_000_000, (100 + rank) * 1_000_000, 1_000_000) for rank in range(64))
    report = replace(samples["two-ranks"], ranks=many)
    assert "163 ms 1 ms bounds the step" in page(report)
    assert "0 240 ms 100 ms" in page(report)
    assert "56 ranks between these" in page(report)
    assert "ranks between" not in page(report, verbose=True)


def test_the_projection_is_called_a_prediction_and_a_price_is_the_users(samples):
    said = page(samples["two-ranks"])
    assert (
        "a job of 60.0 h: predicted saving 37.2-42.1 h, 93.00-105.25 at 2.50 an hour (a prediction, no proof)" in said
    )
    assert "$" not in said
    assert "a job of 17.8 h: no saving is predicted" in page(samples["stopped"])
    assert "predicted saving up to 4.6 h" in page(samples["estimated"])


def test_without_a_job_the_way_to_a_projection_is_told_where_there_is_something_to_save(samples):
    assert "unstall diagnose /tmp/recordings/train-0007 --job-hours H" in page(samples["starved"])
    assert "--job-hours" not in page(samples["healthy"])


def test_our_own_stop_is_said(samples):
    said = page(samples["stopped"])
    assert "Stopped by unstall: 100 steady steps were measured, as asked (--steps 100)." in said


def test_faults_of_start_up_stand_apart_and_the_steps_get_their_own_verdict(samples):
    said = page(samples["start-up"])
    assert "No fault found in the steps by these sensors" in said
    assert "Start-up, once a run 1 compiler/recompile-storm 41.3 s once a run" in said
    assert "set by TrainingArguments.torch_compile" in said


def test_an_estimate_is_called_one_and_safety_is_said_in_plain_words(samples):
    said = page(samples["estimated"])
    assert "estimated 62 % of the job, 40 ms" in said
    assert "environment variable OMP_NUM_THREADS" in said
    assert "saves up to 30 ms a step, up to 1.88x faster · differs only in rounding" in said
    assert "Train in bfloat16 (by hand) changes the training" in said


@pytest.mark.parametrize("family", ["data", "compiler"])
def test_calibrated_bounds_are_shown_and_what_they_rest_on(samples, family):
    plain = samples["starved"]
    first, *others = plain.findings
    saving = Saving(110 * MS, 178 * MS, "arithmetic", Calibrated(0.9, 17, family, 150 * MS, 168 * MS))
    report = replace(plain, findings=(replace(first, saving=saving), *others))
    short, long = page(report), page(report, verbose=True)
    assert "predicted: saves 110-178 ms a step, 1.85-3.9x faster" in short
    assert "predictions: 90 % of planted trainings lie within" in short
    assert "by arithmetic alone" not in short
    which = f"17 planted trainings of {family} causes"
    assert f"90 % of {which} lie within; by arithmetic alone: saves 150-168 ms a step, 2.7-3.4x faster" in long


def test_bounds_that_are_not_calibrated_claim_no_coverage(samples):
    assert "lie within" not in page(samples["starved"], verbose=True)


@pytest.mark.parametrize(
    ("reason", "said", "unsaid"),
    [("none here", "no GPU", "GPU seen"), ("not supported yet", "not observed: device (not supported yet)", "no GPU")],
)
def test_that_there_is_no_gpu_is_said_only_where_it_is_known(samples, reason, said, unsaid):
    text = page(replace(samples["starved"], missing={Sensor.DEVICE: reason}, facts=Facts()))
    assert said in text
    assert unsaid not in text
    assert "cores, " not in text


def test_what_looks_like_markup_is_shown_as_it_is(samples):
    finding = samples["starved"].findings[0]
    odd = replace(finding, title="x[bold]y[/bold] :smile:", evidence=(Evidence("[red]z", 1, "count"),))
    said = page(replace(samples["starved"], findings=(odd,), remedies=((),)))
    assert "x[bold]y[/bold] :smile:" in said
    assert "[red]z: 1" in said


def test_a_run_whose_faults_an_edit_can_mend_says_how_to_prove_it(samples):
    said = "prove it, and get the patch: unstall fix train.py"
    assert said in terminal.render(samples["starved"])
    assert said not in terminal.render(samples["healthy"])  # no fault
    assert said not in terminal.render(samples["start-up"])  # a fault that no edit mends
    assert "unstall fix" not in terminal.render(samples["traces"])
