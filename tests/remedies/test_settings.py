"""A statement that sets a module's attribute is left out, in source and live alike."""

import json
import os
import subprocess
import sys
import types

import pytest

from unstall.launch.supervise import inject_folder
from unstall.model.codec import edit_from_json, edit_to_json, plan_to_json
from unstall.model.remedy import Remedy, RemoveSetting, Safety
from unstall.remedies.override import NotReachable, applied, awaited
from unstall.remedies.patch import NoSuchCall, NotPatchable, patched

TARGET = "drawn_config.cpp.width"
HEAD = "import drawn_config\nfrom drawn_config import cpp\nimport drawn_config as config\n"


class Part:
    """A part of a configuration whose attributes are set by a method of its class, as of torch's."""

    def __init__(self):
        vars(self).update(width=None, other=None)

    def __setattr__(self, name, value):
        vars(self)[name] = value


@pytest.fixture
def library():
    made = types.ModuleType("drawn_config")
    made.cpp = Part()
    sys.modules["drawn_config"] = made
    yield made
    del sys.modules["drawn_config"]


def edit_at(script):
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "# <-" in text)
    return RemoveSetting(str(script), line, TARGET)


def run(source, file, library):
    library.cpp = Part()
    exec(compile(source, str(file), "exec"), {"__name__": "script"})
    return library.cpp.width, library.cpp.other


@pytest.mark.parametrize(
    "body, after",
    [
        ("drawn_config.cpp.width = 1  # <-\ncpp.other = 2\n", "cpp.other = 2\n"),
        ("cpp.width = 1; cpp.other = 2  # <-\n", "cpp.other = 2  # <-\n"),
        ("config.cpp.width = (\n    1  # <-\n)\ncpp.other = 2\n", "cpp.other = 2\n"),
        ("if True:\n    cpp.width = 1  # <-\ncpp.other = 2\n", "if True:\n    pass  # <-\ncpp.other = 2\n"),
        ("cpp.other = 2\ndef f():\n    cpp.width = -1  # <-\n    return 3\nf()\n",
         "cpp.other = 2\ndef f():\n    return 3\nf()\n"),
    ],
)  # fmt: skip
def test_the_statement_goes_and_everything_else_is_set(library, tmp_path, body, after):
    script = tmp_path / "train.py"
    script.write_text(HEAD + body)
    edit = edit_at(script)
    assert patched(HEAD + body, [edit], script) == HEAD + after
    assert run(HEAD + body, script, library)[0] is not None
    met = []
    with applied([edit], met.append):
        assert run(HEAD + body, script, library) == run(HEAD + after, "patched.py", library) == (None, 2)
        assert run(HEAD + body, "elsewhere.py", library)[0] is not None
    assert met == [0]
    assert run(HEAD + body, script, library)[0] is not None, "it was undone"


@pytest.mark.parametrize(
    "body, why",
    [
        ("cpp.width = 1  # <-\ncpp.width = 2\n", "elsewhere too"),
        ("cpp.width = made()  # <-\n", "may do more"),
        ("cpp.width = cpp.other = 1  # <-\n", "does more than set it"),
        ("cpp.width, x = 1, 2  # <-\n", "does more than set it"),
        ("cpp.width += 1  # <-\n", "does more than set it"),
        ("cpp.other = 1  # <-\n", "does not set it"),
        ("width = 1  # <-\n", "does not set it"),
    ],
)
def test_what_cannot_be_left_out_alone_is_refused_in_source_and_live(library, tmp_path, body, why):
    script = tmp_path / "train.py"
    script.write_text(HEAD + body)
    with pytest.raises(NotPatchable, match=why):
        patched(HEAD + body, [edit_at(script)], script)
    with pytest.raises(NotPatchable, match=why):
        applied([edit_at(script)]).__enter__()


def test_where_it_has_gone_already_nothing_is_changed(library):
    with pytest.raises(NoSuchCall):
        patched(HEAD + "cpp.other = 2\n", [RemoveSetting("train.py", 4, TARGET)], "train.py")


def test_a_module_whose_class_cannot_be_changed_is_not_reached(library, tmp_path):
    library.plain = 1
    script = tmp_path / "train.py"
    script.write_text("import drawn_config\ndrawn_config.plain = 2\n")
    with pytest.raises(NotReachable, match="of a module"):
        applied([RemoveSetting(str(script), 2, "drawn_config.plain")]).__enter__()


VARIABLE = "DRAWN_VARIABLE"


def values(source, file):
    """Run *source* and return what it left in the environment."""
    for name in (VARIABLE, "DRAWN_OTHER"):
        os.environ.pop(name, None)
    exec(compile(source, str(file), "exec"), {"__name__": "script"})
    return os.environ.get(VARIABLE), os.environ.get("DRAWN_OTHER")


