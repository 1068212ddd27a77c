"""Edits in the live process: only the named call changes, and everything is put back."""

import gc
import pickle
import subprocess
import sys
import textwrap
import types
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unstall.model.remedy import RemoveCall, SetEnvironment, SetKeyword
from unstall.remedies.override import NotReachable, applied, apply, environment
from unstall.remedies.sites import NotPatchable

LIBRARY = """
import contextlib
def call(a=0, *, b=0): return a, b
def twice(a=0): return call(a), call(a)
class Base:
    def __init__(self, a=0, b=0): self.a, self.b = a, b
    def method(self, a=0, b=0): return a, b
    @classmethod
    def of(cls, a=0, b=0): return cls.__name__, a, b
    @staticmethod
    def plain(a=0, b=0): return a, b
class Derived(Base):
    def __init__(self, a=0, **rest):
        super().__init__(a, **rest)
class Bare: pass
class On:
    on = False
    def __init__(self): self.before = On.on
    def __enter__(self): On.on = True
    def __exit__(self, *error): On.on = self.before
@contextlib.contextmanager
def turned_on():
    with On(): yield
"""


@pytest.fixture
def library(monkeypatch):
    module = types.ModuleType("drawn_library")
    exec(LIBRARY, vars(module))
    for value in vars(module).values():
        if isinstance(value, type):
            value.__module__ = module.__name__
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.fixture
def run(library, tmp_path):
    file = tmp_path / "script.py"

    def run(source, *edits):
        source = "import drawn_library as lib\n" + textwrap.dedent(source)
        file.write_text(source)
        line = next(n for n, text in enumerate(source.split("\n"), 1) if "# <-" in text)
        scope = {"__name__": "script", "__file__": str(file)}
        with applied([edit(str(file), line) for edit in edits]):
            exec(compile(source, str(file), "exec"), scope)
        return scope

    return run


def keyword(call, value=7, position=None, keyword="b"):
    return lambda file, line: SetKeyword(file, line, "drawn_library." + call, keyword, value, position)


def removal(call):
    return lambda file, line: RemoveCall(file, line, "drawn_library." + call)


def test_only_the_call_on_the_line_is_changed(run):
    scope = run("x = lib.call(1)  # <-\ny = lib.call(1)\nz = [lib.call(n) for n in (2, 3)]\n", keyword("call"))
    assert (scope["x"], scope["y"], scope["z"]) == ((1, 7), (1, 0), [(2, 0), (3, 0)])


def test_a_call_made_by_what_the_line_calls_is_not_changed(run):
    scope = run("x = lib.twice(1), lib.call(1)  # <-\n", keyword("call"))
    assert scope["x"] == (((1, 0), (1, 0)), (1, 7))


def test_a_multi_line_call_is_known_by_any_of_its_lines(run):
    source = "x = lib.call(\n    1,{}\n    b=2,{}\n)\ny = lib.call()\n"
    for marks in (("  # <-", ""), ("", "  # <-")):
        scope = run(source.format(*marks), keyword("call"))
        assert (scope["x"], scope["y"]) == ((1, 7), (0, 0))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a frame tells its line only")
def test_the_inner_of_two_nested_calls_is_told_from_the_outer(run):
    scope = run("x = lib.call(\n    lib.call(1),  # <-\n)\n", keyword("call"))
    assert scope["x"] == ((1, 7), 0)


def test_an_argument_passed_by_position_is_replaced(run):
    scope = run("x = lib.Base(1, 2); y = lib.Base(1)  # <-\n", keyword("Base.method"))
    assert (scope["x"].b, scope["y"].b) == (2, 0)
    assert run("x = lib.Base(1, 2)  # <-\n", keyword("Base", position=1))["x"].b == 7
    assert run("x = lib.Base(1, b=2)  # <-\n", keyword("Base", position=1))["x"].b == 7
    assert run("x = lib.Base(1)  # <-\n", keyword("Base", position=1))["x"].b == 7


def test_a_value_that_comes_out_of_a_dictionary_is_replaced(run):
    assert run("x = lib.call(**{'b': 2})  # <-\n", keyword("call"))["x"] == (0, 7)


def test_methods_of_each_kind_are_reached(run):
    assert run("x = lib.Base().method(1)  # <-\n", keyword("Base.method"))["x"] == (1, 7)
    assert run("x = lib.Base().method(1, 2)  # <-\n", keyword("Base.method", position=1))["x"] == (1, 7)
    assert run("x = lib.Derived.of(1)  # <-\n", keyword("Base.of"))["x"] == ("Derived", 1, 7)
    assert run("x = lib.Base.plain(1)  # <-\n", keyword("Base.plain"))["x"] == (1, 7)
    assert run("x = lib.Derived().method(1)  # <-\n", keyword("Derived.method"))["x"] == (1, 7)


