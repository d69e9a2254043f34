"""The message of a case that found a violation: what was found, then what is required, with the section.

    RESERVATION CONFLICT; GOOD was expected; required: an initiator may register (SPC-4 REGISTER)

The requirement is the first line of the case's docstring, or its name. An assertion without a message is
a sentence of its source and its values: ``done.status`` is 2; it has to be 0 (:mod:`.assertion_words`).
"""

from __future__ import annotations

import ast

import pytest

from storagetest.plugin.conformance.assertion_words import sentence

_LONGEST_VALUES = 300
"""Characters of an assertion's values in the message (chosen)."""


_REQUIRED = "; required: "


_SOURCE = pytest.StashKey[str]()


def note_assertion(item: pytest.Item, line: int) -> None:
    """Note the assertion at ``line`` of the item's module, which failed on a client, if it has no message."""
    for node in ast.walk(ast.parse(item.path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assert) and node.lineno == line and node.msg is None:
            item.stash[_SOURCE] = ast.unparse(node.test)


def message_of(item: pytest.Item, section: str, call: pytest.CallInfo[None]) -> str:
    """Return the message of a failed call; its first line has what was found and what is required."""
    error = call.excinfo.value if call.excinfo is not None else None
    text = "" if error is None else str(error) or type(error).__name__
    found, _, rest = text.partition("\n")
    if isinstance(error, AssertionError) and call.excinfo is not None:
        found = _found(found, rest, _statement(call.excinfo))
    source = item.stash.get(_SOURCE, None)
    if source is not None:
        del item.stash[_SOURCE]  # the case can run again
        found = sentence(source, found)
    first = f"{found}{_REQUIRED}{requirement_of(item)} ({section})"
    return f"{first}\n{rest}" if rest else first


def show(report: pytest.TestReport, message: str) -> None:
    """Show the first line of ``message`` in pytest's line of the failure, and what is required below it."""
    first = message.partition("\n")[0]
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = first
    report.sections.append(("required", first.rpartition(_REQUIRED)[2]))


def _found(first: str, rest: str, statement: str) -> str:
    """Return what an assertion found; pytest's first line is its message, or else its values."""
    if first.startswith("assert ") or first == "AssertionError":
        values = first.removeprefix("AssertionError").removeprefix("assert ")
        return sentence(statement, values)
    values = rest.partition("\n")[0]
    if not values.startswith("assert ") or values == "assert False":
        return first
    return f"{first} (found: {values.removeprefix('assert ')[:_LONGEST_VALUES]})"


def _statement(excinfo: pytest.ExceptionInfo[BaseException]) -> str:
    """Return the source of the assertion in one line."""
    lines = str(excinfo.traceback[-1].statement).splitlines()
    return " ".join(line.strip() for line in lines).removeprefix("assert ")


def requirement_of(item: pytest.Item) -> str:
    """Return the sentence that the case is about."""
    doc = getattr(getattr(item, "function", None), "__doc__", None) or ""
    first = doc.strip().partition("\n")[0].rstrip(".")
    name = getattr(item, "originalname", None) or item.name
    return first or str(name).removeprefix("test_").replace("_", " ")
