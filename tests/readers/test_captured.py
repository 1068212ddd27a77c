"""What a trial captured, read back from its files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from unstall.model.errors import NotARecording
from unstall.model.trial import Block
from unstall.readers import captured


def write(folder, pid, losses, **more):
    np.array(losses, np.float64).tofile(folder / f"captured-{pid}-losses.bin")
    known = {"format": 1, "rank": 0, "losses": len(losses), "parameters": "d", "kinds": "float32 x 2", **more}
    (folder / f"captured-{pid}.json").write_text(json.dumps(known))


def test_rank_0_is_read_and_of_several_processes_the_one_that_trained_most(tmp_path):
    write(tmp_path, 10, [1.0])
    write(tmp_path, 11, [3.0, 2.0], seeded=True, epochs=2, samples=["a", "b"], shrunk=4, notes=["n"])
    write(tmp_path, 12, [9.0, 9.0, 9.0], rank=1)
    kept = captured.read(tmp_path)
    assert kept.losses_L.tolist() == [3.0, 2.0]
    assert (kept.seeded, kept.epochs, kept.samples, kept.shrunk, kept.notes) == (True, 2, ("a", "b"), 4, ("n",))


def test_points_come_with_the_mean_loss_of_their_passes(tmp_path):
    np.array([1, 2], np.float32).tofile(tmp_path / "g")
    np.array([3, 4], np.float32).tofile(tmp_path / "u")
    write(tmp_path, 1, [5.0, 1.0, np.nan, 3.0], points={"2": {"gradients": "g", "updates": "u", "passes": [1, 4]}})
    kept = captured.read(tmp_path)
    assert kept.gradients[2].tolist() == [1, 2]
    assert kept.updates[2].tolist() == [3, 4]
    assert kept.point_losses == {2: 2.0}


def test_blocks_come_back_in_their_order_and_a_block_that_is_none_is_refused(tmp_path):
    write(tmp_path, 1, [1.0], blocks=[[1, 4, 3, 90], [0, 8, 3, 120]], not_switched="why")
    kept = captured.read(tmp_path)
    assert kept.blocks == (Block(1, 4, 3, 90), Block(0, 8, 3, 120)) and kept.not_switched == "why"
    assert kept.blocks[1].mean_step_ns == 40
    write(tmp_path, 1, [1.0], blocks=[[1, 4]])
    with pytest.raises(NotARecording, match="cannot be read"):
        captured.read(tmp_path)


def test_nothing_captured_gives_a_record_without_losses(tmp_path):
    assert captured.read(tmp_path).losses_L.size == 0


def test_files_cut_short_or_of_another_version_are_refused_with_what_to_do(tmp_path):
    write(tmp_path, 1, [1.0, 2.0])
    (tmp_path / "captured-1-losses.bin").write_bytes(b"\0" * 8)
    with pytest.raises(NotARecording, match="1 losses where 2 were written"):
        captured.read(tmp_path)
    write(tmp_path, 1, [1.0], format=2)
    with pytest.raises(NotARecording, match="another version"):
        captured.read(tmp_path)
