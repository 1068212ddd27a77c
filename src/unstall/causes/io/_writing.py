"""Tell lines that write for people (metrics, prints, plots, files) from lines that train.

Three rules, each about what is called and never about what a training is named:

1. *By library*: the samples show the line inside a library whose job is to write (`SINKS`).
2. *By statement*: the statement writes (``print``, ``f.write``, ``writerow``, ...), or computes what only such
   statements of the same function read.
3. *By function*: the line is in a function that returns nothing, writes, and changes nothing that outlives it.

Whatever lies deeper inside a module's forward, a backward, an optimizer or a loader is training, and so is every
function that was seen to lead there.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
from collections.abc import Iterable, Iterator, Sequence

from unstall.model.finding import Line
from unstall.model.tables import HotLine

# module prefix -> functions of it that write; None for all
SINKS: tuple[tuple[str, frozenset[str] | None], ...] = (
    ("json.encoder", None),
    ("json", frozenset({"dump", "dumps"})),
    ("csv", frozenset({"writerow", "writerows", "_dict_to_list"})),
    ("pandas", frozenset({"to_csv", "to_json", "to_parquet", "to_pickle", "to_excel", "to_feather", "to_hdf"})),
    ("numpy", frozenset({"save", "savez", "savez_compressed", "savetxt", "array2string"})),
    ("torch._tensor_str", None),
    ("torch.utils.tensorboard", None),
    ("torchvision.utils", frozenset({"save_image", "make_grid", "draw_bounding_boxes"})),
    ("PIL.Image", frozenset({"save"})),
    ("yaml", frozenset({"dump", "dump_all", "safe_dump"})),
    ("lightning.pytorch.core.module", frozenset({"log", "log_dict"})),
    ("pytorch_lightning.core.module", frozenset({"log", "log_dict"})),
    ("lightning.pytorch.callbacks.progress", None),
    ("pytorch_lightning.callbacks.progress", None),
    ("lightning.pytorch.loggers", None),
    ("lightning.fabric.loggers", None),
    ("pytorch_lightning.loggers", None),
    ("lightning.pytorch.trainer.connectors.logger_connector", None),
    ("pytorch_lightning.trainer.connectors.logger_connector", None),
    ("transformers.trainer", frozenset({"log"})),
    ("transformers.trainer_callback", frozenset({"on_log"})),
    ("transformers.integrations.integration_utils", None),
    ("accelerate.tracking", None),
    *((name, None) for name in (
        "logging", "loguru", "structlog", "tqdm", "rich", "pprint", "matplotlib", "seaborn", "plotly", "imageio",
        "tensorboard", "tensorboardX", "wandb", "mlflow", "comet_ml", "neptune", "clearml", "aim", "visdom", "dvclive",
        "swanlab", "sacred",
    )),
)  # fmt: skip
TRAINS = ("torch.nn.modules", "torch.autograd", "torch._tensor.Tensor.backward", "torch.optim", "torch.utils.data",
          "torch._dynamo", "torch._inductor", "torch.distributed")  # fmt: skip

_WRITES = frozenset({
    "print", "pprint", "write", "writelines", "writerow", "writerows", "flush", "fsync", "imwrite", "imsave", "savefig",
    "savetxt", "savez", "savez_compressed", "save_image", "to_csv", "to_json", "to_parquet", "to_pickle", "add_scalar",
    "add_scalars", "add_histogram", "add_image", "add_images", "add_text", "add_figure", "add_video", "add_embedding",
    "log_metric", "log_metrics", "log_dict", "log_image", "log_artifact", "set_postfix", "set_postfix_str",
    "set_description",
})  # fmt: skip
_SERIALISES = frozenset({"dump", "dumps", "packb"})  # of one of these modules
_SERIALISERS = frozenset(
    {"json", "ujson", "orjson", "simplejson", "pickle", "cloudpickle", "dill", "msgpack", "yaml", "joblib"}
)
_SAYS = frozenset({"log", "debug", "info", "warning", "error", "exception", "save"})  # of something with such a name
_LOGGERS = ("wandb", "mlflow", "logg", "writer", "tracker", "tensorboard", "experiment", "fabric", "accelerator")
_TRAINING_CALLS = frozenset({"backward", "step", "zero_grad", "fit", "train", "training_step", "manual_backward"})

Statement = ast.stmt
Function = ast.FunctionDef | ast.AsyncFunctionDef
Frame = tuple[str, str]  # file, function


def by_library(path: Iterable[str]) -> bool:
    """Return whether the innermost frames of *path* that tell anything are a library's that writes."""
    for name in reversed(tuple(path)):
        if any(_within(name, module) for module in TRAINS):
            return False
        if any(_within(name, m) and (names is None or name.rpartition(".")[2] in names) for m, names in SINKS):
            return True
    return False


def trains(path: Iterable[str]) -> bool:
    return any(_within(name, module) for name in path for module in TRAINS)


