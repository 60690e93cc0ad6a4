"""The small wrong changes: mistakes of a hurried author, or of a refactoring.

Each is an edit of one place in the source text. Texts (log lines, messages of errors, annotations) are not changed: no
test has to notice that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple


class Edit(NamedTuple):
    """``node`` is replaced by ``text``, in which AS_IT_IS stands for the present source.

    ``function`` is the qualified name of its function, as code objects have it: the class, outside of the class's
    functions, and "" outside of both.
    """

    function: str
    operator: str
    node: ast.expr | ast.stmt
    text: str
    is_in_function: bool


_BOUNDS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPPOSITES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
# Greater numbers are amounts: one more of them makes no difference that matters.
_GREATEST_COUNT: Final = 10
_PASS: Final = "pass"
AS_IT_IS: Final = "\0"


def edits(tree: ast.Module) -> Iterator[Edit]:
    """Return all edits of a module, in the order of its text."""
    yield from _below(tree, "", is_in_function=False)


_Found = tuple[str, ast.expr | ast.stmt, str]


def _below(node: ast.AST, function: str, *, is_in_function: bool) -> Iterator[Edit]:
    for child in _children_that_matter(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                inner = _inside(node, function) + child.name
                yield from (Edit(inner, *edit, True) for edit in _of_body(child))
                yield from _below(child, inner, is_in_function=True)
            case ast.ClassDef():
                yield from _below(child, _inside(node, function) + child.name, is_in_function=False)
            case _:
                if not isinstance(node, ast.Module | ast.ClassDef):
                    yield from (Edit(function, *edit, is_in_function) for edit in _of_statement(node, child))
                yield from (Edit(function, *edit, is_in_function) for edit in _of_expression(child))
                yield from _below(child, function, is_in_function=is_in_function)


def _inside(node: ast.AST, function: str) -> str:
    if isinstance(node, ast.Module) or not function:
        return ""
    return f"{function}." if isinstance(node, ast.ClassDef) else f"{function}.<locals>."


def _children_that_matter(node: ast.AST) -> Iterator[ast.AST]:
    """Leave out texts and declarations."""
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return
        case ast.Call() if _is_log(node):
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None), *node.body]
        case ast.AnnAssign():
            if node.value is not None and ast.unparse(node.annotation) != "TypeAlias":
                yield node.value
        case ast.ClassDef():
            yield from node.body
        case ast.Subscript():
            yield node.value
            yield node.slice
        case _:
            yield from ast.iter_child_nodes(node)


def _is_log(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in {"logger", "logging", "warnings"}


def _of_body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[_Found]:
    """Replace the body of a function by one that does nothing."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    returns_nothing = isinstance(function.returns, ast.Constant) and function.returns.value is None
    if not returns_nothing or not body or function.name == "__init__" or _is_stub(body[0]):
        return
    yield "return early", body[0], f"return\n{' ' * body[0].col_offset}{AS_IT_IS}"


def _is_stub(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass | ast.Raise) or ast.unparse(statement) == "..."


def _of_statement(parent: ast.AST, node: ast.AST) -> Iterator[_Found]:
    match node:
        case ast.Expr(value=ast.Call() as call) | ast.Expr(value=ast.Await(value=ast.Call() as call)):
            if not _is_log(call) and "super()" not in ast.unparse(call):
                yield "drop a call", node, _PASS
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            if not _makes(parent):
                yield "drop an assignment", node, _PASS
        case ast.AugAssign() | ast.Delete():
            yield "drop an update", node, _PASS
        case ast.Continue() | ast.Return(value=None):
            yield "go on", node, _PASS
        case ast.Raise() if isinstance(parent, ast.If):
            yield "raise nothing", node, _PASS
        case ast.If(test=test) if not _is_for_types(test):
            yield "always", test, "True"
            yield "never", test, "False"


def _makes(parent: ast.AST) -> bool:
    return isinstance(parent, ast.FunctionDef) and parent.name in {"__init__", "__post_init__"}


def _is_for_types(test: ast.expr) -> bool:
    return ast.unparse(test) in {"TYPE_CHECKING", "__name__ == '__main__'", "True", "False"}


def _of_expression(node: ast.AST) -> Iterator[_Found]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _BOUNDS:
            yield "another comparison", node, _text(ast.Compare(left, [_BOUNDS[type(op)]()], [right]))
        case ast.BoolOp(op=bool_op, values=values):
            other = ast.Or() if isinstance(bool_op, ast.And) else ast.And()
            yield "and / or", node, _text(ast.BoolOp(other, values))
            for left_out in range(len(values)):
                rest = values[:left_out] + values[left_out + 1 :]
                yield "drop a condition", node, _text(rest[0] if len(rest) == 1 else ast.BoolOp(bool_op, rest))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "no not", node, _text(operand)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "the other branch", node, _text(ast.IfExp(test, orelse, body))
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Add() | ast.Sub(), right=right):
            if not any(_is_text(side) for side in (left, right)):
                yield "drop an operand", node, _text(left)
                if isinstance(node.op, ast.BitOr | ast.BitAnd):
                    yield "drop an operand", node, _text(right)
        case ast.Constant(value=bool(value)):
            yield "the other constant", node, str(not value)
        case ast.Constant(value=int(value)) if value <= _GREATEST_COUNT:
            yield "one more", node, str(value + 1)
        case ast.Set(elts=elements) if len(elements) > 1:
            for left_out in range(len(elements)):
                yield "drop an element", node, _text(ast.Set(elements[:left_out] + elements[left_out + 1 :]))
        case ast.ListComp(generators=loops) | ast.SetComp(generators=loops) | ast.GeneratorExp(generators=loops):
            yield from (("always", test, "True") for loop in loops for test in loop.ifs)
        case ast.DictComp(generators=loops):
            yield from (("always", test, "True") for loop in loops for test in loop.ifs)
        case ast.Call():
            yield from _of_call(node)


def _of_call(call: ast.Call) -> Iterator[_Found]:
    if isinstance(call.func, ast.Name) and call.func.id in _OPPOSITES:
        yield "min / max, any / all", call.func, _OPPOSITES[call.func.id]
    for left_out, keyword in enumerate(call.keywords):
        if keyword.arg is not None:
            rest = call.keywords[:left_out] + call.keywords[left_out + 1 :]
            yield "drop an argument", call, _text(ast.Call(call.func, call.args, rest))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _text(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Set | ast.Call) else f"({ast.unparse(node)})"
