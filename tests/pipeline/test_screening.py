"""A screening in one process comes before the pairs: it can end a remedy, choose a value, and prove nothing."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from unstall.launch.workspace import prepare
from unstall.model.remedy import Knob, Remedy, RemoveCall, Safety, SetKeyword, Switch
from unstall.model.trial import Block, Captured, Measure, Outlook, Trial, Verdict
from unstall.pipeline._asked import FixOptions
from unstall.pipeline.length import Length
from unstall.pipeline.proving import Clock, Prover
from unstall.pipeline.screening import Room, planned, screen
from unstall.pipeline.trial import Bench
from unstall.trials.screening import best_value
from unstall.trials.worth import Worth

MS = 1_000_000
OFF = Remedy(
    "host/anomaly-detection#off",
    "turn anomaly detection off",
    Safety.SAME_BITS,
    (RemoveCall("train.py", 3, "torch.autograd.set_detect_anomaly"),),
    switch=Switch("torch.set_anomaly_enabled", ("torch.is_anomaly_enabled",), (False, True)),
)
THREADS = Remedy(
    "kernels/too-few-threads#threads",
    "2 intra-op threads",
    Safety.SAME_BITS,
    (SetKeyword("train.py", 3, "torch.set_num_threads", "int", 2, 0),),
    (Knob("int", 2, 1, 4, "powers"),),
    switch=Switch("torch.set_num_threads", ("torch.get_num_threads",), (2,)),
)
ROOM = Room(step_ns=20 * MS, start_s=2.0, warm=5, steps=3000)


@dataclass
class Planned:
    """A bench whose steps take ``step_ms[value]``: None without the remedy, True or the value of its knob with it.

    In a screening they take ``block_ms`` where that is given.
    """

    step_ms: dict
    block_ms: dict = field(default_factory=dict)
    noise: float = 0.004
    not_switched: str = ""
    error: str = ""
    disturbed: str = ""
    asks: list = field(default_factory=list)
    launched: int = 0

    def make(self, ask, blocks=None):
        self.asks.append(ask)
        self.launched += 1
        draw = np.random.default_rng(self.launched)
        if ask.switch:
            return self.screening(ask.switch, draw, blocks)
        edit = ask.edits[-1] if ask.edits else None
        value = None if edit is None else getattr(edit, "value", True)
        usual = self.step_ms[value] * MS * np.exp(draw.normal(0, self.noise))
        ends = 10**9 + np.cumsum(usual * np.exp(draw.normal(0, 0.01, 80))).astype(np.int64)
        return Trial(ends, int(ends[-1]), True, Captured(np.linspace(2, 1, 80), "the same", epochs=3))

    def screening(self, plan, draw, told):
        values = [None, *(True if isinstance(arm[0], bool) else arm[0] for arm in plan["arms"])]
        step_ms = {**self.step_ms, **self.block_ms}
        made = [
            Block(arm, 1, plan["measured"], int(plan["measured"] * step_ms[values[arm]] * MS * np.exp(draw.normal(0, 0.005))))
            for arm in plan["order"]
        ]  # fmt: skip
        told(len(made))
        kept = Captured(np.zeros(0), blocks=tuple(made), not_switched=self.not_switched)
        return Trial(np.arange(1, 9), 1, True, kept, error=self.error, disturbed=self.disturbed)

    @property
    def screenings(self):
        return sum(bool(ask.switch) for ask in self.asks)


def proved(bench, remedy=OFF, room=ROOM, **options):
    """Return the proof of *remedy*, and the prover."""
    one = Worth(remedy.id.partition("#")[0], "train.py:3", remedy, Measure.STEP, 1.5, 2.0)
    prover = Prover(bench, FixOptions(("train.py",), **options), Clock(1e6), Path("."))
    return prover.prove(one, (), Length(80, 12.0), room), prover


def test_a_remedy_whose_blocks_show_no_gain_costs_one_process_and_no_pairs():
    bench = Planned({None: 20, True: 20})
    proof, _ = proved(bench)
    assert proof.verdict is Verdict.NO_EFFECT and len(bench.asks) == 1
    assert proof.ratio is None and proof.screening is not None and proof.screening.outlook is Outlook.FUTILE
    ratio = proof.screening.ratio
    assert ratio is not None and ratio.low < 1.005 < ratio.high + 0.01
    assert proof.because == f"screened in one process: {ratio.value:.2f}x ({ratio.low:.2f}-{ratio.high:.2f}), 48 blocks"


def test_a_refusal_spends_no_alpha_and_a_verdict_of_pairs_does():
    refused, proven = proved(Planned({None: 20, True: 20})), proved(Planned({None: 20, True: 10}))
    assert refused[1].verdicts == [] and proven[1].verdicts == [Verdict.FASTER]


def test_a_remedy_whose_blocks_show_a_gain_is_proved_on_fresh_pairs_only():
    """The blocks lie: 3x, where processes show 2x."""
    bench = Planned({None: 30, True: 15}, block_ms={True: 10})
    proof, _ = proved(bench)
    assert (
        proof.verdict is Verdict.FASTER
        and proof.ratio is not None
        and proof.ratio.value == pytest.approx(2.0, rel=0.02)
    )
    pairs = [ask for ask in bench.asks if not ask.switch and not ask.shrink]
    assert bench.asks[0].switch and len(pairs) == 2 * proof.ratio.pairs
    assert proof.screening is not None and proof.screening.ratio is not None
    assert proof.screening.ratio.value == pytest.approx(3.0, rel=0.02)


def test_what_only_blocks_show_is_not_called_faster():
    assert proved(Planned({None: 20, True: 20}, block_ms={True: 10}))[0].verdict is Verdict.NO_EFFECT


def test_of_a_knob_all_values_are_screened_in_one_process_and_the_best_is_proved():
    bench = Planned({None: 40, 1: 40, 2: 20, 4: 20})
    proof, _ = proved(bench, THREADS)
    assert proof.verdict is Verdict.FASTER and proof.remedy.title == "2 intra-op threads"
    assert [one.value for one in proof.tried] == [1, 2, 4]
    tried = {ask.edits[-1].value for ask in bench.asks if ask.edits}
    assert bench.screenings == 1 and tried == {2}


def test_a_value_that_was_predicted_wrong_is_found_in_the_screening():
    proof, _ = proved(Planned({None: 40, 1: 40, 2: 40, 4: 20}), THREADS)
    assert proof.verdict is Verdict.FASTER and proof.remedy.edits[0] == replace(THREADS.edits[0], value=4)  # type: ignore[type-var]


def test_a_knob_none_of_whose_values_pays_is_refused_at_once():
    bench = Planned({None: 40, 1: 40, 2: 40, 4: 41})
    proof, _ = proved(bench, THREADS)
    assert proof.verdict is Verdict.NO_EFFECT and len(bench.asks) == 1 and len(proof.tried) == 3


@pytest.mark.parametrize(
    "how",
    [{"not_switched": "the training sets it itself"}, {"error": "it ended with exit code 1"}],
    ids=lambda how: next(iter(how)),
)
def test_where_the_arms_did_not_hold_values_are_searched_and_pairs_are_made_as_without_a_screening(how):
    bench = Planned({None: 40, 1: 40, 2: 20, 4: 20}, **how)
    proof, _ = proved(bench, THREADS)
    assert proof.verdict is Verdict.FASTER
    assert proof.screening is not None and proof.screening.outlook is Outlook.NOT_TOLD and proof.screening.because
    searched = {ask.edits[-1].value for ask in bench.asks if ask.edits}
    assert searched == {1, 2, 4} or searched == {2, 4}


def test_on_a_busy_machine_nothing_is_refused():
    bench = Planned({None: 20, True: 20}, disturbed="other programs kept 1.6 of 2 cores busy")
    proof, _ = proved(bench)
    assert proof.ratio is not None and proof.ratio.pairs >= 3


def test_a_screening_that_takes_longer_than_the_pairs_it_can_save_is_not_made():
    bench = Planned({None: 20, True: 20})
    proved(bench, room=replace(ROOM, start_s=80.0))
    assert bench.screenings == 0


def test_without_room_or_without_a_switch_there_is_no_screening():
    for remedy, room in ((OFF, None), (replace(OFF, switch=None), ROOM), (OFF, replace(ROOM, steps=60))):
        bench = Planned({None: 20, True: 20})
        proof, _ = proved(bench, remedy, room)
        assert bench.screenings == 0 and proof.screening is None and proof.ratio is not None


def test_blocks_that_were_made_are_counted_while_it_is_screened():
    said = []
    proved(Planned({None: 20, True: 20}), progress=said.append)
    line = next(one for one in said if one.unit == "screening block")
    assert (line.pair, line.most, line.what) == (48, 48, OFF.title)
    assert said[-1].verdict is Verdict.NO_EFFECT and "screened in one process" in said[-1].what


def test_ranks_all_make_the_whole_plan_and_one_process_may_end_early():
    alone, two = planned(OFF, ROOM, 0), planned(OFF, replace(ROOM, ranks=2), 0)
    assert alone is not None and two is not None
    assert alone.config()["enough_rounds"] and two.config()["enough_rounds"] is None


SCRIPT = """\
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(400):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_real_training_is_screened_in_one_process_and_its_blocks_come_back(tmp_path, monkeypatch):
    """How many of them depends on the clock, as a gain by chance would end it early: five rounds at least."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(project)
    bench = Bench(("train.py",), tmp_path / "trials", prepare("copy", project, tmp_path / "state", [], []))
    plan = planned(
        replace(OFF, switch=Switch("torch.backends.cudnn.benchmark", (), (True,))), Room(4 * MS, 3.0, 3, 390), 7
    )
    assert plan is not None
    seen = screen(bench, plan, (), 0, 120.0, lambda _: None)
    assert bench.made == 1 and seen.seed == 7 and seen.ratio is not None
    assert 5 <= seen.ratio.pairs <= 24 and seen.blocks == 2 * seen.ratio.pairs


READS = """\
import time
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 6400

    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.full((16,), float(i))


torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Rows(), batch_size=8, shuffle=True)
for batch in loader:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""
WORKERS = Remedy(
    "data/starved-loader#num_workers",
    "num_workers=4",
    Safety.SAME_BITS,
    (SetKeyword("train.py", 18, "torch.utils.data.DataLoader", "num_workers", 4, 5),),
    (Knob("num_workers", 4, 1, 8),),
    switch=Switch("num_workers", (), (4,), site="train.py:18"),
)


def test_how_many_workers_are_screened_and_how_many_batches_are_dropped():
    plan = planned(WORKERS, replace(ROOM, step_ns=17 * MS), 7)
    assert plan is not None and [arm.value for arm in plan.arms] == [2, 3, 4, 6, 8]
    assert plan.layout.dropped == 9 and plan.layout.measured >= 16 and plan.config()["site"] == "train.py:18"
    assert planned(WORKERS, replace(ROOM, ranks=2), 7) is None


@pytest.mark.slow
def test_a_loader_that_is_starved_wins_its_blocks_with_workers_in_one_process(tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(READS)
    monkeypatch.chdir(project)
    bench = Bench(("train.py",), tmp_path / "trials", prepare("copy", project, tmp_path / "state", [], []))
    few = replace(WORKERS, knobs=(Knob("num_workers", 4, 3, 4),))
    plan = planned(few, Room(17 * MS, 3.0, 3, 790), 7)
    assert plan is not None and [arm.value for arm in plan.arms] == [3, 4]
    seen = screen(bench, plan, (), 0, 120.0, lambda _: None)
    assert bench.made == 1 and seen.outlook is Outlook.PROMISING
    assert seen.ratio is not None and seen.ratio.value > 1.5 and best_value(seen) in (3, 4)
