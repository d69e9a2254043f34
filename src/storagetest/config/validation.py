"""Convert pydantic's validation errors to ``file:line:col`` and one sentence each.

All errors of a file are collected and raised as one :class:`~storagetest.errors.ConfigError`, one line each,
in the file's order. A sentence may quote the file's text, except for the value of a secret and below an
unknown key (it may be a misspelt ``password``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from storagetest.config.base import FROM_FILE, SecretText
from storagetest.config.models import NAME
from storagetest.config.yaml_source import AmbiguousScalar, YamlNode
from storagetest.errors import ConfigError

M = TypeVar("M", bound=BaseModel)
E = TypeVar("E")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown ``name``: the most similar known name, or all of them."""
    names = sorted(set(known))
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(names)}" if names else "; none is defined"


def mentions(annotation: object, *types: object) -> bool:
    """Whether ``annotation`` is, or contains at any depth, one of ``types``, which are types or metadata."""
    return any(annotation is kind for kind in types) or any(
        mentions(part, *types) for part in get_args(annotation)
    )


@dataclass(slots=True)
class ValidationErrors:
    """The errors so far: (place, sentence)."""

    found: list[tuple[str, str]] = field(default_factory=list)

    def add(self, place: str, message: str) -> None:
        """Add an error. A duplicate at the same location is ignored."""
        if (place, message) not in self.found:
            self.found.append((place, message))

    def add_error(self, error: ConfigError, place: str) -> None:
        """Add a raised error; ``place`` is the default if the error has none."""
        where = error.place or place
        self.add(where, str(error).removeprefix(f"{where}: "))

    def raise_any(self) -> None:
        """Raise one :class:`ConfigError` with all errors, if there are any."""
        if not self.found:
            return
        ordered = sorted(self.found, key=lambda problem: _position(problem[0]))
        (place, first), *rest = ordered
        raise ConfigError(
            "\n".join([first, *(f"{where}: {message}" for where, message in rest)]), place=place
        )

    def mapping(self, node: YamlNode, where: str) -> Mapping[str, YamlNode]:
        """Return the children of a mapping, or add an error and return an empty mapping."""
        if node.mapping is None:
            self.add(node.place, f"{where}: expected a mapping (key: value), not {node.kind}")
            return {}
        return node.mapping

    def items(self, node: YamlNode, where: str) -> tuple[YamlNode, ...]:
        """Return the items of a list, or add an error and return an empty tuple."""
        if node.items is None:
            self.add(node.place, f"{where}: expected a list, not {node.kind}; write [ ] around it")
            return ()
        return node.items

    def check_name(self, name: str, node: YamlNode, where: str) -> None:
        """Add an error if ``name``, the key of ``node``, is not a valid name."""
        if not re.fullmatch(NAME, name, re.ASCII):
            self.add(
                node.key_place,
                f"{where}: invalid name {name!r}: expected a letter or digit, then letters, digits, - and _",
            )

    def named_entries(
        self, section: YamlNode, where: str, model: type[M], read: Callable[[str, M, YamlNode], E]
    ) -> tuple[E, ...]:
        """Return what ``read`` makes of each entry of a section: of its name, its ``model`` and its node.

        Adds an error for an invalid name, an entry that is no ``model``, and each
        :class:`~storagetest.errors.ConfigError` that ``read`` raises.
        """
        found = []
        for name, node in self.mapping(section, where).items():
            path = f"{where}.{name}"
            self.check_name(name, node, path)
            entry = self.validate(model, node, path)
            if entry is None:
                continue
            try:
                found.append(read(name, entry, node))
            except ConfigError as error:
                self.add_error(error, node.place)
        return tuple(found)

    def validate(
        self,
        model: type[M],
        node: YamlNode,
        where: str,
        *,
        also_known: Iterable[str] = (),
        whole: Callable[[str], tuple[str, str]] | None = None,
    ) -> M | None:
        """Return ``node`` as a ``model``, or add its errors and return None.

        ``where`` is the dotted path at the start of each message; ``also_known`` has more keys to suggest.
        ``whole`` returns (location, message) of an error of no single field; the default is the node's.
        """
        if node.mapping is None:
            self.mapping(node, where)
            return None
        try:
            return model.model_validate(node.plain(), context=FROM_FILE)
        except ValidationError as error:
            for path, found, details in _relevant(error, node):
                if not path and found is not None and whole is not None:
                    place, message = whole(_message_text(details))
                    self.add(place, f"{where}: {message}")
                    continue
                place, message = _explain(model, node, path, found, details, also_known=also_known)
                self.add(place, f"{'.'.join(filter(None, [where, *map(str, path)]))}: {message}")
            return None


