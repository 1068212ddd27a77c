"""Stack samples on the lines of generated code tell what kernels take and what operators left out of them take."""

from __future__ import annotations

import numpy as np
import pytest

from unstall.accounts.fusion import fusion, graphs, set_at
from unstall.accounts.label import Labelled
from unstall.model.fusion import Fusion
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.run import Facts, Place

CODE = "/tmp/generated.py"
LOOP, CALL = Place("/work/train.py", 50, "main"), Place("/env/site-packages/torch/call.py", 3, "__call__")
KERNEL, BEND = Place(CODE, 12, "Runner.call"), Place(CODE, 20, "Runner.call")
INSIDE = Place("/work/train.py", 7, "bend")
LEFT = {
    "lines": [20, 30],
    "calls": 2,
    "before": 2,
    "after": 1,
    "taken": 8,
    "given": 8,
    "alike": True,
    "at": "/work/train.py:9:forward",
}
TOLD = {"file": CODE, "kernels": [12, 14], "externs": [16], "moved": 100, "least": 40, "nodes": 9}


def made(left=None, weights=(30, 50, 20), told=TOLD) -> Fusion | None:
    """Return the fusion of 100 ms of FORWARD: samples in a kernel, in an operator's Python, and elsewhere."""
    stacks = ((LOOP, CALL, KERNEL), (LOOP, CALL, BEND, CALL, INSIDE), (LOOP,))
    n = len(weights)
    samples = Labelled(
        np.arange(n), np.array(weights), np.full(n, Phase.FORWARD, np.uint8), np.arange(n, dtype=np.int32), stacks,
        (None,) * n, np.tile([0.0, 1.0, 0.0], (n, 1)), np.zeros(n, np.bool_),
    )  # fmt: skip
    ledger = Ledger.of(
        [
            (0, 0, Phase.FORWARD, Activity.COMPUTE, Basis.SAMPLED, 100_000_000),
            (0, 0, Phase.FORWARD, Activity.STARVED, Basis.SAMPLED, 60_000_000),
        ],
        [160_000_000],
    )
    facts = {"fusion:0": {**told, "left": {"script.bend.default": LEFT} if left is None else left}} if told else {}
    return fusion(Facts(facts), (samples,), (np.ones(n, np.bool_),), ledger, np.ones(2, np.bool_), "/work")


def test_time_is_on_the_call_in_generated_code_that_the_sample_lies_in():
    found = made()
    assert found.kernel_spent == ((Phase.FORWARD, 30_000_000),)
    (bend,) = found.unfused
    assert (bend.operator, bend.spent, bend.samples) == ("script.bend.default", ((Phase.FORWARD, 50_000_000),), 1)
    assert (bend.line.file, bend.line.line) == ("train.py", 9)


def test_time_without_a_cpu_is_on_no_call():
    found = made()
    assert found.kernel_ns + found.unfused[0].ns == 80_000_000  # of 100 ms that ran, not of 160


def test_an_operator_that_no_sample_saw_has_no_time():
    found = made(left={"script.other.default": {**LEFT, "lines": [99]}})
    assert found.unfused[0].ns == 0 and found.unfused[0].samples == 0


def test_an_operator_of_the_backward_pass_is_on_the_line_of_the_one_it_belongs_to():
    other = {**LEFT, "at": "/work/train.py:11:forward"}
    found = made(
        left={"script.bend.default": LEFT, "script.turn.default": other, "script.turn_back.default": {**LEFT, "at": ""}}
    )
    assert {one.operator: one.line.line for one in found.unfused} == {
        "script.bend.default": 9, "script.turn.default": 11, "script.turn_back.default": 11,
    }  # fmt: skip


def test_an_operator_of_torch_has_no_others_line():
    found = made(left={"aten.add.Tensor": LEFT, "aten.mul.Tensor": {**LEFT, "at": ""}})
    assert {one.operator: one.line for one in found.unfused}["aten.mul.Tensor"] is None


def test_nothing_compiled_by_inductor_is_no_table():
    assert made(told={}) is None


def asked_in(script):
    return Facts({"compile:0": {"site": f"{script}:2:main"}})


@pytest.mark.parametrize(
    "text",
    [
        "torch._inductor.config.max_fusion_size = 1",
        'torch.compile(net, options={"max_fusion_size": 1})',
        "torch._inductor.config.patch(max_fusion_size=1)",
        'setattr(config, "max_fusion_size", 1)',
        'os.environ["max_fusion_size"] = "1"',
    ],
)
def test_the_line_that_sets_a_setting_is_found(tmp_path, text):
    script = tmp_path / "train.py"
    script.write_text(f"import torch\n{text}\n")
    assert set_at("max_fusion_size", asked_in(script), str(tmp_path)).line == 2


@pytest.mark.parametrize(
    "text", ["print(config.max_fusion_size)", "# max_fusion_size = 1", "if config.max_fusion_size == 1: pass"]
)
def test_a_line_that_only_speaks_of_a_setting_sets_none(tmp_path, text):
    script = tmp_path / "train.py"
    script.write_text(f"import torch\n{text}\n")
    assert set_at("max_fusion_size", asked_in(script), str(tmp_path)) is None


def test_the_manifest_of_a_graph_names_its_function_and_the_lines_of_what_it_leaves():
    told = {
        **TOLD, "graph": "3_backward", "frame": "/work/train.py:7:Net.forward", "patterns": {"mul_tanh": 2},
        "libraries": {"mm": 1}, "left": {"script.bend.default": LEFT},
    }  # fmt: skip
    (graph,) = graphs(Facts({"fusion:0": told, "fusion:1": told}), "/work")  # the same code, from a cache
    assert (graph.file, graph.function, graph.kind) == ("train.py", "Net.forward", "backward")
    assert (graph.kernels, graph.externs, graph.nodes, graph.moved, graph.least) == (2, 1, 9, 100, 40)
    assert graph.patterns == (("mul_tanh", 2),) and graph.libraries == (("mm", 1),)
    (bend,) = graph.apart
    assert (bend.operator, bend.calls, bend.nbytes, bend.line.line) == ("script.bend.default", 2, 16, 9)


def test_a_manifest_recorded_before_these_were_told_has_none_of_them():
    (graph,) = graphs(Facts({"fusion:0": TOLD}), "/work")
    assert (graph.file, graph.function, graph.kind, graph.patterns, graph.apart) == ("", "", "", (), ())
    assert graphs(Facts({}), "/work") == ()
