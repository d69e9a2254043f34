"""Comparisons in a case's asserts say their values, as pytest's do.

``assert a <= b < c`` becomes: evaluate all operands, compare, and raise with their values. So, other than in
plain Python, the last operands are evaluated also where the first comparison has failed.
"""

from __future__ import annotations

import ast
from typing import Any

__all__ = ["EXPLAIN", "compiled", "explain"]

EXPLAIN = "@explain"
_LONGEST = 400
_WORDS = {
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
    """Return the module's code; SyntaxError where this Python does not take it."""
    tree = ast.parse(source, file)
    _explain_in(tree)
    return compile(tree, file, "exec", dont_inherit=True)


def explain(values: list[object], words: list[str], message: object) -> str:
    """Return what an assertion that failed says."""
    shown = [_short(values[0])]
    for word, value in zip(words, values[1:]):
        shown += [word, _short(value)]
    return f"{message} ({' '.join(shown)})" if message is not None else " ".join(shown)


def _explain_in(tree: ast.AST) -> None:
    """Explain the asserts of all lists of statements; none stands in an expression, so none is visited."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        found = getattr(tree, name, None)
        if not isinstance(found, list):
            continue
        for statement in found:
            _explain_in(statement)
        if any(isinstance(each, ast.Assert) for each in found):
            found[:] = [one for each in found for one in _explained(each)]


def _explained(node: Any) -> list[Any]:  # noqa: ANN401  # a statement, or a handler
    if not isinstance(node, ast.Assert) or not isinstance(node.test, ast.Compare):
        return [node]
    test = node.test
    names = [f"@value{number}" for number in range(len(test.ops) + 1)]
    kept: list[ast.stmt] = [
        ast.Assign([ast.Name(name, ast.Store())], value)
        for name, value in zip(names, [test.left, *test.comparators])
    ]
    loads: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
    words: list[ast.expr] = [ast.Constant(_WORDS[type(op).__name__]) for op in test.ops]
    said = ast.Call(
        ast.Name(EXPLAIN, ast.Load()),
        [ast.List(loads, ast.Load()), ast.List(words, ast.Load()), node.msg or ast.Constant(None)],
        [],
    )
    broken = ast.Raise(ast.Call(ast.Name("AssertionError", ast.Load()), [said], []), None)
    again = ast.Compare(loads[0], test.ops, loads[1:])
    kept.append(ast.If(ast.UnaryOp(ast.Not(), again), [broken], []))
    return [_placed(each, node) for each in kept]


def _placed(tree: ast.AST, where: ast.Assert) -> ast.AST:
    """Give all that is new the assert's own line: a traceback points there."""
    for each in ast.walk(tree):
        if isinstance(each, (ast.expr, ast.stmt)) and not hasattr(each, "lineno"):
            ast.copy_location(each, where)
    return tree


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
