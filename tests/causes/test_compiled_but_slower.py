"""Not compiling is an edit of the call that asks for it, or a variable where there is no call; the bounds hold the claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unstall.causes.compiler.compiled_but_slower import _PICTURE, _REGION, _SITE, CompiledButSlower, _given
from unstall.model.case import Silent
from unstall.model.remedy import SetEnvironment, SetKeyword
from unstall.testing.contract import said_of


def said(code="layer.compile()", operators=1.0):
    region = replace(_REGION, site=replace(_SITE, code=code), operators=operators)
    return said_of(CompiledButSlower(), Silent(_PICTURE, "", _given(region)))


@pytest.mark.parametrize(
    ("code", "edit"),
    [
        ("layer.compile()", SetKeyword("train.py", 41, "torch.nn.Module.compile", "disable", True)),
        ("fast = torch.compile(layer)", SetKeyword("train.py", 41, "torch.compile", "disable", True)),
        ("@torch.compile", SetEnvironment("TORCH_COMPILE_DISABLE", "1")),
    ],
)
def test_the_first_remedy_is_not_to_compile(code, edit):
    assert said(code).remedies[0][0].edits == (edit,)


def test_more_operations_in_a_region_leave_less_to_claim_and_widen_the_bounds():
    one, five = (said(operators=count).found[0] for count in (1.0, 5.0))
    assert five.claim_ns == one.claim_ns - 2 * 16 * 4 * 8_000  # two steps, sixteen regions, four operations of 8 us
    assert (one.saving.low_ns, one.saving.high_ns) == (1_500_000, 2_250_000)
    assert five.saving.low_ns < five.claim_ns // 2 < five.saving.high_ns
