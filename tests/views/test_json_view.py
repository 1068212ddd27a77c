"""The JSON view writes what the codec says, in the codec's order."""

from __future__ import annotations

import json
import sys
import types

import pytest

from unstall.views import load, view


def test_views_are_found_by_walking():
    found = load()
    assert {"terminal", "json"} <= set(found)
    assert all(name == module.NAME for name, module in found.items())


def test_keys_keep_the_order_of_the_format(samples, monkeypatch):
    module = types.ModuleType("unstall.model.codec")
    vars(module)["report_to_json"] = lambda report: {"format": "unstall-report/1", "command": list(report.command)}
    monkeypatch.setitem(sys.modules, "unstall.model.codec", module)
    text = view("json").render(samples["starved"], width=0, colour=False, verbose=False)
    assert text.endswith("}\n")
    assert list(json.loads(text)) == ["format", "command"]


def test_what_is_no_number_is_not_written(samples, monkeypatch):
    module = types.ModuleType("unstall.model.codec")
    vars(module)["report_to_json"] = lambda report: {"share": float("nan")}
    monkeypatch.setitem(sys.modules, "unstall.model.codec", module)
    with pytest.raises(ValueError, match="JSON"):
        view("json").render(samples["starved"], width=0, colour=False, verbose=False)


def test_every_report_can_be_written_and_holds_its_numbers(sample):
    pytest.importorskip("unstall.model.codec")
    one = view("json").render(sample, width=60, colour=False, verbose=False)
    assert one == view("json").render(sample, width=160, colour=True, verbose=True)
    record = json.loads(one)
    assert record["format"] == "unstall-report/1"
    assert record["run"]["steps"] == sample.steps
    assert [finding["spent_ns"] for finding in record["findings"]] == [f.spent_ns for f in sample.findings]
