"""The line that makes the model is told, on live trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstall.readers import recording
from unstall.testing.contract import train

MODELS = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
    def forward(self, x):
        return self.first(x)
class Heir(Net):
    def __init__(self):
        super().__init__()
        self.loss = nn.MSELoss()
"""
LOOP = """
teacher = Net().requires_grad_(False)
loss_of = nn.MSELoss()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(20):
    opt.zero_grad()
    loss_of(net(torch.randn(4, 4)), teacher(torch.randn(4, 4))).backward()
    opt.step()
print("init is", "observed" if "observed" in torch.nn.Module.__init__.__code__.co_name else "torch's own")
"""


def models_of(tmp_path: Path, source: str) -> list[dict[str, object]]:
    train(MODELS + source + LOOP, tmp_path)
    rank = recording.read(tmp_path / "recording").ranks[0]
    return [dict(facts.known) for facts in rank.facts.family("model").values()]


@pytest.mark.parametrize(
    "source, line, kind, plain",
    [
        ("net = Heir().to('cpu')\n", 13, "Heir", False),
        ("def build():\n    return nn.Sequential(\n        Net(), nn.ReLU())\nnet = build()\n",
         14, "torch.nn.modules.container.Sequential", True),
        ("net = torch.compile(Net(), backend='eager')\n", 13, "Net", False),
    ],
)  # fmt: skip
def test_the_outermost_module_that_trains_is_told_with_its_line(tmp_path, source, line, kind, plain):
    (model,) = models_of(tmp_path, source)
    assert str(model["site"]).startswith(f"{tmp_path / 'train.py'}:{line}:")
    assert (model["class"], model["plain"], model["library"], model["maker"]) == (kind, plain, "", "")
    assert model["elements"] == 20


def test_of_a_model_that_a_library_makes_the_function_is_told_that_the_user_calls(tmp_path):
    pytest.importorskip("transformers")
    source = """\
from transformers import AutoModel, BertConfig
config = BertConfig(vocab_size=8, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
inner = AutoModel.from_config(config)
net = nn.Linear(4, 4)
net.weight = nn.Parameter(inner.embeddings.word_embeddings.weight[:4].detach())
"""
    library, own = models_of(tmp_path, source)
    assert (library["class"], library["plain"]) == ("transformers.models.bert.modeling_bert.BertModel", False)
    assert str(library["maker"]).endswith("AutoModelClass.from_config") or library["maker"] == "?"
    assert "transformers" in str(library["library"])
    assert (own["class"], own["maker"], own["plain"]) == ("torch.nn.modules.linear.Linear", "", True)


def test_nothing_is_left_of_the_probe_after_the_first_steps(tmp_path, capfd):
    models_of(tmp_path, "net = Heir()\n")
    assert "init is torch's own" in capfd.readouterr().out
