"""Edits in source text: what is written, what is left alone, and what is refused."""

import ast
import subprocess
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unstall.model.remedy import RemoveCall, SetEnvironment, SetKeyword
from unstall.remedies.patch import NoSuchCall, NotPatchable, patched, unified_diff

LOADER = "torch.utils.data.DataLoader"
FROM = "from torch.utils.data import DataLoader\n"


def line_of(source, mark="# <-"):
    return next(n for n, line in enumerate(source.splitlines(), 1) if mark in line)


def with_keyword(source, call=LOADER, keyword="num_workers", value=2, position=None):
    edit = SetKeyword("train.py", line_of(source), call, keyword, value, position)
    return patched(source, [edit], "train.py")


def without(source, call="gc.collect"):
    source = textwrap.dedent(source)
    return patched(source, [RemoveCall("train.py", line_of(source), call)], "train.py")


@pytest.mark.parametrize(
    "imported, called",
    [
        ("from torch.utils.data import DataLoader", "DataLoader"),
        ("from torch.utils.data import DataLoader as DL", "DL"),
        ("from torch.utils.data.dataloader import DataLoader", "DataLoader"),
        ("import torch", "torch.utils.data.DataLoader"),
        ("import torch.utils.data", "torch.utils.data.DataLoader"),
        ("import torch.utils.data as tud", "tud.DataLoader"),
        ("from torch.utils import data", "data.DataLoader"),
        ("import torch; Make = torch.utils.data.DataLoader", "Make"),
        ("from somewhere import *", "DataLoader"),
        ("from .loaders import DataLoader", "DataLoader"),
    ],
)
def test_the_call_is_found_by_what_its_name_stands_for(imported, called):
    assert (
        with_keyword(f"{imported}\nx = {called}(ds)  # <-\n") == f"{imported}\nx = {called}(ds, num_workers=2)  # <-\n"
    )


@pytest.mark.parametrize(
    "before, after",
    [
        ("DataLoader()", "DataLoader(num_workers=2)"),
        ("DataLoader(ds,)", "DataLoader(ds, num_workers=2,)"),
        ("DataLoader(ds, num_workers=0)", "DataLoader(ds, num_workers=2)"),
        ("DataLoader(ds, num_workers=os.cpu_count())", "DataLoader(ds, num_workers=2)"),
        ("DataLoader(ds, batch_size = 4)", "DataLoader(ds, batch_size = 4, num_workers = 2)"),
        ("f('é', DataLoader(ds))", "f('é', DataLoader(ds, num_workers=2))"),
        ("DataLoader(ds, num_workers=0, **options)", "DataLoader(ds, num_workers=2, **options)"),
        ("DataLoader(*parts)", "DataLoader(*parts, num_workers=2)"),
    ],
)
def test_a_keyword_is_set_on_one_line(before, after):
    assert with_keyword(f"{FROM}x = {before}  # <-\n") == f"{FROM}x = {after}  # <-\n"


@pytest.mark.parametrize(
    "before, after",
    [
        ("(  # <-\n    ds,\n    n=1,  # one\n)", "(  # <-\n    ds,\n    n=1,  # one\n    num_workers=2,\n)"),
        ("(  # <-\n    ds,\n    n=1  # one\n)", "(  # <-\n    ds,\n    n=1,  # one\n    num_workers=2\n)"),
        ("(  # <-\n    ds,\n    n=1)", "(  # <-\n    ds,\n    n=1,\n    num_workers=2)"),
        ("(ds,  # <-\n              n=1)", "(ds,  # <-\n              n=1,\n              num_workers=2)"),
        ("(  # <-\n    ds, n=1,\n)", "(  # <-\n    ds, n=1, num_workers=2,\n)"),
        ("(  # <-\r\n    ds,\r\n)", "(  # <-\r\n    ds,\r\n    num_workers=2,\r\n)"),
        ("(\n    ds,  # <-\n    n=1,\n)", "(\n    ds,  # <-\n    n=1,\n    num_workers=2,\n)"),
    ],
)
def test_a_call_over_several_lines_keeps_its_style(before, after):
    assert with_keyword(f"{FROM}x = DataLoader{before}\n") == f"{FROM}x = DataLoader{after}\n"


