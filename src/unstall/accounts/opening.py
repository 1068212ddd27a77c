"""What a line opens, or reads whole: the same file each time it runs, or another one for each sample."""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

OPENERS = frozenset(
    [
        "open",
        "io.open",
        "gzip.open",
        "bz2.open",
        "lzma.open",
        "mmap.mmap",
        "tarfile.open",
        "zipfile.ZipFile",
        "h5py.File",
        "sqlite3.connect",
        "duckdb.connect",
        "lmdb.open",
        "lmdb.Environment",
        "psycopg2.connect",
        "psycopg.connect",
        "pymysql.connect",
        "pymongo.MongoClient",
        "redis.Redis",
        "boto3.client",
        "boto3.resource",
        "numpy.load",
        "numpy.memmap",
        "numpy.loadtxt",
        "numpy.genfromtxt",
        "numpy.fromfile",
        "numpy.lib.format.open_memmap",
        "json.load",
        "pickle.load",
        "marshal.load",
        "torch.load",
        "joblib.load",
        "yaml.load",
        "yaml.safe_load",
        "pandas.read_csv",
        "pandas.read_parquet",
        "pandas.read_pickle",
        "pandas.read_hdf",
        "pandas.read_json",
        "pandas.read_feather",
        "pandas.read_excel",
        "pandas.read_table",
        "pandas.HDFStore",
        "polars.read_csv",
        "polars.read_parquet",
        "polars.scan_parquet",
        "pyarrow.memory_map",
        "pyarrow.parquet.read_table",
        "pyarrow.parquet.ParquetFile",
        "pyarrow.feather.read_table",
        "netCDF4.Dataset",
        "xarray.open_dataset",
        "xarray.open_zarr",
        "zarr.open",
        "zarr.open_group",
        "rasterio.open",
        "nibabel.load",
        "scipy.io.loadmat",
        "scipy.io.mmread",
        "scipy.sparse.load_npz",
        "tables.open_file",
        "safetensors.safe_open",
        "safetensors.torch.load_file",
        "cv2.VideoCapture",
        "decord.VideoReader",
        "av.open",
        "tifffile.TiffFile",
        "tifffile.imread",
        "openslide.OpenSlide",
        "PIL.Image.open",
        "imageio.get_reader",
        "soundfile.SoundFile",
        "torchaudio.load",
    ]
)
_READS = frozenset({"open", "read_text", "read_bytes"})  # methods of a path
_FROM_THE_START = frozenset({"islice", "itertools.islice", "list", "readlines"})
_PATHS = frozenset({"str", "os.fspath", "pathlib.Path", "pathlib.PurePath", "os.fsencode", "format", "joinpath"})
_PATHS_OF_PATH = frozenset({"resolve", "expanduser", "absolute", "with_suffix", "with_name"})
_LONGEST = 60  # characters of a call that is quoted

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def opened_again(file: str, line: int) -> str:
    """Return the call by which *line* opens or reads what it opened the time before too, or "".

    The line calls an opener (or closes what one gave, or reads it from its start) whose argument does not depend on the
    arguments of the function: a constant, a variable of the module, an attribute of ``self``. What is opened for an
    index (``self.files[i]``) may be another file each time; ``self.shards[i // 1000]`` is not.
    """
    tree = _tree(file, _changed(file))
    function = None if tree is None else _function_at(tree, line)
    if tree is None or function is None or _runs_once(function):
        return ""
    scope = _Scope(function, _names(tree))
    for node in _innermost_first(function, line):
        if call := scope.opened_by(node):
            text = ast.unparse(call)
            return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return ""


def _changed(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=64)
def _tree(file: str, changed: int) -> ast.Module | None:
    try:
        return ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _function_at(tree: ast.Module, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=None)


def _runs_once(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the function's opening serves many samples: a constructor, a generator, one that keeps results."""
    keeps = any("cache" in ast.unparse(decorator) for decorator in function.decorator_list)
    yields = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function))
    return keeps or yields or function.name in ("__init__", "__iter__", "__setstate__")


