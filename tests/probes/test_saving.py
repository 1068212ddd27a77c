"""Checkpoints are seen whoever writes them, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstall.model.events import Kind
from unstall.readers import recording
from unstall.testing.contract import train

SCRIPT = """\
import torch
{imports}

net = torch.nn.Linear(64, 64)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    net(torch.randn(4, 64)).sum().backward()
    opt.step()
    if step == 3:
        {save}
"""
WRITERS = {
    "torch": ("import io", "torch.save(net.state_dict(), 'net.pt')"),
    "by name": ("from torch import save", "save(net.state_dict(), f='net.pt')"),
    "safetensors": ("from safetensors.torch import save_file", "save_file(net.state_dict(), 'net.safetensors')"),
    "sharded": ("import torch.distributed.checkpoint as dcp", "dcp.save(net.state_dict(), checkpoint_id='net')"),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_checkpoint_is_one_span_at_the_users_line_with_its_size(writer, tmp_path, monkeypatch):
    imports, save = WRITERS[writer]
    if writer == "safetensors":
        pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    report = train(SCRIPT.format(imports=imports, save=save), tmp_path)
    assert report.exit_code == 0
    events = recording.read(Path(report.recording)).ranks[0].events
    (row,) = events.of(Kind.CHECKPOINT)
    assert f"{tmp_path / 'train.py'}:10:<module>" in events.name_of(row)
    assert events.value[row] > 4 * 64 * 64  # bytes of the weights alone
