"""Whether something could be compiled is told where nothing was asked to be."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from unstall.probes.compiling import STANCE_AT, Compiling


@pytest.fixture
def told(monkeypatch, tmp_path):
    """Return what is told at the end of a step, after so many calls of torch.compile, where *tmp_path* is all of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)

    def look(step, sites=0):
        facts = {}
        Compiling.look(SimpleNamespace(recorder=SimpleNamespace(fact=facts.update), sites=sites), step)
        return facts.get("compiler.cpp")

    return look


def test_a_compiler_on_the_path_is_told(told, tmp_path):
    assert told(STANCE_AT) is False
    compiler = tmp_path / "g++"
    compiler.write_text("")
    compiler.chmod(0o755)
    assert told(STANCE_AT) is True


def test_nothing_is_told_where_something_was_asked_for_or_at_another_step(told):
    assert told(STANCE_AT, sites=1) is None
    assert told(STANCE_AT - 1) is None
