"""A setting that limits fusion is a candidate: what it costs shows only in a trial."""

from __future__ import annotations

from unstall.causes.compiler.lost_fusion import _LINE, _PICTURE, LostFusion, _given
from unstall.model.case import Silent
from unstall.model.finding import Candidate
from unstall.model.fusion import Setting
from unstall.testing.contract import found_in


def test_a_setting_under_which_less_is_fused_is_a_candidate_at_its_line():
    given = _given(setting=Setting("max_fusion_size", "1", _LINE), kernels_ms=8)
    (said,) = found_in(LostFusion(), Silent(_PICTURE, "", given))
    assert isinstance(said, Candidate)
    assert said.where == _LINE
    assert "max_fusion_size=1" in said.title


def test_a_setting_is_not_told_where_the_kernels_move_no_more_than_they_must():
    given = _given(setting=Setting("max_fusion_size", "1", _LINE), kernels_ms=8, least=24_000_000)
    assert found_in(LostFusion(), Silent(_PICTURE, "", given)) == []