def test_an_argument_passed_by_position_is_changed_in_place():
    source = FROM + "x = DataLoader(ds, 4, True, None, None, 0)  # <-\n"
    assert with_keyword(source, position=5) == source.replace("None, 0", "None, 2")
    shorter = FROM + "x = DataLoader(ds, 4)  # <-\n"
    assert with_keyword(shorter, position=5) == shorter.replace("4)", "4, num_workers=2)")


@pytest.mark.parametrize(
    "value, written", [(None, "None"), (-1, "-1"), ("a", '"a"'), ('a"b', "'a\"b'"), (float("inf"), 'float("inf")')]
)
def test_a_value_is_written_as_python(value, written):
    assert f"num_workers={written})" in with_keyword(FROM + 'x = DataLoader("")  # <-\n', value=value)


def test_decorators_with_and_without_brackets():
    compiled = "import torch\n@torch.compile{}  # <-\ndef f(x): return x\n"
    new = with_keyword(compiled.format("(backend=B)"), "torch.compile", "dynamic", True)
    assert new == compiled.format("(backend=B, dynamic=True)")
    assert with_keyword(compiled.format(""), "torch.compile", "dynamic", True) == compiled.format("(dynamic=True)")


def test_a_decorator_is_found_from_the_line_of_its_function():
    source = "import torch\n@torch.compile\ndef f(x): return x  # <-\n"
    assert "@torch.compile(dynamic=True)\n" in with_keyword(source, "torch.compile", "dynamic", True)


def test_a_call_that_begins_on_the_line_is_preferred_to_one_around_it():
    source = FROM + "x = DataLoader(\n    DataLoader(ds),  # <-\n)\n"
    assert with_keyword(source) == source.replace("(ds)", "(ds, num_workers=2)")


def test_a_subclass_hands_the_keyword_to_its_parent():
    source = FROM + "class Mine(DataLoader):\n    def __init__(self, ds):\n        super().__init__(ds)  # <-\n"
    assert with_keyword(source) == source.replace("(ds)  #", "(ds, num_workers=2)  #")


def test_a_subclass_of_something_else_hands_nothing_on():
    with pytest.raises(NoSuchCall):
        with_keyword(FROM + "class Mine(Other):\n    def __init__(self, ds):\n        super().__init__(ds)  # <-\n")


@pytest.mark.parametrize(
    "call, options, why",
    [
        ("DataLoader(ds, **options)", {}, "through **options"),
        ("DataLoader(*parts)", {"position": 5}, "*args"),
        ("DataLoader(a), DataLoader(b)", {}, "2 such calls"),
        ("DataLoader(x for x in y)", {}, "generator"),
        ("DataLoader(ds, num_workers=(n := 4))", {}, "does more"),
        ("other(ds)", {}, "no such call"),
        ("'DataLoader(ds)'", {}, "no such call"),
        ("pd.DataLoader(ds)", {}, "no such call"),
    ],
)
def test_nothing_is_guessed(call, options, why):
    with pytest.raises(NotPatchable) as refused:
        with_keyword(f"{FROM}import pandas as pd\nx = {call}  # <-\n", **options)
    assert why in str(refused.value) and "train.py:3" in str(refused.value)


def test_a_bare_decorator_takes_keyword_only_parameters_alone():
    with pytest.raises(NotPatchable, match="no brackets"):
        with_keyword("import torch\n@torch.compile  # <-\ndef f(): 0\n", "torch.compile", "model", None, position=0)


def test_a_file_that_cannot_be_parsed_is_refused():
    with pytest.raises(NotPatchable, match="cannot be parsed"):
        with_keyword("x = DataLoader(  # <-\n")


