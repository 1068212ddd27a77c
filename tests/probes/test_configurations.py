"""The line that makes a framework's configuration, on live trainings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unstall.readers import recording
from unstall.testing.contract import train

pytest.importorskip("transformers")
LOOP = """
net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(20):
    opt.zero_grad()
    net(torch.randn(4, 4)).sum().backward()
    opt.step()
"""
SCRIPT = f"""\
import sys
from dataclasses import dataclass, replace
from transformers import HfArgumentParser, Seq2SeqTrainingArguments, TrainingArguments
import torch

@dataclass
class Mine(TrainingArguments):
    extra: int = 0

a = Mine(
    output_dir="out", use_cpu=True)
b = Seq2SeqTrainingArguments("out", use_cpu=True)
(c,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(["--output_dir", "out", "--use_cpu"])
d = [TrainingArguments("out", use_cpu=True) for _ in range(2)]
{LOOP}"""


def test_each_configuration_is_told_once_though_transformers_imports_torch_midway(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    report = train(SCRIPT, tmp_path)
    assert report.exit_code == 0 and not [warning for warning in report.warnings if "probe" in warning]
    (rank,) = recording.read(Path(report.recording)).ranks
    told = [
        (one.text("class").rpartition(".")[2], int(one.text("site").split(":")[1]), bool(one.text("library")))
        for one in rank.facts.family("configured").values()
    ]
    assert told == [
        ("TrainingArguments", 10, False),
        ("Seq2SeqTrainingArguments", 12, False),
        ("TrainingArguments", 13, True),
        ("TrainingArguments", 14, False),
    ]
    assert {one.text("key") for one in rank.facts.family("configured").values()} == {"TrainingArguments"}
