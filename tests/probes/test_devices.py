"""Windows of the profiler on a live training; the device is the CPU here, as no other is at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unstall.model.trace import Call
from unstall.model.wire import PROFILED
from unstall.readers import recording
from unstall.testing.contract import train

SCRIPT = """\
import gc
import torch
from torch.profiler import ProfilerActivity, profile

for one in gc.get_objects():  # watch the CPU in place of a device
    if type(one).__name__ == "Windows" and type(one).__module__.startswith("unstall."):
        one.activities = lambda: [ProfilerActivity.CPU]

torch.manual_seed(0)
net = torch.nn.Linear(64, 64)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(80):
    loss = net(torch.randn(4, 64)).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    {after}
with open("losses", "w") as file:
    file.write(loss.item().hex())
"""
OWN = """if step == 50:
        with profile(activities=[ProfilerActivity.CPU]) as own:
            net(torch.randn(4, 64))
        assert any(event.key == "aten::linear" for event in own.key_averages())"""


@pytest.mark.parametrize("after", ["pass", OWN], ids=["alone", "beside the user's own profiler"])
def test_a_window_is_recorded_on_our_clock_and_its_rows_are_marked(after, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = train(SCRIPT.format(after=after), tmp_path)
    assert report.exit_code == 0 and not [warning for warning in report.warnings if "probe" in warning]
    (rank,) = recording.read(Path(report.recording)).ranks
    assert rank.rows is not None and rank.trace is not None
    marked = np.flatnonzero(rank.rows.flags & PROFILED)
    assert 8 <= marked.size <= 17
    begin, end = rank.rows.start_ns[marked[0]], rank.rows.end_ns[marked[-1]]
    calls = rank.trace.calls
    operators = calls.call == Call.OPERATOR
    assert operators.sum() > 20
    assert begin - 1e6 < calls.start_ns[operators].min() < calls.end_ns[operators].max() < end + 1e6  # ns


def test_a_window_changes_nothing_that_is_trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(SCRIPT.format(after="pass"), tmp_path)
    with_window = Path("losses").read_text()
    exec(compile(SCRIPT.format(after="pass"), "plain.py", "exec"), {})
    assert Path("losses").read_text() == with_window