@pytest.mark.parametrize(
    "before, after",
    [
        ("x = 1\ngc.collect()  # <-\ny = 2\n", "x = 1\ny = 2\n"),
        ("if a:\n    gc.collect()  # <-\n", "if a:\n    pass  # <-\n"),
        ("if a: gc.collect()  # <-\n", "if a: pass  # <-\n"),
        ("x = 1; gc.collect(); y = 2  # <-\n", "x = 1; y = 2  # <-\n"),
        ("gc.collect(); y = 2  # <-\n", "y = 2  # <-\n"),
        ("x = 1; gc.collect()  # <-\n", "x = 1  # <-\n"),
        ("x = 1\ngc.collect(  # <-\n    2\n)\n", "x = 1\n"),
        ("try:\n    x = 1\nfinally:\n    gc.collect()  # <-\n", "try:\n    x = 1\nfinally:\n    pass  # <-\n"),
        ("# why\n\ngc.collect()  # <-", "# why\n\n"),
    ],
)
def test_a_statement_goes_with_its_line(before, after):
    assert without("import gc\n" + before) == "import gc\n" + after


def test_a_with_statement_gives_its_body_back():
    source = '''
        import torch
        for x in data:
            with torch.autograd.detect_anomaly():  # <-
                # first
                text = """
                kept
                """

                f(x,
                  1)
                # last
            # outside
            g()
    '''
    assert without(source, "torch.autograd.detect_anomaly") == textwrap.dedent('''
        import torch
        for x in data:
            # first
            text = """
                kept
                """

            f(x,
              1)
            # last
            # outside
            g()
    ''')


@pytest.mark.parametrize(
    "before, after",
    [
        ("with a() as x, D(): f()  # <-", "with a() as x: f()  # <-"),
        ("with D(), a() as x: f()  # <-", "with a() as x: f()  # <-"),
        ("with D(): f(); g()  # <-", "f(); g()  # <-"),
        ("with (\n    D()  # <- a: b\n):\n    f()\n", "f()\n"),
        ("if a:\n  with D():  # <-\n      f()\n", "if a:\n  f()\n"),
    ],
)
def test_an_item_of_a_with_statement_is_dropped(before, after):
    head = "from torch.autograd import detect_anomaly as D\n"
    assert without(head + before, "torch.autograd.detect_anomaly") == head + after


@pytest.mark.parametrize(
    "line", ["n = gc.collect()", "f(gc.collect())", "with gc.collect() as x: f()", "@gc.collect\ndef f(): 0"]
)
def test_a_call_whose_result_is_used_stays(line):
    with pytest.raises(NotPatchable, match="result is used"):
        without("import gc\n" + line.replace("\n", "  # <-\n") + ("" if "\n" in line else "  # <-\n"))


def test_a_removal_holds_where_the_line_calls_nothing_and_is_refused_where_it_calls_something_else():
    source = "import gc\nx = 1  # <-\n"
    assert without(source) == source
    with pytest.raises(NoSuchCall):
        without("import gc\nf()  # <-\n")


def test_all_edits_are_judged_against_the_source_as_given():
    source = (
        "import gc, torch\n"
        "with torch.autograd.detect_anomaly():\n"
        "    gc.collect()\n"
        "    x = torch.utils.data.DataLoader(\n"
        "        ds,\n"
        "    )\n"
        "    gc.collect(); y = torch.utils.data.DataLoader(ds)\n"
    )
    edits = [
        RemoveCall("t.py", 2, "torch.autograd.detect_anomaly"),
        RemoveCall("t.py", 3, "gc.collect"),
        SetKeyword("t.py", 4, LOADER, "num_workers", 2),
        SetKeyword("t.py", 4, LOADER, "prefetch_factor", 4),
        RemoveCall("t.py", 7, "gc.collect"),
        SetKeyword("t.py", 7, LOADER, "num_workers", 3),
        SetKeyword("other.py", 1, LOADER, "num_workers", 3),
        SetEnvironment("OMP_NUM_THREADS", "1"),
    ]
    assert patched(source, edits, "t.py") == (
        "import gc, torch\n"
        "x = torch.utils.data.DataLoader(\n"
        "    ds,\n"
        "    num_workers=2,\n"
        "    prefetch_factor=4,\n"
        ")\n"
        "y = torch.utils.data.DataLoader(ds, num_workers=3)\n"
    )


