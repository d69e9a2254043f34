"""What an assertion without a message found, as a sentence: ``done.status`` is 2; it has to be 0.

The sentence is made of the assertion's source and of the values that pytest shows for it. If either is of a
form that has no sentence here, both are shown as they are.
"""

from __future__ import annotations

import ast

_LONGEST = 300
"""Characters of a value in a sentence (chosen)."""

_OPERATORS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "has to be"),
    ast.NotEq: ("!=", "must not be"),
    ast.Lt: ("<", "has to be less than"),
    ast.LtE: ("<=", "has to be at most"),
    ast.Gt: (">", "has to be more than"),
    ast.GtE: (">=", "has to be at least"),
    ast.In: ("in", "has to be in"),
    ast.NotIn: ("not in", "must not be in"),
    ast.Is: ("is", "has to be"),
    ast.IsNot: ("is not", "must not be"),
}


def sentence(source: str, values: str) -> str:
    """Return the finding of ``assert source``; ``values`` is the source with its values, "" if unknown."""
    node = _parsed(source)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        found = _comparison(node, values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        found = _truth(node.operand, values.removeprefix("not "), wanted="false")
    elif isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        found = _truth(node, values, wanted="true")
    else:
        found = ""
    return found or f"`{source}` is false{f': {values[:_LONGEST]}' if values else ''}"


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _comparison(node: ast.Compare, values: str) -> str:
    operator, required = _OPERATORS[type(node.ops[0])]
    left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
    shown = _two_values(values, operator)
    if shown is None:
        return "" if values else f"`{left}` {required} `{right}`, and {_contrary(required)}"
    if isinstance(node.left, ast.Constant) and operator in ("==", "!="):  # the subject is the other side
        left, right, shown = right, left, shown[::-1]
    limit = shown[1] if _is_literal(right) else f"`{right}`, {shown[1]}"
    return f"`{left}` is {shown[0]}; it {required} {limit}"


def _contrary(required: str) -> str:
    return "it is" if required.startswith("must not") else "it is not"


def _is_literal(source: str) -> bool:
    try:
        ast.literal_eval(source)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _two_values(values: str, operator: str) -> tuple[str, str] | None:
    """Return the values left and right of ``operator``; None if the place of the operator is not certain."""
    node = _parsed(values)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        found = tuple(ast.get_source_segment(values, side) or "" for side in (node.left, *node.comparators))
    else:
        found = tuple(values.split(f" {operator} "))
    return (found[0][:_LONGEST], found[1][:_LONGEST]) if len(found) == 2 and all(found) else None


def _truth(node: ast.expr, values: str, *, wanted: str) -> str:
    value = values if values and values != ast.unparse(node) else ("false" if wanted == "true" else "true")
    return f"`{ast.unparse(node)}` is {value[:_LONGEST]}; it has to be {wanted}"
