"""Rewrite comparisons in a case's asserts so that the error message has the operands' values, as in pytest.

``assert a <= b < c`` becomes: evaluate all operands, compare, and raise with their values. Unlike in plain
Python, all operands are evaluated even if the first comparison is false.

The controller compiles a suite's modules and sends the code with the sources (:func:`pack_code`), because an
emulated client takes seconds for it. A client with another Python version compiles the sources itself.
"""

from __future__ import annotations

import ast
import base64
import marshal
import zlib
from importlib.util import MAGIC_NUMBER
from typing import Any

EXPLAIN = "@explain"
_MAX_LENGTH = 400
_OPERATORS = {
    "Eq": "==",
    "NotEq": "!=",
    "Lt": "<",
    "LtE": "<=",
    "Gt": ">",
    "GtE": ">=",
    "Is": "is",
    "IsNot": "is not",
    "In": "in",
    "NotIn": "not in",
}


def compiled(source: str, file: str) -> Any:  # noqa: ANN401  # a code object
    """Return the module's code; Raises SyntaxError if this Python cannot compile it."""
    tree = ast.parse(source, file)
    _explain_in(tree)
    return compile(tree, file, "exec", dont_inherit=True)


def pack_code(source: str, file: str) -> dict[str, str]:
    """Return the fields of a request that hold the module's code, none if this Python cannot compile it."""
    try:
        code = compiled(source, file)
    except (SyntaxError, ValueError):
        return {}  # the client reports its own error
    return {
        "magic": MAGIC_NUMBER.hex(),
        "code": base64.b64encode(zlib.compress(marshal.dumps(code))).decode(),
    }


def unpack_code(source: str, file: str, magic: str = "", code: str = "") -> Any:  # noqa: ANN401  # a code object
    """Return the module's code: that of :func:`pack_code` if it is for this Python, else compile ``source``.

    Raises SyntaxError if this Python cannot compile it.
    """
    if magic != MAGIC_NUMBER.hex():
        return compiled(source, file)
    return marshal.loads(zlib.decompress(base64.b64decode(code)))  # noqa: S302  # from the controller


def explain(values: list[object], operators: list[str], message: object) -> str:
    """Return the message of a failed assertion."""
    shown = [_short(values[0])]
    for operator, value in zip(operators, values[1:]):
        shown += [operator, _short(value)]
    return f"{message} ({' '.join(shown)})" if message is not None else " ".join(shown)


def _explain_in(tree: ast.AST) -> None:
    """Rewrite the asserts in all lists of statements; expressions contain no asserts and are not visited."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        statements = getattr(tree, name, None)
        if not isinstance(statements, list):
            continue
        for statement in statements:
            _explain_in(statement)
        if any(isinstance(statement, ast.Assert) for statement in statements):
            statements[:] = [new for statement in statements for new in _explained(statement)]


def _explained(node: Any) -> list[Any]:  # noqa: ANN401  # a statement, or a handler
    if not isinstance(node, ast.Assert) or not isinstance(node.test, ast.Compare):
        return [node]
    test = node.test
    names = [f"@value{number}" for number in range(len(test.ops) + 1)]
    statements: list[ast.stmt] = [
        ast.Assign([ast.Name(name, ast.Store())], value)
        for name, value in zip(names, [test.left, *test.comparators])
    ]
    loads: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
    operators: list[ast.expr] = [ast.Constant(_OPERATORS[type(op).__name__]) for op in test.ops]
    message = ast.Call(
        ast.Name(EXPLAIN, ast.Load()),
        [ast.List(loads, ast.Load()), ast.List(operators, ast.Load()), node.msg or ast.Constant(None)],
        [],
    )
    raise_error = ast.Raise(ast.Call(ast.Name("AssertionError", ast.Load()), [message], []), None)
    comparison = ast.Compare(loads[0], test.ops, loads[1:])
    statements.append(ast.If(ast.UnaryOp(ast.Not(), comparison), [raise_error], []))
    return [_with_location(each, node) for each in statements]


def _with_location(tree: ast.AST, source: ast.Assert) -> ast.AST:
    """Give all new nodes the line of the assert, so that a traceback shows it."""
    for each in ast.walk(tree):
        if isinstance(each, (ast.expr, ast.stmt)) and not hasattr(each, "lineno"):
            ast.copy_location(each, source)
    return tree


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH // 2]} … {text[-_MAX_LENGTH // 2 :]}"
