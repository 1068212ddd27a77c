"""Write an edit of what a call makes: hand it on to a wrapper, or call a method of it behind the statement.

`refuse_unless_made_plainly` is asked by `override` too, so what cannot be written is not tried.  Standard library only.
"""

from __future__ import annotations

import ast
import itertools

from unstall.model.remedy import CallMethod, MadeEdit, Named, WrapCall
from unstall.remedies.head import keywords, spelled
from unstall.remedies.names import Names
from unstall.remedies.sites import NotPatchable, Site, end_of
from unstall.remedies.text import Text

# methods of torch.nn.Module that change it in place and return it: what is named is still what was made
RETURN_SELF = ("to", "cuda", "cpu", "xpu", "train", "eval", "float", "half", "double", "bfloat16", "requires_grad_")


def refuse_unless_made_plainly(tree: ast.Module, site: Site, edit: MadeEdit) -> None:
    """Raise `NotPatchable` where the file does not let *edit* be written."""
    if not isinstance(site.node, ast.Call):
        raise NotPatchable(edit, "it is a decorator, and makes nothing that could be named")
    names = [value.path for _, value in edit.keywords if isinstance(value, Named)]
    for path in [edit.wrapper, *names] if isinstance(edit, WrapCall) else names:
        spelled(tree, path, edit)
    if isinstance(edit, CallMethod):
        _named(Names(tree), site.node, edit)


def with_made(text: Text, tree: ast.Module, site: Site, edit: MadeEdit) -> str:
    """Return the text with *edit* written in; the same text where it holds already.

    Raises:
        NotPatchable: As `refuse_unless_made_plainly`.
    """
    refuse_unless_made_plainly(tree, site, edit)
    assert isinstance(site.node, ast.Call)
    given = keywords(text, tree, edit)
    if isinstance(edit, WrapCall):
        return _wrapped(text, tree, site.node, edit, given)
    return _followed(text, tree, site.node, edit, given)


def _wrapped(text: Text, tree: ast.Module, call: ast.Call, edit: WrapCall, given: list[str]) -> str:
    wrapper = spelled(tree, edit.wrapper, edit)
    above = Names(tree).parent(call)
    if isinstance(above, ast.Call) and above.args[:1] == [call] and ast.unparse(above.func) == wrapper:
        return text.spliced()
    start, end = text.span(call)
    return text.spliced(
        ((start, start), f"{wrapper}(".encode()), ((end, end), (", ".join(["", *given]) + ")").encode())
    )


def _followed(text: Text, tree: ast.Module, call: ast.Call, edit: CallMethod, given: list[str]) -> str:
    names = Names(tree)
    statement, target = _named(names, call, edit)
    new = f"{ast.unparse(target)}.{edit.method}({', '.join(given)})"
    block = _block(names, statement)
    n = block.index(statement)
    if ast.unparse(ast.parse(new)) in _calls_of(target, block[n + 1 :]):
        return text.spliced()
    following = block[n + 1] if n + 1 < len(block) else None
    (start, end), last = text.span(statement), end_of(statement)[0]
    alone = not text.raw[text.at(statement.lineno) : start].strip() and not (following and following.lineno == last)
    if not alone or text.raw[end : text.at(last + 1)].lstrip().startswith(b";"):
        return text.spliced(((end, end), f"; {new}".encode()))
    at, ending = text.at(last + 1), text.ending(last)
    head = b"" if text.lines[last - 1].endswith((b"\n", b"\r")) else ending
    return text.spliced(((at, at), head + text.indent(statement.lineno) + new.encode() + ending))


def _named(names: Names, call: ast.Call, edit: CallMethod) -> tuple[ast.Assign | ast.AnnAssign, ast.expr]:
    """Return the statement that gives a name to what *call* makes, and the name: ``model`` or ``self.model``."""
    node: ast.AST | None = call
    while node is not None:
        above = names.parent(node)
        if isinstance(above, ast.Attribute) and above.attr in RETURN_SELF and edit.made:
            outer = names.parent(above)
            if isinstance(outer, ast.Call) and outer.func is above:
                node = outer
                continue
        if isinstance(above, (ast.Assign, ast.AnnAssign)) and above.value is node:
            targets = above.targets if isinstance(above, ast.Assign) else [above.target]
            target = targets[-1]
            if isinstance(target, ast.Name) or (
                isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
            ):
                return above, target
        break
    raise NotPatchable(edit, "what is made there is not given a name of its own by the statement")


def _calls_of(target: ast.expr, following: list[ast.stmt]) -> list[str]:
    """Return the statements, in one style of writing, with which *following* begins that call a method of *target*."""
    prefix = ast.unparse(target) + "."
    written = (ast.unparse(statement) if isinstance(statement, ast.Expr) else "" for statement in following)
    return list(itertools.takewhile(lambda each: each.startswith(prefix), written))


def _block(names: Names, statement: ast.stmt) -> list[ast.stmt]:
    above = names.parent(statement)
    assert above is not None  # a statement stands in a block
    blocks = (value for _, value in ast.iter_fields(above) if isinstance(value, list))
    return next(block for block in blocks if any(one is statement for one in block))