def _within(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


class Source:
    """The user's source as far as it can be read, and the functions that were seen to train."""

    def __init__(self, lines: Iterable[HotLine], project: str = "") -> None:
        self._project = project
        self._train: set[Frame] = set()
        for line in lines:
            if any(trains(path) for path, _ in line.paths):
                self._train |= {(place.file, place.function) for place in line.chain}

    def writes_at(self, chain: tuple[Line, ...]) -> Line | None:
        """Return the line of *chain* from which on all is done to write, or None.

        Args:
            chain: the user's lines, outermost first.
        """
        loop = max((n for n, place in enumerate(chain) if self._is_training(place)), default=-1)
        for n in range(max(0, loop), len(chain)):
            if n > max(0, loop) and self._only_writes(chain[n]):
                return chain[n - 1]
            if self._statement_writes(chain[n]):
                return chain[n]
        return None

    def _is_training(self, place: Line) -> bool:
        if (place.file, place.function) in self._train:
            return True
        function = _function_at(self._tree(place), place.line)
        return function is not None and any(_name(call) in _TRAINING_CALLS for call in _calls(function))

    def _tree(self, place: Line) -> ast.Module | None:
        return _parsed(os.path.join(self._project, place.file))

    def _statement_writes(self, place: Line) -> bool:
        tree = self._tree(place)
        found = _statements_at(tree, place.line) if tree is not None else _statements_of(place.code)
        calling = [statement for statement in found if any(_calls(statement))]
        if not calling:
            return False
        function = _function_at(tree, place.line)
        scope: ast.AST | None = function if function is not None else tree
        return all(_writes(s) or (scope is not None and _feeds(s, scope)) for s in calling)

    def _only_writes(self, place: Line) -> bool:
        """Return whether the function around *place* returns nothing, writes, and changes nothing but its own."""
        tree = self._tree(place)
        function = _function_at(tree, place.line)
        if tree is None or function is None or _returns(function) or _changes(function):
            return False
        return _writes_within(function, tree, 2)


@functools.lru_cache(maxsize=256)
def _parsed(path: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(path))) if os.path.isfile(path) else None
    except (SyntaxError, ValueError):
        return None


def _statements_of(code: str) -> list[Statement]:
    for text in (code, code + " pass"):
        try:
            return [_head(statement) for statement in ast.parse(text).body]
        except (SyntaxError, ValueError):
            continue
    return []


def _statements_at(tree: ast.Module, line: int) -> list[Statement]:
    """Return the statements that stand on *line*; of a compound one its head only."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
            if node.lineno <= line <= max(node.lineno, last):
                found.append(_head(node))
    return found


def _head(statement: Statement) -> Statement:
    """Return *statement*, of a `with` the context managers alone, of any other compound one nothing."""
    if isinstance(statement, ast.With):
        return ast.Expr(ast.Tuple([item.context_expr for item in statement.items], ast.Load()))
    return ast.Pass() if hasattr(statement, "body") else statement


def _function_at(tree: ast.Module | None, line: int) -> Function | None:
    found = None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            found = node if found is None or node.lineno >= found.lineno else found
    return found


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _owner(call: ast.Call) -> str:
    """Return what the method is called on, as ``self.writer``; "" for a plain function."""
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _is_write(call: ast.Call) -> bool:
    name, owner = _name(call), _owner(call)
    if name in _SERIALISES:
        return owner.rpartition(".")[2] in _SERIALISERS
    if name in _SAYS:
        saves = name == "save" and owner in ("np", "numpy")
        return saves or (name != "save" and any(word in owner.lower() for word in _LOGGERS))
    if name == "open":
        modes = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        return any(isinstance(mode, ast.Constant) and set(str(mode.value)) & set("wax+") for mode in modes)
    return name in _WRITES or (owner == "os" and name in ("replace", "rename"))


def _writes(node: ast.AST) -> bool:
    return any(_is_write(call) for call in _calls(node))


def _writes_within(function: Function, tree: ast.Module, depth: int) -> bool:
    """Return whether *function* writes, itself or through functions of its file."""
    if _writes(function):
        return True
    names = {_name(call) for call in _calls(function)} - {function.name} if depth else set()
    inner = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name in names)
    return any(_writes_within(other, tree, depth - 1) for other in inner)


def _returns(function: Function) -> bool:
    return any(
        isinstance(node, ast.Yield | ast.YieldFrom) or (isinstance(node, ast.Return) and node.value is not None)
        for node in ast.walk(function)
    )


def _changes(function: Function) -> bool:
    """Return whether *function* writes into tensors or containers that it did not make, or calls what trains."""
    stores = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            name = _name(node)
            if name in _TRAINING_CALLS or (name.endswith("_") and not name.endswith("__")):
                return True
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            base = node.value
            if not (isinstance(base, ast.Name) and base.id in stores):
                return True
    return False


def _feeds(statement: Statement, scope: ast.AST) -> bool:
    """Return whether *statement* gives values to names that only writing statements of *scope* read."""
    simple = [
        s for s in ast.walk(scope) if isinstance(s, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return | ast.AugAssign)
    ]
    wanted = _targets(statement)
    return bool(wanted) and all(_read_to_write(name, scope, simple, 2) for name in wanted)


def _targets(statement: ast.AST) -> set[str]:
    """Return the plain names that an assignment gives values to; empty where it stores anywhere else."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return set()
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    parts = [part for t in targets for part in (t.elts if isinstance(t, ast.Tuple | ast.List) else [t])]
    return (
        {part.id for part in parts if isinstance(part, ast.Name)}
        if all(isinstance(p, ast.Name) for p in parts)
        else set()
    )


def _read_to_write(name: str, scope: ast.AST, simple: Sequence[ast.stmt], depth: int) -> bool:
    reads = sum(_reads(node, name) for node in ast.walk(scope))
    inside = 0
    for statement in simple:
        count = sum(_reads(node, name) for node in ast.walk(statement))
        if not count:
            continue
        if isinstance(statement, ast.Expr) and _writes(statement):
            inside += count
        elif depth and (targets := _targets(statement)) and name not in targets:
            inside += count if all(_read_to_write(t, scope, simple, depth - 1) for t in targets) else 0
    return reads > 0 and inside == reads


def _reads(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
