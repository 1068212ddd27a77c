"""A remedy: a change to the run, as data.

An edit says *what* changes, at one call site.  ``remedies/override.py`` carries it out in
a live process and ``remedies/patch.py`` in source text, so the two cannot drift apart,
and a plan can be written to JSON, sent to another process, and shown in a report.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

Scalar = bool | int | float | str | None


class Safety(str, Enum):
    """What a remedy may do to the training, in this run."""

    SAME_BITS = "SAME_BITS"  # not one bit of the losses differs
    SAME_DISTRIBUTION = "SAME_DISTRIBUTION"  # only which random numbers are drawn differs
    SAME_MATH = "SAME_MATH"  # only rounding differs
    CHANGES_TRAINING = "CHANGES_TRAINING"  # precision, batch size, order, accumulation


@dataclass(frozen=True, slots=True)
class SetKeyword:
    """Pass *keyword* = *value* to the call of *call* that begins on *line* of *file*.

    Attributes:
        call: dotted import path of what is called, as ``torch.utils.data.DataLoader``.
        position: where the parameter stands when passed without its name (``self`` not counted), or None for keyword-only.
    """

    file: str
    line: int
    call: str
    keyword: str
    value: Scalar
    position: int | None = None


@dataclass(frozen=True, slots=True)
class RemoveCall:
    """Do not make the call of *call* on *line* of *file*; for statements whose result is not used."""

    file: str
    line: int
    call: str


@dataclass(frozen=True, slots=True)
class CallFirst:
    """Instead of *call* on *line* of *file* call what is its first argument, with the other arguments.

    ``checkpoint(block, x, use_reentrant=False)`` becomes ``block(x)``, and ``torch.compile(net, dynamic=True)`` with
    *method* "compile" becomes ``net.compile(dynamic=True)``.

    Attributes:
        method: of the first argument; "" to call itself.
        dropped: keywords that are for *call* alone.
    """

    file: str
    line: int
    call: str
    method: str = ""
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Named:
    """A value that is written by its name: a dotted import path, as ``torch.channels_last``."""

    path: str


Value = Scalar | Named


@dataclass(frozen=True, slots=True)
class WrapCall:
    """Hand what the call of *call* on *line* of *file* makes to *wrapper*, and use what that returns.

    ``Net(8)`` becomes ``torch.compile(Net(8), dynamic=False)``.

    Attributes:
        call: dotted import path of the class or function that is called. A class of the script itself, which cannot be
            imported, is given by its name.
        wrapper: dotted import path of a function; the file has to import it, or a package that it is of.
        keywords: further arguments of *wrapper*, by name.
        made: import path of a class that *call* is, or is derived from; "" where *call* is no class, but a function or
            method that can be imported.
    """

    file: str
    line: int
    call: str
    wrapper: str
    keywords: tuple[tuple[str, Value], ...] = ()
    made: str = "torch.nn.Module"


@dataclass(frozen=True, slots=True)
class CallMethod:
    """Call *method* of what the call of *call* on *line* of *file* makes, once the statement has given it a name.

    ``model = Net(8)`` is followed by ``model.compile()``. What the object is called elsewhere does not matter, so this is
    for methods that change it in place.

    Attributes:
        call, made: as of `WrapCall`. keywords: arguments of *method*, by name.
    """

    file: str
    line: int
    call: str
    method: str
    keywords: tuple[tuple[str, Value], ...] = ()
    made: str = "torch.nn.Module"


@dataclass(frozen=True, slots=True)
class ListItems:
    """Hand the call of *call* on *line* of *file* a list of all items of an argument, in the place of that argument.

    ``DataLoader(data, 8)`` becomes ``DataLoader([data[i] for i in range(len(data))], 8)``: each sample is made once.

    Attributes:
        keyword, position: of the argument, as of `SetKeyword`.
    """

    file: str
    line: int
    call: str
    keyword: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class AmendList:
    """In the list of strings that the call of *call* on *line* of *file* is given, leave out *dropped* and add *items*.

    ``load(name, sources, extra_cflags=["-O0"])`` becomes ``load(name, sources, extra_cflags=["-O3"])``; where the call is
    given no list, it is given one of *items*.

    Attributes:
        keyword, position: of the argument, as of `SetKeyword`.
    """

    file: str
    line: int
    call: str
    keyword: str
    items: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    position: int | None = None


@dataclass(frozen=True, slots=True)
class RemoveSetting:
    """Do not set *target*, a dotted import path, on *line* of *file*: ``config.cpp.simdlen = 1`` goes.

    An environment variable that the script sets is one too: ``os.environ.NAME`` stands for ``os.environ["NAME"]``.
    """

    file: str
    line: int
    target: str


@dataclass(frozen=True, slots=True)
class SetEnvironment:
    """Start the command with *variable* set to *value*."""

    variable: str
    value: str


@dataclass(frozen=True, slots=True)
class AddCall:
    """Call *call* with *arguments* at the head of *file*, once its imports are done.

    Attributes:
        call: dotted import path of a function ``set_x`` beside which a ``get_x`` tells what there is to put back.
    """

    file: str
    call: str
    arguments: tuple[Scalar, ...]

    @property
    def line(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Members:
    """A set of what is named by dotted import paths, as ``builtins.print``."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetAttribute:
    """Set *attribute*, a dotted import path, to *value* at the head of *file*, once its imports are done."""

    file: str
    attribute: str
    value: Scalar | Members

    @property
    def line(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Decorate:
    """Put the decorator *call*(*arguments*, *keywords*) on *method*, which begins on *line* of *file*.

    ``def forward(self, x):`` gets ``@torch.autocast("cuda", dtype=torch.bfloat16)`` above it.

    Attributes:
        line: of the function's first decorator; of its ``def`` where it has none.
        call: dotted import path; the file has to import it, or a package that it is of.
        made: import path of a class that the method's is derived from.
    """

    file: str
    line: int
    method: str
    call: str
    arguments: tuple[Scalar, ...] = ()
    keywords: tuple[tuple[str, Value], ...] = ()
    made: str = "torch.nn.Module"


MadeEdit = WrapCall | CallMethod  # of what one call makes
CallEdit = SetKeyword | ListItems | AmendList | RemoveCall | CallFirst | MadeEdit  # of one call site
SourceEdit = CallEdit | Decorate | RemoveSetting | AddCall | SetAttribute
Edit = SourceEdit | SetEnvironment


@dataclass(frozen=True, slots=True)
class Knob:
    """A value worth searching: the keyword of the remedy's first edit.

    Attributes:
        scale: "linear" or "powers" (of two).
    """

    keyword: str
    predicted: int
    low: int
    high: int
    scale: str = "linear"


@dataclass(frozen=True, slots=True)
class Switch:
    """What turns a remedy on and off between two steps of one running training: a setting of the whole process, or of a loader.

    Only what takes effect at the next operation can be switched, and has left nothing behind when it is switched back. A
    loader's workers are made anew for it.

    Attributes:
        sets: dotted import path of a function that sets it, called with *on*; or of an attribute, where *reads* is empty; or
            where there is a *site* a keyword of the DataLoader made there, as ``num_workers``.
        reads: import paths of functions that tell what *sets* is to be called with to put it back: one for each argument,
            or one that returns a tuple of all.
        on: the arguments with the remedy; of a remedy with a knob, its predicted value is one of them.
        every_steps: steps between two occurrences of what the remedy avoids; 1 where each step has it.
        site: ``FILE:LINE`` of the call that makes the loader; "" for a setting of the process.
    """

    sets: str
    reads: tuple[str, ...]
    on: tuple[Scalar, ...]
    every_steps: float = 1.0
    site: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change and what it promises.

    Attributes:
        id: ``cause-id#what``, unique in a report.
        title: imperative, one line.
        safety: what it may do to the training, judged from this run.
        edits: carried out in order, undone in reverse; empty for advice.
        why: what the safety rests on, or what to change by hand where there is no edit.
        switch: what does the same as *edits* in a running training; None where nothing does.
    """

    id: str
    title: str
    safety: Safety
    edits: tuple[Edit, ...] = ()
    knobs: tuple[Knob, ...] = ()
    why: str = ""
    switch: Switch | None = None
