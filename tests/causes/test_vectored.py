"""Which time is torch's own vector code: told by the line's text, and by the library's function."""

from types import SimpleNamespace

import pytest

from unstall.causes.compiler._vectored import UNTOLD, vectored_ns
from unstall.model.finding import Line
from unstall.model.ledger import Activity, Phase
from unstall.model.tables import HotLine

PARTS = {(phase, Activity.COMPUTE): 1_000 for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)}


def tables(code, path=(), samples=50):
    hot = HotLine(
        Line("train.py", 4, "forward", code),
        Phase.FORWARD,
        800,
        ((Activity.COMPUTE, 800),),
        samples,
        0,
        paths=((path, 1.0),),
    )
    return SimpleNamespace(steady_parts=PARTS, lines=(hot,))


@pytest.mark.parametrize(
    "code, path, part",
    [
        ("x = x + gain * torch.sigmoid(gain * x)", (), 1.0),
        ("x = x @ self.weight + self.bias", (), 0.0),
        ("x = torch.tanh(x)", (), 0.0),
        ("x = x * gain  # then x @ w", (), 1.0),
        ("return self.net(x)", ("torch.nn.modules.linear.Linear.forward",), 0.0),
        ("return self.net(x)", ("torch.nn.modules.activation.ReLU.forward", "torch.nn.functional.relu"), 1.0),
        ("return self.net(x)", ("torch.nn.modules.conv.Conv2d._conv_forward",), 0.0),
        ("return linear(x)", ("torch.nn.functional.layer_norm",), 1.0),
    ],
)
def test_a_line_is_told_by_what_it_calls(code, path, part):
    spent = vectored_ns(tables(code, path))
    assert spent == {Phase.FORWARD: int(part * 1_000), Phase.BACKWARD: int(part * 1_000), Phase.OPTIMIZER: 1_000}


def test_few_samples_tell_nothing():
    assert vectored_ns(tables("x = x @ w", samples=5))[Phase.FORWARD] == int(UNTOLD * 1_000)