def test_a_subclass_is_reached_through_its_own_constructor(run, library):
    scope = run("x = lib.Derived(1)  # <-\ny = lib.Derived(1)\n", keyword("Base"))
    assert (scope["x"].b, scope["y"].b, type(scope["x"])) == (7, 0, library.Derived)


def test_a_function_that_the_module_imported_by_name_is_reached(run):
    scope = run("from drawn_library import call as c\nx = c(1)  # <-\ny = c(1)\n", keyword("call"))
    assert (scope["x"], scope["y"]) == ((1, 7), (1, 0))


def test_a_module_that_imported_the_function_before_is_reached_and_put_back(library, tmp_path, monkeypatch):
    file = tmp_path / "early.py"
    file.write_text("from drawn_library import call\ndef f():\n    return call(1)\n")
    early = types.ModuleType("early")
    early.__file__ = str(file)
    exec(compile(file.read_text(), str(file), "exec"), vars(early))
    monkeypatch.setitem(sys.modules, "early", early)
    with applied([SetKeyword(str(file), 3, "drawn_library.call", "b", 7)]):
        assert early.f() == (1, 7)
        assert library.call(1) == (1, 0)
    assert early.f() == (1, 0) and early.call is library.call


def test_who_kept_a_wrapper_gets_the_call_as_written_after_undo(run, library):
    scope = run("from drawn_library import call as c\ndef f(c=c): return c(1)  # <-\nx = f()\n", keyword("call"))
    assert scope["x"] == (1, 7) and scope["f"]() == (1, 0)


def test_a_decorator_gets_the_keyword(run, library):
    def decorate(function=None, *, b=0):
        return (function, b) if function else lambda function: (function, b)

    library.decorate = decorate
    for brackets in ("", "()"):
        scope = run(f"@lib.decorate{brackets}  # <-\ndef f(): 0\n@lib.decorate\ndef g(): 0\n", keyword("decorate"))
        assert (scope["f"][1], scope["g"][1]) == (7, 0)


def test_a_statement_is_left_out(run, library):
    made = []
    library.call = lambda n: made.append(n)
    run("lib.call(1)\nlib.call(2)  # <-\nlib.call(3)\n", removal("call"))
    assert made == [1, 3]


@pytest.mark.parametrize("name", ["On", "turned_on"])
def test_a_context_manager_does_nothing_where_it_is_left_out(run, library, name):
    source = f"with lib.{name}():  # <-\n    x = lib.On.on\nwith lib.{name}():\n    y = lib.On.on\n"
    scope = run(source, removal(name))
    assert (scope["x"], scope["y"], library.On.on) == (False, True, False)


def test_a_context_manager_that_is_left_out_still_lets_errors_through(run):
    with pytest.raises(ZeroDivisionError):
        run("with lib.On():  # <-\n    1 / 0\n", removal("On"))


@pytest.mark.parametrize(
    "source, edit, why",
    [
        ("x = lib.call(1)  # <-\n", removal("call"), "result is used"),
        ("with lib.On() as x:  # <-\n    0\n", removal("On"), "result is used"),
        ("x = lib.call(1), lib.call(2)  # <-\n", keyword("call"), "2 such calls"),
        ("print()  # <-\n", removal("call"), "no such call"),
    ],
)
def test_what_a_patch_would_have_to_guess_is_refused_live(run, source, edit, why):
    with pytest.raises(NotPatchable, match=why):
        run(source, edit)


@pytest.mark.parametrize(
    "call", ["no_such_library.f", "drawn_library.absent", "f", "drawn_library.Bare", "datetime.date"]
)
def test_what_cannot_be_replaced_is_said(library, call, tmp_path):
    with pytest.raises(NotReachable, match=call.rpartition(".")[2]):
        apply([SetKeyword(str(tmp_path / "absent.py"), 1, call, "b", 7)])


def test_a_file_that_cannot_be_read_is_judged_by_line_and_never_loses_a_call(library):
    scope = {"lib": library}
    with applied([SetKeyword("<drawn>", 2, "drawn_library.call", "b", 7)]):
        exec(compile("x = lib.call()\ny = lib.call()", "<drawn>", "exec"), scope)
    assert (scope["x"], scope["y"]) == ((0, 0), (0, 7))
    with pytest.raises(NotPatchable, match="not known"):
        apply([RemoveCall("<drawn>", 2, "drawn_library.call")])


