"""A bound is what a free layer gives: of a made-up bench, whose layers run one after the other or at once."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from unstall import pipeline
from unstall.model.finding import Basis, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Phase
from unstall.model.report import Job, Report, Share
from unstall.model.run import Facts
from unstall.model.trial import Captured, Trial
from unstall.pipeline import fix as fixing
from unstall.pipeline._asked import BY_USER, FixOptions
from unstall.pipeline.bounds import UNCOMPILED, Bounding, compiles, layers_of
from unstall.pipeline.fix import Fix
from unstall.pipeline.proving import Clock, Prover
from unstall.pipeline.trial import NEEDED, Ask, Interrupted

MS = 1_000_000
OPTIONS = FixOptions(("train.py",), budget_s=1e6, bounds=True)


def report(**phases):
    """Return a report of a 100-step run whose step takes *phases*, ms each."""
    whole = sum(phases.values())
    parts = tuple(Share(name, ms * MS, ms / whole) for name, ms in phases.items())
    return Report(("train.py",), 0, True, "", 10**10, (10**10,), 100, 95, 5, None, parts, (), "", 0.0, 0, 0.0, "",
                  (), (), (), (), (), (), (), {}, Facts({}), Job(), None, None)  # fmt: skip


def one_after_the_other(gone):
    """Fetch 20, checkpoint 10, the rest 10 ms."""
    return 10 + (0 if "input" in gone else 20) + (0 if "checkpoint" in gone else 10) + (30 if "compile" in gone else 0)


def at_once(gone):
    """The rest runs beside whichever of the two takes longer, 20 ms each."""
    return 10 + max(0 if "input" in gone else 20, 0 if "checkpoint" in gone else 20)


@dataclass
class Planned:
    """A bench whose step takes ``step_ms(layers taken away)`` with a little noise."""

    step_ms: object = one_after_the_other
    captured: Captured = field(default_factory=lambda: Captured(np.zeros(0), epochs=2))
    untouched: tuple = ()
    errors: dict = field(default_factory=dict)
    disturbed: str = ""
    stop_at: int = 10**9
    wall_s: float = 1.0
    asks: list = field(default_factory=list)
    patience_s: float = 400.0
    waited_s: float = 0.0
    most_waited_s: float = 0.0

    def make(self, ask):
        self.asks.append(ask)
        self.waited_s += min(self.most_waited_s, self.patience_s - self.waited_s)
        if len(self.asks) >= self.stop_at:
            raise Interrupted
        gone = {name.partition("-")[0] for name in ask.ablate} | ({"compile"} if UNCOMPILED in ask.edits else set())
        if error := self.errors.get(frozenset(gone)):
            return Trial(np.zeros(0, np.int64), 0, False, Captured(np.zeros(0)), error=error)
        draw = np.random.default_rng(len(self.asks))
        ends = 10**9 + np.cumsum(self.step_ms(gone) * MS * np.exp(draw.normal(0, 0.01, 80))).astype(np.int64)
        kept = replace(
            self.captured, ablated={name: 0 if name in self.untouched else 79 for name in gone - {"compile"}}
        )
        return Trial(ends, int(self.wall_s * 1e9), True, kept, disturbed=self.disturbed)


def measured(bench, of, options=OPTIONS, compiled=False):
    """Return the bounds by layer, what is noted, and the arms that were made."""
    bounding = Bounding(bench, options, Clock(options.budget_s), of, compiled)
    bounding.go()
    return {bound.layer: bound for bound in bounding.bounds()}, list(bounding.notes())


BOTH = report(fetch=20, forward=10, checkpoint=10)


def test_logging_is_a_layer_where_what_it_writes_takes_part_of_the_step():
    talks = Share("between", 10 * MS, 0.25, (Share("input/output", 8 * MS, 0.2), Share("python", 2 * MS, 0.05)))
    loud = replace(BOTH, step_parts=(*BOTH.step_parts, talks))
    assert [layer.name for layer in layers_of(loud, False)] == ["input", "checkpoint", "logging"]
    bounds, _ = measured(Planned(lambda gone: 10 if "logging" in gone else 18), replace(loud, step_parts=(talks,)))
    near(bounds["logging"].alone, 18 / 10)
    silent, _ = measured(Planned(lambda _: 18, untouched=("logging",)), replace(loud, step_parts=(talks,)))
    assert "nothing was said" in silent["logging"].because


def test_waiting_for_other_ranks_is_a_layer_where_one_can_be_started_alone():
    waits = Share("backward", 20 * MS, 0.5, (Share("collectives", 16 * MS, 0.4),))
    several = replace(BOTH, step_parts=(waits,), command=("torchrun", "--nproc-per-node", "2", "train.py"))
    bench = Planned(lambda _: 20)
    bounds, _ = measured(bench, several)
    near(bounds["ranks"].alone, 1.0)
    assert {(ask.alone, ask.ablate) for ask in bench.asks} == {(False, ()), (True, ())}
    assert layers_of(replace(several, command=("train.py",)), False) == ()


def near(ratio, value):
    assert ratio is not None and ratio.value == pytest.approx(value, rel=0.02)  # 80 steps with noise of 1 %
    assert ratio.low <= ratio.value <= ratio.high and ratio.pairs >= 3


def test_a_layer_is_taken_from_the_run_as_it_is_and_from_the_run_without_the_others():
    bounds, notes = measured(Planned(), BOTH)
    near(bounds["input"].alone, 40 / 20)
    near(bounds["input"].others_removed, 30 / 10)
    near(bounds["checkpoint"].alone, 40 / 30)
    near(bounds["checkpoint"].others_removed, 20 / 10)
    assert [bound.because for bound in bounds.values()] == ["", ""] and not notes


def test_two_layers_that_run_at_once_give_nothing_alone_and_all_together():
    bounds, _ = measured(Planned(at_once), BOTH)
    for bound in bounds.values():
        near(bound.alone, 1.0)
        near(bound.others_removed, 30 / 10)


def test_a_layer_by_itself_has_no_others():
    bench = Planned()
    bounds, _ = measured(bench, report(fetch=20, forward=20))
    near(bounds["input"].alone, 2.0)
    assert list(bounds) == ["input"] and bounds["input"].others_removed is None
    assert {ask.ablate for ask in bench.asks} == {(), ("input",)}


@pytest.mark.parametrize(("fetch", "layers"), [(3, ["input"]), (1, [])])
def test_only_what_takes_two_percent_of_the_step_is_measured(fetch, layers):
    bench = Planned()
    bounds, notes = measured(bench, report(fetch=fetch, forward=100 - fetch))
    assert list(bounds) == layers and bool(bench.asks) == bool(layers)
    assert bool(notes) == (not layers)


@pytest.mark.parametrize(("compiled", "layers"), [(True, ["compile"]), (False, [])])
def test_what_compiling_gives_is_measured_only_where_something_is_compiled(compiled, layers):
    bounds, _ = measured(Planned(), report(forward=30, backward=10), compiled=compiled)
    assert list(bounds) == layers
    if layers:
        near(bounds["compile"].alone, 40 / 70)  # below 1: compiling pays


def test_a_bound_beside_the_compilers_is_of_the_run_as_it_is_compiled():
    bounds, _ = measured(Planned(), report(fetch=20, forward=20), compiled=True)
    assert bounds["input"].others_removed is None
    near(bounds["compile"].others_removed, 20 / 50)


COMPILED = """
import torch
model = torch.compile(torch.nn.Linear(4, 2), backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("switch", "compiled"), [("0", True), ("1", False)])
def test_whether_something_is_compiled_is_told_from_the_recording(tmp_path, monkeypatch, switch, compiled):
    (tmp_path / "train.py").write_text(COMPILED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", switch)
    recorded = pipeline.run(["train.py"], pipeline.RunOptions(("train.py",), out=tmp_path / "recording"))
    assert recorded.steps and compiles(recorded) is compiled


def test_where_nothing_could_be_taken_away_no_ratio_is_told():
    bench = Planned(untouched=("input",))
    bounds, _ = measured(bench, BOTH)
    assert bounds["input"].alone is None and "what makes the batches" in bounds["input"].because
    near(bounds["checkpoint"].alone, 40 / 30)
    assert sum("input" in ask.ablate for ask in bench.asks) <= 2  # no more once it was seen


def test_a_run_that_breaks_without_a_layer_says_so_and_the_others_are_told():
    bench = Planned(errors={frozenset({"checkpoint"}): "it ended with exit code 1\nEOFError: Ran out of input"})
    bounds, _ = measured(bench, BOTH)
    assert bounds["checkpoint"].alone is None and "EOFError: Ran out of input" in bounds["checkpoint"].because
    near(bounds["input"].alone, 2.0)


def test_a_run_that_breaks_without_both_is_told_of_each_alone():
    bench = Planned(errors={frozenset({"checkpoint", "input"}): "it ended with exit code 1\nValueError"})
    bounds, _ = measured(bench, BOTH)
    near(bounds["input"].alone, 2.0)
    assert bounds["input"].others_removed is None
    assert "the run without checkpoint and input failed" in bounds["input"].because


def test_a_run_that_fails_as_it_is_has_no_bounds_and_costs_one_trial():
    bench = Planned(errors={frozenset(): "it ended with exit code 1\nValueError"})
    bounds, _ = measured(bench, BOTH)
    assert len(bench.asks) == 1
    assert all(bound.alone is None and "as it is failed" in bound.because for bound in bounds.values())


def test_a_machine_that_is_always_busy_is_said_with_the_ratio():
    bounds, _ = measured(Planned(disturbed="other programs kept 1.9 of 2 cores busy"), BOTH)
    near(bounds["input"].alone, 2.0)
    assert "on a busy machine: other programs" in bounds["input"].because


def test_steps_that_never_settle_have_no_bound():
    bench = Planned(lambda _: np.repeat([10.0, 30.0], [65, 15]))  # a change that late leaves too little to compare
    bounds, _ = measured(bench, BOTH)
    assert bounds["input"].alone is None and "never settles" in bounds["input"].because


def test_a_small_budget_takes_each_layer_from_the_run_as_it_is_only_and_a_smaller_one_the_largest_layer():
    of = replace(BOTH, wall_ns=6 * 10**9)  # a start of 2.2 s, and at least 37 steps of 40 ms in a trial
    for budget_s, told in (
        (250, {"input": 2, "checkpoint": 2}),
        (150, {"input": 1, "checkpoint": 1}),
        (100, {"input": 1}),
    ):
        bounds, _ = measured(Planned(), of, replace(OPTIONS, budget_s=budget_s))
        ratios = {
            name: sum(one is not None for one in (bound.alone, bound.others_removed)) for name, bound in bounds.items()
        }
        assert {name: count for name, count in ratios.items() if count} == told
    assert "larger --budget" in bounds["checkpoint"].because


def test_trials_that_take_longer_than_expected_end_with_the_share_of_the_budget():
    bench = Planned(wall_s=1e5)
    bounds, _ = measured(bench, BOTH)
    assert len(bench.asks) == 4  # one round; 4 trials of 1e5 s would not end in a quarter of 1e6 s once more
    assert "1 of 3 rounds" in bounds["input"].because and bounds["input"].alone is None


def test_bounds_leave_most_of_the_time_for_waiting_to_the_remedies():
    bench = Planned(most_waited_s=20.0)
    measured(bench, BOTH)
    assert (bench.waited_s, bench.patience_s) == (100.0, 400.0)


def test_where_too_few_pairs_are_clean_all_count_and_it_is_said():
    bench = Planned()
    make = bench.make

    def disturbed_at_first(ask):
        trial = make(ask)
        return replace(trial, disturbed="other programs kept 1.9 of 2 cores busy" if len(bench.asks) <= 8 else "")

    bench.make = disturbed_at_first
    bounds, _ = measured(bench, BOTH)
    assert bounds["input"].alone.pairs == 4 and "on a busy machine" in bounds["input"].because


def test_checkpoints_are_written_where_trials_run_in_the_folder_itself():
    bench = Planned()
    bounds, _ = measured(bench, BOTH, replace(OPTIONS, workdir="same"))
    assert "workdir same" in bounds["checkpoint"].because and bounds["input"].alone is not None
    assert not any("checkpoint" in ask.ablate for ask in bench.asks)


@pytest.mark.parametrize(
    ("captured", "way", "steps"),
    [
        (Captured(np.zeros(0), epochs=2), "input", None),
        (Captured(np.zeros(0), epochs=0), "input-endless", 80),  # none of the 80 steps began another epoch
        (Captured(np.zeros(0), through_loader=False), "input-maker", None),
    ],
)
def test_how_the_input_is_taken_away_follows_from_the_run_as_it_is(captured, way, steps):
    bench = Planned(captured=captured)
    measured(bench, replace(BOTH, stopped_by_us=False))
    assert not bench.asks[0].ablate
    removed = [ask for ask in bench.asks if any(name.startswith("input") for name in ask.ablate)]
    assert removed and all(way in ask.ablate and ask.steps == steps for ask in removed)


def test_only_a_trial_that_looks_for_what_makes_the_batches_sees_what_the_model_is_given():
    told = {ablate: Ask(ablate=ablate).config() for ablate in ((), ("input",), ("input-maker", "checkpoint"))}
    assert [set(one["only"]) - set(NEEDED) for one in told.values()] == [set(), set(), {"modules"}]
    assert [one["trial"].get("ablate") for one in told.values()] == [None, ["input"], ["input-maker", "checkpoint"]]


def test_every_second_round_turns_the_order_of_the_one_before_around():
    bench = Planned()
    measured(bench, BOTH)
    rounds = [[ask.ablate for ask in bench.asks[at : at + 4]] for at in range(0, 16, 4)]
    assert all(sorted(one) == sorted(rounds[0]) for one in rounds)
    assert rounds[3] == rounds[2][::-1]


def finding(phase, saved_ms):
    return Finding("data/starved-loader", "It waits.", Line("train.py", 3, "main", ""), Scope.STEADY,
                   (Stake(phase, Activity.LOAD, 1),), Weight.OVERLAP, Basis.MEASURED, (),
                   Saving(0, saved_ms * MS))  # fmt: skip


@pytest.mark.parametrize(
    ("phase", "saved_ms", "noted"),
    [(Phase.FETCH, 30, True), (Phase.FETCH, 19, False), (Phase.BETWEEN, 30, False)],
    ids=["more-than-all", "less", "another-layer"],
)
def test_a_prediction_of_more_than_a_free_layer_gives_is_noted(phase, saved_ms, noted):
    _, notes = measured(Planned(), replace(BOTH, findings=(finding(phase, saved_ms),)))
    assert bool(notes) == noted
    if noted:
        assert "predicts up to 4.00x, more than a free input gives by itself: 2.0" in notes[0]


# ------------------------------------------------------------ in a fix


@pytest.fixture
def fixed(tmp_path, monkeypatch):
    monkeypatch.setattr(fixing, "_record", lambda *_: pytest.fail("nothing was kept"))

    def run(bench, options):
        bench.words, bench.discarded = ("train.py",), 0
        bench.made = bench.launched = 0
        bench.workspace = type("There", (), {"project": Path(tmp_path)})
        clock = Clock(options.budget_s)
        made = Fix(options, tmp_path, bench, Prover(bench, options, clock, tmp_path), clock, BOTH, BOTH)
        made.go()
        return made

    return run


def test_a_fix_without_bounds_makes_no_trial_for_them(fixed):
    bench = Planned()
    assert fixed(bench, replace(OPTIONS, bounds=False)).bounds == () and not bench.asks


def test_a_fix_that_is_ended_keeps_the_bounds_that_were_known_by_then(fixed):
    made = fixed(Planned(stop_at=14), OPTIONS)
    assert made.interrupted == BY_USER
    assert all(bound.alone is not None and bound.alone.pairs == 3 for bound in made.bounds)
    assert {bound.layer for bound in made.bounds} == {"input", "checkpoint"}
