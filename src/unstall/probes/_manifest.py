"""What Inductor made of one graph, read out of the Python that it wrote: kernels, calls that it left to others, bytes.

The text is that of torch 2.6 to 2.13. A size that is not a number (dynamic shapes) counts as none.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field

MOST_LINES = 4000  # of calls, remembered one by one
MOST_NAMES = 60  # of kernels, and of library calls, of one graph

_KERNEL = re.compile(r"^(?:cpp|triton|mps)\w*?fused(?:_([A-Za-z_]\w*?))?(?:_\d+)?(?:\.run)?\((.*)\)")
_EXTERN = re.compile(r"^(?:\w+ = )?extern_kernels\.(\w+)\((.*)\)")
_LEFT = re.compile(r"^(?:(\w+) = )?(?:torch\.ops\.|(?=aten\.))(\w+(?:\.\w+)+)\((.*)\)")
_ALLOCATED = re.compile(r"^(\w+) = empty_strided\w*\(\(([^()]*)\), \([^()]*\), torch\.(\w+)")
_VIEWED = re.compile(r"^(\w+) = reinterpret_tensor\((\w+), \(([^()]*)\)")
_NAMED = re.compile(r"^(\w+) = (\w+)(?:\[\d+\])?(?:;|$)")
_CHECKED = re.compile(r"^assert_size_stride\((\w+), \(([^()]*)\)")
_RETURNED = re.compile(r"^return \((.*)\)")
_GRAPH = re.compile(r"^# AOT ID: \['(\w+)'\]", re.MULTILINE)
_BEGINS, _ENDS = re.compile(r"^ *def (call|partition_\d+)\("), re.compile(r"^def benchmark")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
# other namespaces' ways to do what no fusion could: matrix products, collectives, memory, random streams
_NEEDED = (
    "mkldnn",
    "mkl",
    "quantized",
    "onednn",
    "inductor",
    "_c10d_functional",
    "c10d",
    "prims",
    "rngprims",
    "higher_order",
)


@dataclass
class Left:
    """An operator that Inductor wrote no code for, as called at *lines* of what it wrote.

    Attributes:
        taken, given: bytes of the tensors that it takes and gives, summed over the lines.
        before, after: calls that take what a kernel gave, and whose result a kernel takes.
        alike: each tensor that it takes fits the shape of what it gives, as in an operator that works element by element.
    """

    lines: list[int] = field(default_factory=list)
    taken: int = 0
    given: int = 0
    before: int = 0
    after: int = 0
    alike: bool = True


@dataclass
class Manifest:
    """What one graph was turned into; *moved* bytes the kernels take and give, *least* would were they one.

    Attributes:
        patterns: calls of kernels by what is fused in them, as ``mul_sigmoid``; libraries: calls of matrix products by name.
    """

    graph: str
    kernels: list[int] = field(default_factory=list)
    externs: list[int] = field(default_factory=list)
    left: dict[str, Left] = field(default_factory=dict)
    moved: int = 0
    least: int = 0
    patterns: dict[str, int] = field(default_factory=dict)
    libraries: dict[str, int] = field(default_factory=dict)


Shape = tuple[int, ...]


@dataclass
class _Call:
    line: int
    kind: str  # "kernel", "extern" or the operator's name
    takes: list[str]
    gives: str = ""
    name: str = ""


class _Reader:
    """Goes through the text once, and remembers each buffer's size and what it was made from."""

    def __init__(self) -> None:
        self.shapes: dict[str, Shape] = {}
        self.widths: dict[str, int] = {}
        self.origin: dict[str, str] = {}
        self.calls: list[_Call] = []
        self.returned: set[str] = set()

    def read(self, number: int, text: str) -> None:
        if match := _ALLOCATED.match(text):
            self.size(match[1], match[2], _width(match[3]))
        elif match := _VIEWED.match(text):
            self.same(match[1], match[2], text)
            self.size(match[1], match[3], self.widths.get(match[2], 4))
        elif match := _CHECKED.match(text):
            self.size(match[1], match[2], self.widths.get(match[1], 4))
        elif match := _NAMED.match(text):
            self.same(match[1], match[2], text)
        elif match := _RETURNED.match(text):
            self.returned.update(map(self.root, _WORD.findall(match[1])))
        else:
            self.call(number, text)

    def call(self, number: int, text: str) -> None:
        for kind, sign in (("kernel", _KERNEL), ("extern", _EXTERN)):
            if match := sign.match(text):
                self.calls.append(_Call(number, kind, _WORD.findall(match[2]), name=match[1] or ""))
                return
        if (match := _LEFT.match(text)) and match[2].partition(".")[0] not in _NEEDED:
            self.calls.append(_Call(number, match[2], _WORD.findall(match[3]), match[1] or ""))

    def size(self, name: str, dims: str, width: int) -> None:
        parts = [part.strip() for part in dims.split(",") if part.strip()]
        if all(part.isdigit() for part in parts):
            self.shapes[name], self.widths[name] = tuple(map(int, parts)), width

    def same(self, name: str, other: str, text: str) -> None:
        """Note that *name* is *other*: only its memory where it is used anew, else the same data."""
        if other in self.shapes:
            self.shapes[name], self.widths[name] = self.shapes[other], self.widths[other]
        if "# reuse" not in text:
            self.origin[name] = other

    def root(self, name: str) -> str:
        while name in self.origin:
            name = self.origin[name]
        return name

    def nbytes(self, name: str) -> int:
        return math.prod(self.shapes[name]) * self.widths[name] if name in self.shapes else 0


