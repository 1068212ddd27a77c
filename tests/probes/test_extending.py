"""What is told of extensions in C++ that a training builds, on live trainings; the extension is a line of C."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from unstall.pipeline import RunOptions, run
from unstall.probes import extending
from unstall.readers import recording

needs_compiler = pytest.mark.skipif(not shutil.which("ninja") or not shutil.which("c++"), reason="no ninja, or no c++")
SCRIPT = """\
import os
import own as mine_to_call
import torch
from torch.utils.cpp_extension import load, load_inline

def built(name, source, **settings):
    return load(name, [source], is_python_module=False, **settings)

os.makedirs("here", exist_ok=True)
built("one", "one.cpp", extra_cflags=["-O2", os.environ["FLAG"]], build_directory="here")
built("one", "one.cpp", extra_cflags=["-O2", os.environ["FLAG"]], build_directory="here")
built("two", "two.cpp")
with open("mine.cpp", "w") as file:
    file.write('extern "C" int mine() { return 1; }')
built("mine", "mine.cpp")
load_inline(
    "text", 'extern "C" int text(int n) { for (;n > 9;) n /= 2; return n; }',
    no_implicit_headers=True, is_python_module=False)

net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(12):
    opt.zero_grad()
    net(torch.randn(4, 4)).sum().backward()
    opt.step()
"""

OWN = """\
#include <Python.h>
static PyModuleDef own = {PyModuleDef_HEAD_INIT, "own", 0, -1, 0};
PyMODINIT_FUNC PyInit_own() { return PyModule_Create(&own); }
"""


def build_own(folder: Path) -> None:
    """Build an extension module without torch, whose compiler notes its flags."""
    (folder / "own.cc").write_text(OWN)
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["c++", "-shared", "-fPIC", "-g", include, "own.cc", "-o", "own.so"], cwd=folder, check=True)


def told_by(script: Path) -> dict[str, list[dict[str, object]]]:
    report = run([str(script)], RunOptions(command=(str(script),), out=script.parent / "recording"))
    assert report.exit_code == 0 and not [warning for warning in report.warnings if "probe" in warning]
    told: dict[str, list[dict[str, object]]] = {}
    facts = recording.read(Path(report.recording)).ranks[0].facts
    for one in (*facts.family("extension").values(), *facts.family("native").values()):
        told.setdefault(one.text("name") or "called", []).append(dict(one.known))
    return told


@needs_compiler
def test_builds_are_told_with_their_line_their_flags_and_whether_a_start_before_had_made_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("FLAG", "-DFIRST")
    source, script = tmp_path / "one.cpp", tmp_path / "train.py"
    source.write_text('extern "C" int one() { return 1; }')
    other = tmp_path / "two.cpp"
    other.write_text('extern "C" int two() { return 2; }')
    script.write_text(SCRIPT)
    build_own(tmp_path)
    first = told_by(script)
    new, again = first["one"]
    assert str(new["site"]).endswith("train.py:7:built") and new["flags"] == ["-O2", "-DFIRST"]
    assert new["rebuilt"] and not new["had"] and new["build_ns"] > 0 and new["phase"] == "STARTUP"
    assert new["named"] == "argument" and new["file"] == str(tmp_path / "here" / "one.so") and not new["loops"]
    assert not again["rebuilt"] and again["had"] and again["build_ns"] == 0
    assert first["mine"][0]["named"] == "variable" and first["mine"][0]["rewritten"]
    assert first["text"][0]["inline"] and first["text"][0]["loops"] and not first["text"][0]["rewritten"]

    assert first["two"][0]["rebuilt"]
    (called,) = first["called"]
    assert called["file"] == str(tmp_path / "own.so") and called["names"] == ["mine_to_call"]
    assert called["noted"] and "-g" in called["flags"]
    monkeypatch.setenv("FLAG", "-DSECOND")
    other.write_text('extern "C" int two() { return 3; }')
    second = told_by(script)
    assert not second["text"][0]["rebuilt"] and second["text"][0]["had"]
    assert second["mine"][0]["rebuilt"] and second["mine"][0]["rewritten"], "its source is newer than its library"
    flag, edited = second["one"][0], second["two"][0]
    assert flag["rebuilt"] and flag["builds"] == 1 and not flag["edited"] and not flag["rewritten"]
    assert edited["rebuilt"] and edited["edited"] and not edited["rewritten"]


def test_a_folder_is_named_by_who_named_it(monkeypatch):
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    assert extending.named_by("/home/a/.cache/torch_extensions/py311_cpu/ext", "/home/a/.cache/torch_extensions") == ""
    assert (
        extending.named_by("/home/a/.cache/torch_extensions_of_mine", "/home/a/.cache/torch_extensions") == "argument"
    )
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/kept")
    assert extending.named_by("/kept/ext", "/home/a/.cache/torch_extensions") == "variable"
    assert extending.named_by("/keptother/ext", "/home/a/.cache/torch_extensions") == "argument"


def test_links_are_counted_in_ninjas_log_and_other_outputs_are_not(tmp_path):
    lines = [
        "# ninja log v5",
        "0\t9\t1\tmain.o\ta1",
        "9\t10\t2\text.so\tb1",
        "0\t9\t3\tmain.o\ta2",
        "9\t10\t4\text.so\tb2",
    ]
    (tmp_path / ".ninja_log").write_text("\n".join([*lines, "9\t10\t4\text2.so\tb2", ""]))
    assert extending.builds_of(str(tmp_path), "ext") == 2
    assert extending.builds_of(str(tmp_path / "none"), "ext") == 0


def test_a_source_that_calls_tensor_operations_only_has_no_loop_of_its_own(tmp_path):
    source = tmp_path / "ext.cpp"
    source.write_text("at::Tensor f(at::Tensor x) { return x.sigmoid() * x; }  // formula")
    assert not extending.has_loop(str(source))
    source.write_text("void f(float* x, int n) { for(int i = 0; i < n; ++i) x[i] *= 2; }")
    assert extending.has_loop(str(source))


class Proxy:
    """Stands for something that is not there yet, as those of web frameworks do."""

    @property
    def __class__(self):
        raise RuntimeError("not there yet")


class Lazy(ModuleType):
    def __getattr__(self, name):
        raise AssertionError(f"{name} would be imported")


def test_extensions_are_found_by_the_names_of_the_users_modules_and_neither_proxies_nor_lazy_modules_are_woken(
    monkeypatch,
):
    script, library, other = ModuleType("script_of_this_test"), ModuleType("_kernels"), ModuleType("other")
    script.__file__, library.__file__, other.__file__ = "/job/train.py", "/job/_kernels.so", "/env/site-packages/o.so"
    vars(script).update(kernels=library, other=other, proxy=Proxy(), lazy=Lazy("lazy"), length=len)
    monkeypatch.setitem(sys.modules, script.__name__, script)
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    monkeypatch.setitem(sys.modules, "proxy", Proxy())
    assert ("/job/_kernels.so", "kernels") in set(extending.called_natives())
    assert not [file for file, _ in extending.called_natives() if file == "/env/site-packages/o.so"]
