"""`explain` and `causes`, on causes made up here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import unstall.causes
from unstall.cli import main

PAGE = "Nothing prepares the next batch.\n\nWhat it is\n----------\nA loop that **loads** its own batch."


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("data/starved-loader", "data/worker-start", "io/starved-disk", "io/twice", "memory/twice")
    causes = tuple(SimpleNamespace(id=name, page=PAGE) for name in names)
    monkeypatch.setattr(unstall.causes, "load", lambda: causes)


@pytest.mark.parametrize("name", ["data/starved-loader", "starved-loader", "starved_loader", "data/starved_loader"])
def test_a_cause_is_found_by_its_id_or_the_end_of_it(capsys, name):
    assert main(["explain", name]) == 0
    assert capsys.readouterr().out == f"# data/starved-loader\n\n{PAGE}\n"


def test_an_unknown_name_is_answered_with_those_near_to_it(capsys):
    assert main(["explain", "starved-loaders"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Did you mean data/starved-loader" in err
    assert "unstall causes" in err


def test_a_name_like_no_other_gets_no_guess(capsys):
    assert main(["explain", "zzz"]) == 2
    assert "Did you mean" not in capsys.readouterr().err


def test_an_end_that_several_share_is_not_guessed(capsys):
    assert main(["explain", "twice"]) == 2
    assert "io/twice, memory/twice" in capsys.readouterr().err


def test_a_page_is_laid_out_on_a_terminal():
    from unstall.cli.explain import drawn

    page = drawn(f"# data/starved-loader\n\n{PAGE}\n", 60, False)
    assert "**" not in page
    assert "\x1b" not in page
    assert max(map(len, page.splitlines())) <= 60


def test_causes_are_listed_by_layer(capsys):
    assert main(["causes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line in ("data", "io", "memory")] == ["data", "io", "memory"]
    assert "  data/starved-loader  Nothing prepares the next batch." in lines


def test_that_there_are_no_causes_is_said(capsys, monkeypatch):
    monkeypatch.setattr(unstall.causes, "load", tuple)
    assert main(["causes"]) == 0
    assert "No cause is installed." in capsys.readouterr().err