def test_a_byte_order_mark_and_a_form_feed_are_kept():
    source = "\ufeff" + FROM + "\x0c\nx = DataLoader(ds)  # <-\n"
    edit = SetKeyword("t.py", 3, LOADER, "num_workers", 2)
    assert patched(source, [edit], "t.py") == source.replace("ds)", "ds, num_workers=2)")


ARGUMENT = st.sampled_from(
    ["ds", "4", "'é, )'", "f(1, 2)", "[1,\n 2]", "a if b else c", "lambda x: (x)", "(1)", '"""(\n"""']
)
KEYWORD = st.sampled_from(["batch_size=4", "shuffle = True", "num_workers=0", "num_workers=f(1)", "x=[\n]"])
GAP = st.sampled_from(["", " ", "\n    ", "  # a, (comment\n    "])


@st.composite
def calls(draw):
    """Draw the text of a call in any layout that Python takes."""
    words = draw(st.lists(ARGUMENT, max_size=3)) + draw(
        st.lists(KEYWORD, max_size=3, unique_by=lambda k: k.partition("=")[0].strip())
    )
    text = "DataLoader(" + draw(GAP)
    for n, word in enumerate(words):
        text += word + draw(GAP)
        if n + 1 < len(words) or draw(st.booleans()):
            text += "," + draw(GAP)
    return text + ")"


@settings(deadline=None)  # the machine may be busy
@given(call=calls(), value=st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False))
def test_a_patch_sets_the_keyword_and_leaves_all_other_text_alone(call, value):
    before, after = FROM + "é = 1\nx = [ é,", "] # é\n\x0cy = (1 ,2)"
    edit = SetKeyword("t.py", 3, LOADER, "num_workers", value)
    source = before + call + after
    new = patched(source, [edit], "t.py")
    assert new.startswith(before) and new.endswith(after)
    assert patched(new, [edit], "t.py") == new
    old_call, new_call = (ast.parse(text[len(before) : len(text) - len(after)]).body[0].value for text in (source, new))
    there = {k.arg: ast.dump(k.value) for k in old_call.keywords}
    wanted = new_call.keywords[list({**there, "num_workers": 0}).index("num_workers")].value
    assert repr(eval(ast.unparse(wanted))) == repr(value)
    assert {k.arg: ast.dump(k.value) for k in new_call.keywords} == {**there, "num_workers": ast.dump(wanted)}
    assert [ast.dump(a) for a in new_call.args] == [ast.dump(a) for a in old_call.args]
    comments = [part for part in source.split("\n") if "#" in part]
    assert sum("#" in part for part in new.split("\n")) == len(comments)


@settings(deadline=None)  # the machine may be busy
@given(
    lines=st.lists(
        st.sampled_from(["x = 1", "gc.collect()", "# é", "", "f(); gc.collect()", "s = '''\n#'''"]), min_size=1
    )
)
def test_removing_every_call_leaves_the_other_lines_alone(lines):
    source = "import gc\n" + "\n".join(lines) + "\n"
    edits = [RemoveCall("t.py", n, "gc.collect") for n, line in enumerate(source.split("\n"), 1) if "gc.c" in line]
    kept = [line.replace("; gc.collect()", "") for line in lines if line != "gc.collect()"]
    assert patched(source, edits, "t.py") == "import gc\n" + "".join(line + "\n" for line in kept)


@pytest.mark.parametrize("name", ["train.py", "a folder/my train.py", 'quo"te.py', "é.py"])
@pytest.mark.parametrize(
    "old, new", [("a\nb\n", "a\nc\n"), ("a\nb", "a\nc"), ("a\r\nb\x0c\u2028\r\n", "a\r\nc\x0c\u2028\r\n")]
)
def test_git_applies_the_diff(tmp_path, name, old, new):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(old.encode())
    (tmp_path / "unstall.patch").write_bytes(unified_diff({name: (old, new), "same.py": ("x", "x")}).encode())
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "unstall.patch"], cwd=tmp_path, check=True)
    assert file.read_bytes() == new.encode()