@pytest.fixture
def variables(monkeypatch):
    for name in (VARIABLE, "DRAWN_OTHER"):
        monkeypatch.setenv(name, "")  # so that it is put back


@pytest.mark.parametrize(
    "head, statement",
    [
        ("import os\n", f'os.environ["{VARIABLE}"] = "0"'),
        ("from os import environ\n", f'environ["{VARIABLE}"] = "0"'),
        ("import os, tempfile\n", f'os.environ["{VARIABLE}"] = tempfile.gettempdir()'),
    ],
)
def test_a_variable_is_not_set_and_all_others_are(variables, tmp_path, head, statement):
    script = tmp_path / "train.py"
    other = "import os\nos.environ['DRAWN_OTHER'] = '1'\n"
    source, after = f"{head}{statement}\n{other}", head + other
    script.write_text(source)
    edit = RemoveSetting(str(script), 2, f"os.environ.{VARIABLE}")
    assert patched(source, [edit], script) == after
    met = []
    with applied([edit], met.append):
        assert values(source, script) == values(after, "patched.py") == (None, "1")
        assert values(source, "elsewhere.py")[0] is not None
    assert met == [0]
    assert values(source, script)[0] is not None, "it was undone"


@pytest.mark.parametrize(
    "statement, why",
    [
        (f'os.environ["{VARIABLE}"] = made()', "may do more"),
        (f'os.environ["{VARIABLE}"] += "0"', "does more than set it"),
        (f'os.environ[{VARIABLE}] = "0"', "does not set it"),
        (f'settings["{VARIABLE}"] = "0"', "does not set it"),
        (f'os.environ["{VARIABLE}"] = "0"; os.environ["{VARIABLE}"] = "1"', "elsewhere too"),
    ],
)
def test_what_sets_more_than_the_variable_is_refused(tmp_path, statement, why):
    script = tmp_path / "train.py"
    script.write_text(f"import os\n{statement}\n")
    edit = RemoveSetting(str(script), 2, f"os.environ.{VARIABLE}")
    with pytest.raises(NotPatchable, match=why):
        patched(script.read_text(), [edit], script)
    with pytest.raises(NotPatchable, match=why):
        applied([edit]).__enter__()


def test_a_variable_is_left_out_from_the_start_of_the_process():
    assert awaited(RemoveSetting("train.py", 3, f"os.environ.{VARIABLE}")) == "os"


@pytest.mark.parametrize("variable, left_out", [(VARIABLE, True), ("DRAWN_OTHER", False)])
def test_a_trial_leaves_it_out_before_torch_is_imported(tmp_path, variable, left_out):
    (tmp_path / "torch.py").write_text(f"import os\nREAD = os.environ.get('{VARIABLE}')\n")
    script = tmp_path / "train.py"
    script.write_text(
        f"import os\nos.environ['{VARIABLE}'] = '0'\nos.environ['DRAWN_OTHER'] = '0'\nimport torch\nprint(torch.READ)\n"
    )
    line = 2 if variable == VARIABLE else 3
    edit = RemoveSetting(str(script), line, f"os.environ.{variable}")
    plan, recording = tmp_path / "plan.json", tmp_path / "recording"
    (recording / "seen").mkdir(parents=True)
    plan.write_text(json.dumps(plan_to_json([Remedy("a#b", "c", Safety.SAME_BITS, (edit,))])))
    env = {**os.environ, "PYTHONPATH": inject_folder(), "UNSTALL_RECORDING": str(recording), "UNSTALL_PLAN": str(plan)}
    env.pop(VARIABLE, None)
    ended = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == ("None" if left_out else "0")
    assert len(list(recording.glob("met-0-*"))) == 1


def test_it_waits_for_torch_and_can_be_sent():
    edit = RemoveSetting("train.py", 4, "torch._inductor.config.cpp.simdlen")
    assert awaited(edit) == "torch"
    assert edit_from_json(json.loads(json.dumps(edit_to_json(edit)))) == edit


@pytest.mark.parametrize("name, value", [("cpp.simdlen", "1"), ("force_disable_caches", "True")])
def test_settings_of_inductor_are_left_out(tmp_path, name, value):
    config = pytest.importorskip("torch._inductor.config")
    script = tmp_path / "train.py"
    script.write_text(f"import torch\nimport torch._inductor.config\ntorch._inductor.config.{name} = {value}\n")
    space = {"torch": sys.modules["torch"]}
    before = eval(f"torch._inductor.config.{name}", space)
    code = compile(script.read_text(), str(script), "exec")
    with applied([RemoveSetting(str(script), 3, f"torch._inductor.config.{name}")]):
        exec(code, {})
        assert eval(f"torch._inductor.config.{name}", space) == before
    with config.patch({name: before}):
        exec(code, {})
        assert eval(f"torch._inductor.config.{name}", space) != before, "it was undone"
