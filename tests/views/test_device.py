"""What the page says of a device, and of traces, which cover a part of a run."""

from __future__ import annotations

import json
import re

from unstall.views import terminal, view


def page(report, verbose=False):
    return re.sub(r"\s+", " ", terminal.render(report, width=160, verbose=verbose))


def test_the_device_stands_below_the_phases_with_the_reasons_of_its_idle_time(samples):
    said = page(samples["traces"])
    assert "52 % 52.5 ms compute 41 % · collectives 9.0 % · copies 2.5 %" in said
    assert "48 % 47.5 ms the host had not launched more 30 % · the host waited for data 12 %" in said
    assert said.index("backward") < said.index("device busy") < said.index("device idle") < said.index("bound by:")


def test_the_critical_path_is_one_line_of_its_largest_parts(samples):
    line = "the step is bound by: kernels 38 %, launching 31 %, waiting for data 12 %, collectives 9.0 %, python 6.0 %"
    assert line in page(samples["traces"])
    assert "unknown 1.5 %" in page(samples["traces"], verbose=True)


def test_the_device_by_phase_and_its_launches_are_told_when_asked_for(samples):
    assert "device in backward: compute 41 % · idle 47 %" in page(samples["traces"], verbose=True)
    assert "1,204 pieces of work a step, 6.4 µs of the host each" in page(samples["traces"], verbose=True)
    assert "device in" not in page(samples["traces"])


def test_a_trace_is_said_to_cover_a_part_of_a_run(samples):
    said = page(samples["traces"])
    assert "2 traces of /data/traces" in said
    assert "2 of 4 ranks, NVIDIA A100-SXM4-80GB" in said
    assert "a part of a run: 6 steps, as the profiler marks them (ProfilerStep#). The profiler's own cost" in said
    assert "trace trace.json · 1 process" in page(samples["one-trace"])
    assert "a part of a run" not in page(samples["starved"])


def test_the_cost_is_the_profilers_and_not_known_where_nobody_measured_it(samples):
    assert "profiler 24 % of the step" in page(samples["traces"])
    assert "cost of the profiler: not known" in page(samples["one-trace"])
    assert "recorder" not in page(samples["traces"])


def test_sensors_that_are_missing_for_one_reason_share_it(samples):
    assert "not observed: stack samples, data loaders (a trace does not hold it) " in page(samples["traces"])


def test_json_has_the_device_and_the_traces_and_null_where_there_are_none(samples):
    def record(name):
        return json.loads(view("json").render(samples[name], width=0, colour=False, verbose=False))

    device = record("traces")["device"]
    assert [state["name"] for state in device["states"]] == ["compute", "collectives", "copies", "idle"]
    assert device["states"][3]["parts"][0]["name"] == "the host had not launched more"
    assert device["critical_path"][0] == {"name": "kernels", "ns": 38_000_000, "share": 0.38, "parts": []}
    assert (device["launches_per_step"], device["launch_ns"], device["dilation"]) == (1204.0, 6400, 1.32)
    trace = record("traces")["trace"]
    assert trace["missing_ranks"] == [2, 3]
    assert trace["files"][1]["cut_at"] == 7_000_000
    assert record("one-trace")["overhead"]["share"] is None
    assert record("one-trace")["device"] is None
    assert record("starved")["trace"] is None