Found = tuple[tuple[str | int, ...], YamlNode | None, ErrorDetails]


def _position(place: str) -> tuple[int, int]:
    match = re.search(r":(\d+):(\d+)$", place)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _relevant(error: ValidationError, node: YamlNode) -> list[Found]:
    """Locate each error; drop "not this type" if another member of the union has a more specific error."""
    found = [_resolve(details, node) for details in error.errors(include_url=False)]
    retained: list[Found] = []
    for path, at, details in found:
        better = any(
            other is not details
            and other_path[: len(path)] == path
            and (len(other_path) > len(path) or not _is_type(other))
            for other_path, _, other in found
        )
        again = any(path == other_path and _is_type(details) for other_path, _, _ in retained)
        if not (again or (_is_type(details) and better)):
            retained.append((path, at, details))
    return _less_misspelt(retained)


def _is_type(details: ErrorDetails) -> bool:
    return details["type"].endswith("_type")


def _less_misspelt(found: list[Found]) -> list[Found]:
    """Drop "this is missing" if the same mapping has an unknown key with a similar name."""
    unknown = {path for path, _, details in found if details["type"] == "extra_forbidden"}

    def misspelt(path: tuple[str | int, ...]) -> bool:
        siblings = [str(other[-1]) for other in unknown if other[:-1] == path[:-1]]
        return bool(difflib.get_close_matches(str(path[-1]), siblings, n=1, cutoff=0.6))

    return [error for error in found if error[2]["type"] != "missing" or not misspelt(error[0])]


def _resolve(details: ErrorDetails, node: YamlNode) -> Found:
    """Return path and node of an error, less the steps of ``loc`` that name a union's members."""
    path: list[str | int] = []
    at: YamlNode = node
    *steps, last = details["loc"] or (None,)
    for step in [*steps, last]:
        child = at.child(step) if step is not None else None
        if child is not None and step is not None:
            path.append(step)
            at = child
    if details["type"] == "missing":
        return (*path, str(last)), None, details
    return tuple(path), at, details


def _explain(
    model: type[BaseModel],
    node: YamlNode,
    path: tuple[str | int, ...],
    at: YamlNode | None,
    details: ErrorDetails,
    *,
    also_known: Iterable[str],
) -> tuple[str, str]:
    owner, secret = _owner(model, path)
    if at is None:
        around = node
        for step in path[:-1]:
            around = around.child(step) or around
        return around.key_place, f"this is missing{_purpose(owner, path[-1])}"
    if details["type"] == "extra_forbidden":
        known = [*(owner.model_fields if owner else ()), *(also_known if len(path) == 1 else ())]
        return at.key_place, f"no such key{suggest(str(path[-1]), known)}"
    return at.place, _sentence(at, details, secret=secret)


def _owner(model: type[BaseModel], path: tuple[str | int, ...]) -> tuple[type[BaseModel] | None, bool]:
    """Return the model that ``path`` ends in a field of (known or not), and whether it is a secret."""
    owner: type[BaseModel] | None = model
    for index, step in enumerate(path):
        entry = owner.model_fields.get(str(step)) if owner and isinstance(step, str) else None
        if entry is None:
            continue
        if mentions(entry.annotation, SecretText):
            return owner, True
        if index < len(path) - 1:
            owner = nested_model(entry.annotation) or owner
    return owner, False


