"""A setting is switched between steps of a real training, by a plan; and set back, whatever happens."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trainings import DATA, plain, trial, written

from unstall.launch import recording
from unstall.probes.trial._asked import SwitchPlan, switch_plan
from unstall.probes.trial.switching import Setting, Switching

ANOMALY: dict[str, Any] = {
    "sets": "torch.set_anomaly_enabled",
    "reads": ["torch.is_anomaly_enabled", "torch.is_anomaly_check_nan_enabled"],
    "arms": [[False, True]],
}
ORDER = [0, 1, 1, 0, 1, 0]
BLOCKS = {"order": ORDER, "warm": 2, "dropped": 1, "measured": 3, "enough_rounds": None, "enough_gain": 0.1}
SEEN = (
    DATA
    + """
torch.manual_seed(3)
torch.autograd.set_detect_anomaly(True)
model = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, seen = [], []
for step in range(int(os.environ.get("STEPS", 32))):
    if os.environ.get("INSISTS"):
        torch.autograd.set_detect_anomaly(True)
    seen.append(int(torch.is_anomaly_enabled()))
    loss = model(torch.full((4, 32), step / 32.0)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with open("seen", "w") as file:
    file.write(" ".join(map(str, seen)))
with open("losses", "w") as file:
    file.write(" ".join(loss.hex() for loss in losses))
"""
)


def switched(folder, plan, **settings):
    """Return what a trial with *plan* captured, and whether anomaly detection was on in each of its steps."""
    kept = trial(SEEN, folder, {"seed": 0, "switch": plan}, **settings)
    return kept, [int(one) for one in (folder / "seen").read_text().split()]


@pytest.mark.slow
def test_each_arm_holds_in_its_blocks_and_the_setting_is_as_it_was_at_the_end(tmp_path):
    kept, seen = switched(tmp_path / "train", {**ANOMALY, **BLOCKS})
    held = [1] * 2 + [1 - arm for arm in ORDER for _ in range(4)] + [1] * 6
    assert seen == held
    assert [block.arm for block in kept.blocks] == ORDER and not kept.not_switched
    assert [(block.first, block.steps) for block in kept.blocks] == [(4 + 4 * at, 3) for at in range(6)]
    assert all(block.wall_ns > 0 for block in kept.blocks)


@pytest.mark.slow
def test_switching_what_keeps_every_bit_keeps_every_bit(tmp_path):
    without_us = plain(SEEN, tmp_path / "plain")
    switched(tmp_path / "train", {**ANOMALY, **BLOCKS})
    assert written(tmp_path / "train") == without_us


@pytest.mark.slow
def test_a_training_that_ends_before_the_plan_leaves_the_blocks_that_were_made(tmp_path):
    kept, seen = switched(tmp_path / "train", {**ANOMALY, **BLOCKS}, STEPS=12)
    assert [block.arm for block in kept.blocks] == ORDER[:2] and len(seen) == 12


@pytest.mark.slow
def test_what_the_training_sets_itself_is_left_to_it_and_nothing_is_told(tmp_path):
    kept, seen = switched(tmp_path / "train", {**ANOMALY, **BLOCKS}, INSISTS=1)
    assert kept.not_switched == "the training sets it itself"
    assert set(seen) == {1} and len(kept.blocks) <= 1


@pytest.mark.slow
def test_an_arm_that_wins_round_after_round_ends_the_training_and_one_that_does_not_never_does(tmp_path):
    """A loss of 99 % would still be enough here, so that no clock decides."""
    plan = {**ANOMALY, **BLOCKS, "enough_rounds": 2}
    kept = trial(SEEN, tmp_path / "wins", {"seed": 0, "switch": {**plan, "enough_gain": -0.99}}, 30)
    assert len(kept.blocks) == 4 and kept.losses_L.size < 30
    kept = trial(SEEN, tmp_path / "loses", {"seed": 0, "switch": {**plan, "enough_gain": 1e9}}, 30)
    assert len(kept.blocks) == 6 and kept.losses_L.size == 30


@pytest.mark.slow
def test_an_error_in_the_switch_leaves_the_training_as_it_is_and_is_said(tmp_path):
    folder = tmp_path / "train"
    plan = {**ANOMALY, **BLOCKS, "arms": [["neither", "nor"]]}
    without_us = plain(SEEN, tmp_path / "plain")
    with pytest.raises(AssertionError, match="probe switching switched itself off, the training goes on: TypeError"):
        trial(SEEN, folder, {"seed": 0, "switch": plan})
    assert set((folder / "seen").read_text().split()) == {"1"}
    assert written(folder) == without_us
    assert recording.read_json(next((folder / "recording").glob("captured-*.json")))["not_switched"].startswith("TypeE")


# ------------------------------------------------------------ one process, no training


class Heard:
    """What stands in for the probe's recorder: a folder, and what is asked of it."""

    def __init__(self, folder: str) -> None:
        self.recording, self.captured, self.in_child, self.at_end = folder, {}, [], []  # type: ignore[var-annotated]


def made(folder, **change: Any) -> Switching:
    recorder = Heard(str(folder))
    plan = SwitchPlan(
        **{
            "sets": "torch.set_num_threads",
            "reads": ("torch.get_num_threads",),
            "arms": ((2,),),
            "order": (1, 0, 0, 1),
            "warm": 1,
            "dropped": 1,
            "measured": 1,
            "enough_rounds": None,
            "enough_gain": 0.1,
            **change,
        }  # type: ignore[arg-type]
    )
    return Switching(SimpleNamespace(recorder=recorder), plan)  # type: ignore[arg-type]


@pytest.fixture
def threads():
    """One thread, and as many as there were at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_threads_are_switched_and_set_back(tmp_path, threads):
    switching, held = made(tmp_path), []
    for _ in range(10):
        switching.close_step()
        held.append(torch.get_num_threads())
    assert held == [2, 2, 1, 1, 1, 1, 2, 2, 1, 1]
    assert (next(tmp_path.glob("blocks-*")).read_bytes()) == b"...."


def test_a_run_that_has_it_so_already_is_not_switched(tmp_path, threads):
    switching = made(tmp_path, arms=((1,),))
    for _ in range(10):
        switching.close_step()
    assert switching.recorder.captured == {"not_switched": "the run has it so already"} and not switching.blocks


def test_an_error_half_way_sets_it_back(tmp_path, threads):
    switching = made(tmp_path, arms=((2,), ("three",)), order=(1, 2, 0))
    with pytest.raises(RuntimeError):
        for _ in range(5):
            switching.close_step()
    assert torch.get_num_threads() == 1 and switching.over


def test_an_attribute_is_a_setting_too():
    setting, before = Setting("torch.backends.cudnn.benchmark", ()), torch.backends.cudnn.benchmark
    setting.set((not before,))
    assert setting.present() == (not before,) == (torch.backends.cudnn.benchmark,)
    setting.set((before,))
    with pytest.raises(AttributeError):
        Setting("torch.backends.no_such_flag", ())


def test_a_plan_comes_through_the_config_and_no_other_trial_has_one():
    config = json.loads(json.dumps({"trial": {"seed": 0, "switch": {**ANOMALY, **BLOCKS}}}))
    plan = switch_plan(config)
    assert plan is not None and plan.order == tuple(ORDER) and plan.arms == ((False, True),)
    assert switch_plan({"trial": {"seed": 0}}) is None and switch_plan({}) is None