def manifest_of(source: str) -> Manifest:
    """Return what the code that Inductor wrote for one graph calls; empty of calls where it is not Python.

    Cost: O(lines), about 1 us each.
    """
    named = _GRAPH.search(source)
    made, reader = Manifest(named[1] if named else ""), _Reader()
    within = False
    for number, text in enumerate(source.splitlines(), 1):
        within = (within or bool(_BEGINS.match(text))) and not _ENDS.match(text)
        if within:
            reader.read(number, text.strip())
    kernels = [call for call in reader.calls if call.kind == "kernel"]
    met = [{reader.root(name) for name in call.takes} for call in kernels]
    made.kernels = [call.line for call in kernels][:MOST_LINES]
    made.externs = [call.line for call in reader.calls if call.kind == "extern"][:MOST_LINES]
    for call in reader.calls:
        if call.kind not in ("kernel", "extern"):
            _add_left(made.left.setdefault(call.kind, Left()), call, kernels, met, reader)
    made.patterns = dict(Counter(call.name for call in kernels).most_common(MOST_NAMES))
    made.libraries = dict(Counter(call.name for call in reader.calls if call.kind == "extern").most_common(MOST_NAMES))
    made.moved = sum(reader.nbytes(name) for call in kernels for name in set(call.takes))
    made.least = _least(reader, met)
    return made


def _add_left(left: Left, call: _Call, kernels: list[_Call], met: list[set[str]], reader: _Reader) -> None:
    given = [name for name in reader.shapes if call.gives and call.gives in (name, reader.root(name))]
    result = max(given, key=reader.nbytes, default="")
    takes = [name for name in dict.fromkeys(call.takes) if name in reader.shapes]
    roots = {reader.root(name) for name in takes}
    left.lines.append(call.line)
    left.taken += sum(map(reader.nbytes, takes))
    left.given += sum(reader.nbytes(name) for name in given if name not in reader.origin or name == result)
    at = sum(kernel.line < call.line for kernel in kernels)
    buffers = {root for root in roots if root.startswith("buf")}
    left.before += any(buffers & names for names in met[:at])
    left.after += any(call.gives in names for names in met[at:])
    shape = reader.shapes.get(result)
    left.alike &= shape is not None and bool(takes) and all(_fits(reader.shapes[name], shape) for name in takes)


def _fits(shape: Shape, whole: Shape) -> bool:
    """Return whether a tensor of *shape* has as many elements as *whole*, or can be expanded to it."""
    if math.prod(shape) == math.prod(whole):
        return True
    ends = zip(reversed(shape), reversed(whole))
    return len(shape) <= len(whole) and all(a in (1, b) for a, b in ends)


def _least(reader: _Reader, met: list[set[str]]) -> int:
    """Return the bytes that kernels would move were they one: the graph's own tensors, and what other calls share."""
    others = {reader.root(name) for call in reader.calls if call.kind != "kernel" for name in (*call.takes, call.gives)}
    used = set().union(*met) if met else set()
    crossing = {name for name in used if not name.startswith("buf") or name in others or name in reader.returned}
    return sum(map(reader.nbytes, crossing))


def _width(dtype: str) -> int:
    if match := re.search(r"(\d+)", dtype):
        return max(1, int(match[1]) // 8)
    return 1