def nested_model(annotation: object) -> type[BaseModel] | None:
    """Return the first model within ``annotation``, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := nested_model(part))), None)


def _purpose(owner: type[BaseModel] | None, name: str | int) -> str:
    """Return ": " and the first sentence of the field's docstring, if it has one."""
    entry = owner.model_fields.get(str(name)) if owner else None
    text = " ".join((entry.description or "").split()) if entry else ""
    return f": {text.partition('. ')[0].rstrip('.')}" if text else ""


def first_message(error: ValidationError) -> str:
    """Return the first error of options that are not in a file, led by the option's name if it has one."""
    details = error.errors(include_url=False)[0]
    return ": ".join(filter(None, (".".join(map(str, details["loc"])), _message_text(details))))


def _message_text(details: ErrorDetails) -> str:
    return details["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")


def _quoting(at: YamlNode, *, secret: bool) -> str:
    if secret:
        return f"this is {at.kind} in YAML, not text: put it in quotes"
    if not at.raw:
        return "the value is missing; expected text"
    return f'{at.raw} is {at.kind} in YAML, not text: quote it: "{at.raw}"'


def _sentence(at: YamlNode, details: ErrorDetails, *, secret: bool) -> str:
    """Return one sentence that describes the error of the value at ``at``."""
    kind, context = details["type"], details.get("ctx", {})
    scalar = at.mapping is None and at.items is None
    if kind == "string_type":
        return _quoting(at, secret=secret) if scalar else f"expected text, not {at.kind}"
    if kind in {"literal_error", "enum"}:
        return _choice(at, str(context.get("expected", "")), secret=secret, scalar=scalar)
    if isinstance(at.value, AmbiguousScalar) and not secret:
        return (
            f'{at.raw} is {at.kind} with an unusual YAML meaning; write it in full, or quote it: "{at.raw}"'
        )
    if kind.startswith(("int_", "float_", "bool_")) and kind.endswith(("_type", "_parsing", "_from_float")):
        expected = {"i": "a whole number", "f": "a number", "b": "true or false"}[kind[0]]
        return f"expected {expected}, not {at.kind}" + (
            f" ({at.raw})" if scalar and at.raw and not secret else ""
        )
    if kind in {"list_type", "tuple_type", "set_type", "frozen_set_type"}:
        return f"expected a list, not {at.kind}; write [ ] around it"
    if kind in {"dict_type", "mapping_type", "model_type", "model_attributes_type"}:
        return f"expected a mapping (key: value), not {at.kind}"
    if kind == "too_short":
        return f"expected a list of at least {context['min_length']}, not of {context['actual_length']}"
    if kind == "string_pattern_mismatch":
        return _pattern(at, str(context.get("pattern", "")), secret=secret)
    message = _message_text(details)
    if kind in {"value_error", "assertion_error", "secret"}:
        return message
    message = message.replace("Input should be", "must be").replace("String should", "must")
    shown = f" ({at.raw})" if scalar and at.raw and not secret else ""
    return f"{message[:1].lower()}{message[1:]}{shown}"


def _pattern(at: YamlNode, pattern: str, *, secret: bool) -> str:
    shown = "this" if secret or not at.raw else repr(at.raw)
    start = re.fullmatch(r"\^([A-Za-z0-9/_.-]+)", pattern)
    return f"{shown} does not begin with {start[1]!r}" if start else f"{shown} does not match {pattern!r}"


def _choice(at: YamlNode, expected: str, *, secret: bool, scalar: bool) -> str:
    if secret or not scalar:
        return f"expected {expected}, not {at.kind}"
    names = re.findall(r"'([^']*)'", expected)
    if at.kind != "text" and names:
        if at.raw in names:
            return _quoting(at, secret=False)
        return f"{at.raw or 'nothing'} is {at.kind} in YAML; expected {expected}, in quotes"
    near = difflib.get_close_matches(at.raw, names, n=1, cutoff=0.6)
    return f"{at.raw!r} is not {expected}" + (f"; did you mean {near[0]!r}?" if near else "")