def test_of_two_values_for_one_keyword_the_last_holds(run):
    assert run("x = lib.call()  # <-\n", keyword("call", 1), keyword("call", 2))["x"] == (0, 2)
    assert run("x = lib.Base()  # <-\n", keyword("Base", 1), keyword("Base", 2))["x"].b == 2


def test_a_wrapper_put_on_top_by_others_survives_undo(library, tmp_path):
    undo = apply([SetKeyword(str(tmp_path / "s.py"), 1, "drawn_library.call", "b", 7)])
    ours = library.call
    library.call = theirs = lambda *args, **kwargs: ours(*args, **kwargs)
    undo()
    undo()
    assert library.call is theirs and library.call(1) == (1, 0)


def test_a_class_can_still_be_pickled_and_recognised(library, tmp_path):
    made = library.Derived(1)
    with applied([SetKeyword(str(tmp_path / "s.py"), 1, "drawn_library.Base", "b", 7)]):
        assert isinstance(pickle.loads(pickle.dumps(made)), library.Base)
        assert pickle.loads(pickle.dumps(library.Base)) is library.Base


def test_an_environment_variable_is_for_whoever_starts_the_command():
    edits = [SetEnvironment("OMP_NUM_THREADS", "1"), RemoveCall("t.py", 1, "gc.collect")]
    assert environment(edits) == {"OMP_NUM_THREADS": "1"}
    with applied(edits[:1]):
        pass


CALLS = (
    "call",
    "twice",
    "Base",
    "Derived",
    "Base.method",
    "Base.of",
    "Derived.method",
    "On",
    "turned_on",
    "Bare",
    "absent",
)


@settings(deadline=None)  # the machine may be busy
@given(edits=st.lists(st.builds(SetKeyword, st.just("<drawn>"), st.integers(1, 3),
                                st.sampled_from(["drawn_library." + name for name in CALLS]),
                                st.just("b"), st.integers())))  # fmt: skip
def test_apply_then_undo_leaves_everything_untouched(edits):
    with drawn_library() as library:

        def state():
            spaces = [library, *(v for v in vars(library).values() if isinstance(v, type))]
            return [{k: v for k, v in vars(space).items() if k not in ("__dict__", "__weakref__")} for space in spaces]

        before = state()
        try:
            with applied(edits):
                assert not edits or state() != before
                raise KeyboardInterrupt
        except (KeyboardInterrupt, NotReachable):
            pass
        assert state() == before


@contextmanager
def drawn_library():
    module = types.ModuleType("drawn_library")
    exec(LIBRARY, vars(module))
    sys.modules["drawn_library"] = module
    try:
        yield module
    finally:
        del sys.modules["drawn_library"]


def test_a_built_in_function_is_put_back(tmp_path):
    file = tmp_path / "script.py"
    file.write_text("import gc\ngc.collect()\n")
    before = gc.collect
    with applied([RemoveCall(str(file), 2, "gc.collect")]):
        assert gc.collect is not before
    assert gc.collect is before


def test_the_training_process_loads_nothing_but_the_standard_library():
    read = "import sys, unstall.remedies.override as o; sys.exit(bool({'numpy', 'libcst', 'torch'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", read], check=True)


def test_each_call_that_an_edit_changes_is_told_by_the_edits_index(library, tmp_path):
    file = tmp_path / "script.py"
    source = (
        "import drawn_library as lib\n"
        "x = [lib.call(n) for n in range(3)]\n"
        "lib.call(1)\n"
        "y = lib.Derived(1)\n"
        "lib.call(2)\n"
        "lib.Base(5).method()\n"
    )
    file.write_text(source)
    edits = [
        SetEnvironment("OMP_NUM_THREADS", "2"),
        SetKeyword(str(file), 2, "drawn_library.call", "b", 7),
        RemoveCall(str(file), 3, "drawn_library.call"),
        SetKeyword(str(file), 4, "drawn_library.Base", "b", 7),
        SetKeyword(str(file), 6, "drawn_library.Base.method", "b", 7),
        SetKeyword(str(file), 1, "drawn_library.call", "b", 7),  # a line that calls nothing
    ]
    met = []
    with applied(edits, met.append):
        exec(compile(source, str(file), "exec"), {"__name__": "script"})
    assert met == [1, 1, 1, 2, 3, 4]
    library.call(1)
    assert len(met) == 6