def _names(tree: ast.Module) -> dict[str, str]:
    """Return what imported names stand for, as ``{"np": "numpy", "ZipFile": "zipfile.ZipFile"}``."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                head = alias.name.partition(".")[0]
                known[alias.asname or head] = alias.name if alias.asname else head
        elif isinstance(node, ast.ImportFrom) and node.module:
            known |= {(alias.asname or alias.name): f"{node.module}.{alias.name}" for alias in node.names}
    return known


def _innermost_first(function: ast.AST, line: int) -> Iterator[ast.AST]:
    """Yield what stands on *line*: expressions, and the heads or loops of statements; the shortest first."""
    there = [
        node
        for node in ast.walk(function)
        if isinstance(node, (ast.Call, ast.For, ast.withitem)) and _first(node) <= line <= _last(node)
    ]
    yield from sorted(there, key=lambda node: _last(node) - _first(node))


def _first(node: ast.AST) -> int:
    return node.context_expr.lineno if isinstance(node, ast.withitem) else int(getattr(node, "lineno", 0))


def _last(node: ast.AST) -> int:
    of = node.context_expr if isinstance(node, ast.withitem) else node
    return int(getattr(of, "end_lineno", 0) or 0)


class _Scope:
    """What the expressions of one function rest on."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef, names: dict[str, str]) -> None:
        args = function.args
        self.names = names
        self.given = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg) if a}
        self.given -= {"self", "cls"}
        self.bound: dict[str, list[ast.expr | None]] = {}  # by None: to something that is not followed
        for node in ast.walk(function):
            self._bind(node)

    def _bind(self, node: ast.AST) -> None:
        value: ast.expr | None = None
        targets: Iterable[ast.expr] = ()
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else (node.target,)
            value = None if isinstance(node, ast.AugAssign) else node.value
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            targets, value = (node.optional_vars,), node.context_expr
        elif isinstance(node, (ast.For, ast.comprehension)):
            targets = (node.target,)
        for target in targets:
            for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else (target,):
                whole = value if part is target else None
                self.bound.setdefault(ast.unparse(part), []).append(whole)

    def opened_by(self, node: ast.AST) -> ast.Call | None:
        """Return the call by which *node* opens, closes or reads from its start what is the same each time."""
        if isinstance(node, ast.For):
            return self.handle(node.iter)
        if isinstance(node, ast.withitem):
            return self.handle(node.context_expr) or self._within(node.context_expr)
        assert isinstance(node, ast.Call)
        if self.opens(node):
            return node
        name, method = self.name(node.func), getattr(node.func, "attr", "")
        whole = method in ("close", "readlines") or (method == "read" and not node.args)
        if isinstance(node.func, ast.Attribute) and whole:
            return self.handle(node.func.value)
        if name in _FROM_THE_START and node.args:
            return self.handle(node.args[0])
        return None

    def _within(self, expression: ast.expr) -> ast.Call | None:
        calls = (node for node in ast.walk(expression) if isinstance(node, ast.Call))
        return next((call for call in calls if self.opens(call)), None)

    def opens(self, call: ast.Call) -> bool:
        """Return whether *call* opens or reads whole what is the same each time."""
        if self.name(call.func) in OPENERS:
            told = [*call.args, *(k.value for k in call.keywords if k.arg in ("file", "filename", "path", "database"))]
            return bool(told) and self.same(told[0])
        reads = isinstance(call.func, ast.Attribute) and call.func.attr in _READS
        return reads and isinstance(call.func, ast.Attribute) and self._path(call.func.value)

    def _path(self, node: ast.expr) -> bool:
        """Return whether *node* is a path that is the same each time: named so, or made by ``Path(...)``."""
        made = isinstance(node, ast.Call) and self.name(node.func) == "pathlib.Path"
        named = any(word in ast.unparse(node).lower() for word in ("path", "file", "root"))
        return (made or named) and self.same(node)

    def handle(self, node: ast.expr) -> ast.Call | None:
        """Return the call that opened what *node* reads from, where that is opened by this function each time."""
        if isinstance(node, ast.Call):
            if self.opens(node):
                return node
            return next((found for arg in node.args if (found := self.handle(arg))), None)  # csv.reader(f)
        if isinstance(node, (ast.Name, ast.Attribute)):
            values = self.bound.get(ast.unparse(node), [])
            return next((found for v in values if v is not None and (found := self.handle(v))), None)
        return None

    def name(self, function: ast.expr) -> str:
        """Return the full dotted name of what is called, or its last part where it is a method of something else."""
        text = ast.unparse(function) if isinstance(function, (ast.Name, ast.Attribute)) else ""
        head, dot, rest = text.partition(".")
        return f"{self.names[head]}{dot}{rest}" if head in self.names else text

    def same(self, node: ast.AST, depth: int = 8) -> bool:
        """Return whether *node* is the same whenever the function runs, as far as its text tells."""
        if depth == 0:
            return False

        def all_same(parts: Iterable[ast.AST]) -> bool:
            return all(self.same(part, depth - 1) for part in parts)

        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)):
            text = ast.unparse(node)
            if text in self.bound:
                return all(value is not None and self.same(value, depth - 1) for value in self.bound[text])
            return text not in self.given if isinstance(node, ast.Name) else self.same(node.value, depth - 1)
        if isinstance(node, ast.Subscript):
            return self.same(node.value, depth - 1) and (_shares(node.slice) or self.same(node.slice, depth - 1))
        if isinstance(node, ast.Call):
            return self._call_is_same(node, all_same)
        if isinstance(node, (ast.BinOp, ast.JoinedStr, ast.FormattedValue, ast.IfExp, ast.Tuple, ast.List)):
            return all_same(part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
        return False

    def _call_is_same(self, call: ast.Call, all_same: object) -> bool:
        assert callable(all_same)
        name = self.name(call.func)
        of_path = isinstance(call.func, ast.Attribute) and call.func.attr in _PATHS | _PATHS_OF_PATH
        if not (name in _PATHS or name in OPENERS or name.startswith("os.path.") or of_path):
            return False
        parts = [call.func.value] if of_path and isinstance(call.func, ast.Attribute) else []
        return bool(all_same([*parts, *call.args]))


def _shares(index: ast.expr) -> bool:
    """Return whether an index is one for many samples: ``i // 1000``."""
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) for node in ast.walk(index))
