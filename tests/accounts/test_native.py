"""Which lines call an extension, and what of their time is counted."""

from __future__ import annotations

from unstall.accounts.native import builds, natives
from unstall.model.finding import Line
from unstall.model.ledger import Activity, Phase
from unstall.model.run import Facts
from unstall.model.tables import HotLine

TOLD = {
    "name": "bending", "site": "/job/train.py:9:<module>", "library": "", "folder": "/kept/bending", "phase": "STARTUP",
    "flags": ["-O2"], "rebuilt": True, "build_ns": 5_000, "file": "/kept/bending/bending.so", "spaces": ["mine"],
}  # fmt: skip


def hot(code: str, *paths: tuple[tuple[str, ...], float], line: int = 30) -> HotLine:
    parts = ((Activity.COMPUTE, 800), (Activity.PYTHON, 200))
    return HotLine(Line("train.py", line, "forward", code), Phase.FORWARD, 1_000, parts, 10, 0, paths=paths)


def used(*lines: HotLine, **known: object) -> int:
    found = natives(Facts({"extension:0": TOLD, **known}), lines, "/job")
    return sum(native.ns for native in found)


def test_time_below_no_python_is_counted_on_a_line_that_calls_the_module():
    (native,) = natives(
        Facts({"extension:0": TOLD}), [hot("y = bending.bend(h(x))", ((), 0.6), (("torch.nn.f",), 0.4))], "/job"
    )
    assert native.ns == 600 and native.samples == 6 and native.flags == ("-O2",)
    assert native.spent == (
        (Phase.FORWARD, Activity.COMPUTE, "train.py:30", 480),
        (Phase.FORWARD, Activity.PYTHON, "train.py:30", 120),
    )


def test_a_line_that_only_holds_the_name_or_ends_in_it_is_not_a_call():
    assert used(hot("y = unbending.bend(x)", ((), 1.0))) == 0
    assert used(hot("print(bending)", ((), 1.0))) == 0
    assert used(hot("y = net(x)", ((), 1.0))) == 0


def test_operators_of_its_space_are_counted_through_torch():
    call = (("torch._ops.__call__",), 0.7)
    assert used(hot("y = torch.ops.mine.bend(x) * y.exp()", call, ((), 0.3))) == 700
    assert used(hot("y = torch.ops.other.bend(x)", call)) == 0


def test_names_are_those_that_the_users_modules_hold_functions_among_them():
    seen = {"file": "/kept/bending/bending.so", "names": ["_C", "bend("], "flags": [], "noted": False}
    assert used(hot("y = self._C.bend(x)", ((), 1.0)), **{"native:0": seen}) == 1_000
    assert used(hot("y = bend(x)", ((), 1.0)), **{"native:0": seen}) == 1_000
    assert used(hot("y = x.bend(2)", ((), 1.0)), **{"native:0": seen}) == 0


def test_the_variable_that_a_build_is_assigned_to_is_such_a_name(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import load\nself.ext: Any = load(name)\n")
    told = {**TOLD, "site": f"{script}:2:__init__"}
    lines = [hot("y = self.ext.bend(x)", ((), 1.0))]
    assert [n.ns for n in natives(Facts({"extension:0": told}), lines, "")] == [1_000]


def test_of_one_built_elsewhere_its_compilers_note_is_told_or_nothing():
    seen = {"file": "/job/build/_C.so", "names": ["_C"], "flags": ["-g"], "noted": True}
    lines = [hot("y = _C.bend(x)", ((), 1.0))]
    (native,) = natives(Facts({"native:0": seen}), lines, "/job")
    assert native.flags == ("-g",) and native.build is None and native.file == "build/_C.so"
    (native,) = natives(Facts({"native:0": {**seen, "flags": [], "noted": False}}), lines, "/job")
    assert native.flags is None


def test_two_libraries_of_one_name_in_one_folder_are_namesakes_and_loading_one_twice_is_not():
    twice = {**TOLD, "rebuilt": False}
    other = {**TOLD, "file": "/kept/bending/bending_v1.so"}
    apart = {**other, "folder": "/kept/apart"}
    assert [b.namesakes for b in builds(Facts({"extension:0": TOLD, "extension:1": twice}), "/job")] == [0, 0]
    assert [b.namesakes for b in builds(Facts({"extension:0": TOLD, "extension:1": other}), "/job")] == [1, 1]
    assert [b.namesakes for b in builds(Facts({"extension:0": TOLD, "extension:1": apart}), "/job")] == [0, 0]
