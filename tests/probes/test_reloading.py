"""A loader's workers are made anew between batches of a real training, by a plan; the batches stay those of the loader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import DataLoader
from trainings import TRAINING, plain, trial, written

from unstall.probes.trial.reloading import Reloading

LINE = next(n for n, text in enumerate(TRAINING.splitlines(), 1) if text.startswith("loader = DataLoader("))
ORDER = [0, 1, 1, 0]
PLAN: dict[str, Any] = {
    "sets": "num_workers",
    "reads": [],
    "site": f"train.py:{LINE}",
    "arms": [[2]],
    "order": ORDER,
    "warm": 1,
    "dropped": 1,
    "measured": 3,
    "enough_rounds": None,
    "enough_gain": 0.1,
}
QUIET = {"DROP": 0, "BATCH": 2}  # 12 batches a pass: a warm one, and blocks of four


@pytest.mark.slow
def test_each_arm_has_its_blocks_and_the_training_sees_the_batches_of_its_loader(tmp_path):
    without_us = plain(TRAINING, tmp_path / "plain", **QUIET)
    kept = trial(TRAINING, tmp_path / "train", {"switch": PLAN}, **QUIET)
    assert [block.arm for block in kept.blocks] == ORDER and not kept.not_switched
    assert [block.steps for block in kept.blocks] == [3] * 4 and all(block.wall_ns > 0 for block in kept.blocks)
    assert [block.first for block in kept.blocks] == [3, 7, 14, 18]  # a part that the pass ended is no block
    assert written(tmp_path / "train") == without_us


@pytest.mark.slow
def test_a_loader_that_has_workers_keeps_its_number_in_arm_0(tmp_path):
    without_us = plain(TRAINING, tmp_path / "plain", **QUIET, WORKERS=1)
    kept = trial(TRAINING, tmp_path / "train", {"switch": PLAN}, **QUIET, WORKERS=1)
    assert [block.arm for block in kept.blocks] == ORDER
    assert written(tmp_path / "train") == without_us


@pytest.mark.slow
def test_where_no_block_fits_into_a_pass_it_is_said_and_the_training_ended(tmp_path):
    script = TRAINING.replace("range(3)", "range(100)")
    kept = trial(script, tmp_path / "train", {"switch": {**PLAN, "measured": 50}}, 10**6, **QUIET)
    assert kept.not_switched == "no block of batches fits into a pass over the data" and not kept.blocks
    assert kept.losses_L.size < 100


@pytest.mark.slow
def test_a_loader_made_at_another_line_is_left_alone(tmp_path):
    kept = trial(TRAINING, tmp_path / "train", {"switch": {**PLAN, "site": f"train.py:{LINE + 1}"}}, **QUIET)
    assert not kept.blocks and not kept.not_switched


@pytest.mark.parametrize("method, unfit", [("spawn", True), ("forkserver", True), ("fork", False)])
def test_workers_that_take_long_to_start_are_not_made_anew(method, unfit):
    loader = DataLoader(list(range(8)), num_workers=1, multiprocessing_context=method)
    assert bool(Reloading.unfit(SimpleNamespace(), loader)) is unfit


@pytest.mark.slow
def test_a_stream_of_samples_is_left_alone(tmp_path):
    script = TRAINING.replace("class Points(Dataset)", "class Points(torch.utils.data.IterableDataset)").replace(
        "    def __len__(self):\n        return 24\n",
        "    def __iter__(self):\n        return (self[i] for i in range(24))\n",
    )
    kept = trial(script.replace("shuffle=True, ", ""), tmp_path / "train", {"switch": PLAN}, **QUIET)
    assert "cannot be made anew" in kept.not_switched and not kept.blocks
