"""Callbacks after an import come when the module is whole, also where it was asked for in the midst of its import."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

import unstall

INJECTED = Path(unstall.__file__).parent / "launch" / "inject" / "sitecustomize.py"


@pytest.fixture
def imports(monkeypatch, tmp_path):
    monkeypatch.delenv("UNSTALL_RECORDING", raising=False)
    spec = importlib.util.spec_from_file_location("injected", INJECTED)
    injected = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(injected, "chain", lambda: None, raising=False)
    spec.loader.exec_module(injected)
    imports = injected.AfterImport()
    monkeypatch.setattr(sys, "meta_path", [imports, *sys.meta_path])
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("drawn_outer", "drawn_inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield imports
    for name in ("drawn_outer", "drawn_inner"):
        sys.modules.pop(name, None)


def ask(imports, got):
    for number in (1, 2):
        imports.when("drawn_outer", lambda module, number=number: got.append((number, module.LATE)))


@pytest.mark.parametrize("midway", [True, False])
def test_the_module_is_whole_when_the_callback_comes(imports, tmp_path, midway):
    got = []
    (tmp_path / "drawn_inner.py").write_text("")
    (tmp_path / "drawn_outer.py").write_text("import drawn_inner\nLATE = 1\n")
    if midway:
        imports.when("drawn_inner", lambda _: ask(imports, got))
    else:
        ask(imports, got)
    import drawn_outer

    assert got == [(1, 1), (2, 1)]
    assert type(drawn_outer.__spec__) is ModuleSpec
    ask(imports, got)
    assert len(got) == 4


def test_no_callback_comes_where_the_import_fails(imports, tmp_path):
    got = []
    (tmp_path / "drawn_inner.py").write_text("")
    (tmp_path / "drawn_outer.py").write_text("import drawn_inner\nraise ValueError\n")
    imports.when("drawn_inner", lambda _: ask(imports, got))
    with pytest.raises(ValueError):
        import drawn_outer  # noqa: F401
    assert got == []
