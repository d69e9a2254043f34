# ruff: noqa: ANN401  # a value has the type of its codec
"""Codecs of XDR's types (RFC 4506 4), and the bases of the generated structures, unions and enumerations.

A codec packs a Python value and unpacks one. The modules that ``script/xdr.py`` writes consist of dataclasses
whose ``FIELDS`` name the codec of each field. In Python

- opaque data and strings are ``bytes``: names on the wire need not be UTF-8;
- an array is a tuple; a linked list (``entry *next`` at the end of ``entry``) is a tuple as well;
- optional data, and a union over a boolean whose other arm is void, are the value or None;
- any other union is a dataclass with the discriminant and ``value`` (None if the arm is void).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from storagetest.errors import LocalProtocolError
from storagetest.wire.xdr.packing import Encoded, Packer, Unpacker

T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)


class Codec(Protocol):
    """Packs and unpacks values of one type."""

    def pack(self, value: Any, out: Packer) -> None:
        """Append ``value``. Raises LocalProtocolError if it is not of the type."""

    def unpack(self, source: Unpacker) -> Any:
        """Return the next value. Raises RemoteProtocolError."""


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer (RFC 4506 4.1, 4.2) or hyper integer (4.5)."""

    size: int
    signed: bool
    name: str

    def pack(self, value: int, out: Packer) -> None:
        """Append ``value``."""
        out.integer(value, self.size, signed=self.signed, what=self.name)

    def unpack(self, source: Unpacker) -> int:
        """Return the next integer."""
        return source.integer(self.size, signed=self.signed, what=self.name)


INT = Integer(4, signed=True, name="int")
UINT = Integer(4, signed=False, name="unsigned int")
HYPER = Integer(8, signed=True, name="hyper")
UHYPER = Integer(8, signed=False, name="unsigned hyper")


class _Bool:
    def pack(self, value: bool, out: Packer) -> None:
        out.integer(int(value), 4, signed=False, what="bool")

    def unpack(self, source: Unpacker) -> bool:
        value = source.integer(4, signed=False, what="bool")
        if value > 1:
            source.offset -= 4
            raise source.error(f"a boolean is 0 or 1, not {value} (RFC 4506 4.4)")
        return bool(value)


BOOL: Codec = _Bool()
"""A boolean (RFC 4506 4.4)."""


@dataclass(frozen=True, slots=True)
class Enumeration(Generic[E]):
    """A value of an enumeration; another value is an error on either side (RFC 4506 4.3)."""

    kind: type[E]

    def pack(self, value: int, out: Packer) -> None:
        """Append ``value``, which may be a plain integer: a case may send what is no member."""
        out.integer(value, 4, signed=value < 0, what=self.kind.__name__)

    def unpack(self, source: Unpacker) -> E:
        """Return the next value."""
        value = source.integer(4, signed=True, what=self.kind.__name__)
        try:
            return self.kind(value)
        except ValueError:
            source.offset -= 4
            raise source.error(f"{value} is no {self.kind.__name__}") from None


@dataclass(frozen=True, slots=True)
class Opaque:
    """Opaque data of a fixed size (RFC 4506 4.9)."""

    size: int

    def pack(self, value: bytes, out: Packer) -> None:
        """Append ``value``."""
        if len(value) != self.size:
            raise LocalProtocolError(f"{self.size} bytes of opaque data are due, not {len(value)}")
        out.padded(value)

    def unpack(self, source: Unpacker) -> bytes:
        """Return the next bytes."""
        return source.padded(self.size, "opaque data")


@dataclass(frozen=True, slots=True)
class VarOpaque:
    """Opaque data or a string of at most ``limit`` bytes (RFC 4506 4.10, 4.11).

    The limit holds for what is received only: a case may send more.
    """

    limit: int | None = None

    def pack(self, value: bytes, out: Packer) -> None:
        """Append the length and ``value``."""
        with out.at("length"):
            out.integer(len(value), 4, signed=False, what="length")
        out.padded(value)

    def unpack(self, source: Unpacker) -> bytes:
        """Return the next bytes."""
        count = source.integer(4, signed=False, what="length of opaque data")
        if self.limit is not None and count > self.limit:
            raise source.error(f"{count} bytes of opaque data, over the limit of {self.limit}")
        return source.padded(count, "opaque data")


@dataclass(frozen=True, slots=True)
class Array:
    """An array of exactly ``size`` elements (RFC 4506 4.12)."""

    element: Codec
    size: int

    def pack(self, value: tuple[Any, ...], out: Packer) -> None:
        """Append the elements."""
        if len(value) != self.size:
            raise LocalProtocolError(f"{self.size} elements are due, not {len(value)}")
        _pack_all(self.element, value, out)

    def unpack(self, source: Unpacker) -> tuple[Any, ...]:
        """Return the elements."""
        return tuple(self.element.unpack(source) for _ in range(self.size))


@dataclass(frozen=True, slots=True)
class VarArray:
    """An array of at most ``limit`` elements (RFC 4506 4.13); the limit is as that of :class:`VarOpaque`."""

    element: Codec
    limit: int | None = None

    def pack(self, value: tuple[Any, ...], out: Packer) -> None:
        """Append the number of elements, and the elements."""
        with out.at("length"):
            out.integer(len(value), 4, signed=False, what="length")
        _pack_all(self.element, value, out)

    def unpack(self, source: Unpacker) -> tuple[Any, ...]:
        """Return the elements."""
        count = source.integer(4, signed=False, what="length of an array")
        limit = source.remaining // 4 if self.limit is None else min(self.limit, source.remaining // 4)
        if count > limit:
            raise source.error(f"{count} elements of an array, where at most {limit} fit or are allowed")
        return tuple(self.element.unpack(source) for _ in range(count))


@dataclass(frozen=True, slots=True)
class Optional:
    """Optional data (RFC 4506 4.19): the value or None."""

    element: Codec

    def pack(self, value: Any, out: Packer) -> None:
        """Append whether there is a value, and the value."""
        with out.at("follows"):
            BOOL.pack(value is not None, out)
        if value is not None:
            self.element.pack(value, out)

    def unpack(self, source: Unpacker) -> Any:
        """Return the value or None."""
        return self.element.unpack(source) if BOOL.unpack(source) else None


@dataclass(frozen=True, slots=True)
class LinkedList:
    """A list of optional data, each of which ends with the next (RFC 4506 4.19)."""

    element: Codec

    def pack(self, value: tuple[Any, ...], out: Packer) -> None:
        """Append each element after a TRUE, and a FALSE."""
        for at, one in enumerate(value):
            with out.at(f"[{at}]"):
                with out.at("follows"):
                    BOOL.pack(True, out)
                self.element.pack(one, out)
        with out.at("end"):
            BOOL.pack(False, out)

    def unpack(self, source: Unpacker) -> tuple[Any, ...]:
        """Return the elements."""
        found = []
        while BOOL.unpack(source):
            found.append(self.element.unpack(source))
        return tuple(found)


class _Void:
    def pack(self, value: None, out: Packer) -> None:  # noqa: ARG002  # a Codec
        if value is not None:
            raise LocalProtocolError(f"void has no value, and here is {value!r}")

    def unpack(self, source: Unpacker) -> None:  # noqa: ARG002  # a Codec
        return None


VOID: Codec = _Void()
"""No data (RFC 4506 4.16)."""


class Struct:
    """Base of structures (RFC 4506 4.14): dataclasses whose ``FIELDS`` name each field's codec."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[tuple[str, Codec], ...]]

    @classmethod
    def unpack(cls, source: Unpacker) -> Self:
        """Return the next structure."""
        return cls(*(codec.unpack(source) for _, codec in cls.FIELDS))

    @classmethod
    def pack(cls, value: Struct, out: Packer) -> None:
        """Append ``value``."""
        if not isinstance(value, cls):
            raise LocalProtocolError(f"a {cls.__name__} is due, not {value!r}")
        for name, codec in cls.FIELDS:
            with out.at(name):
                codec.pack(getattr(value, name), out)

    def encode(self) -> Encoded:
        """Return the bytes of the structure."""
        return encode(type(self), self)


class Union:
    """Base of unions (RFC 4506 4.15): dataclasses of a discriminant and a ``value``.

    ``ARMS`` has the codec of each arm; ``DEFAULT`` that of all others, or None if there is none.
    """

    __slots__ = ()
    DISCRIMINANT: ClassVar[tuple[str, Codec]]
    ARMS: ClassVar[Mapping[int, Codec]]
    DEFAULT: ClassVar[Codec | None] = None

    @classmethod
    def unpack(cls, source: Unpacker) -> Self:
        """Return the next union."""
        make: Callable[..., Self] = cls
        chosen = cls.DISCRIMINANT[1].unpack(source)
        codec = cls.ARMS.get(chosen, cls.DEFAULT)
        if codec is None:
            raise source.error(f"{cls.__name__} has no arm for {chosen!r}")
        return make(chosen, codec.unpack(source))

    @classmethod
    def pack(cls, value: Any, out: Packer) -> None:
        """Append the discriminant and the value of its arm; a discriminant without an arm stands alone."""
        if not isinstance(value, cls):
            raise LocalProtocolError(f"a {cls.__name__} is due, not {value!r}")
        name, codec = cls.DISCRIMINANT
        chosen = getattr(value, name)
        with out.at(name):
            codec.pack(chosen, out)
        with out.at("value"):
            (cls.ARMS.get(chosen, cls.DEFAULT) or VOID).pack(value.value, out)  # type: ignore[attr-defined]

    def encode(self) -> Encoded:
        """Return the bytes of the union."""
        return encode(type(self), self)


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure of an RPC program, with the codecs of its argument and its result."""

    number: int
    name: str
    argument: Codec
    result: Codec


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One version of an RPC program (RFC 5531 8), with its procedures by number."""

    number: int
    version: int
    name: str
    procedures: Mapping[int, Procedure]

    def procedure(self, name: str) -> Procedure:
        """Return the procedure that is called ``name``."""
        return next(one for one in self.procedures.values() if one.name == name)


def encode(codec: Codec, value: Any) -> Encoded:
    """Return the bytes of ``value``."""
    out = Packer()
    codec.pack(value, out)
    return out.finish()


def decode(codec: Codec, data: bytes) -> Any:
    """Return the value that ``data`` is; raises RemoteProtocolError if it is anything else, or longer."""
    source = Unpacker(data)
    value = codec.unpack(source)
    source.finish("the value")
    return value


def _pack_all(element: Codec, values: tuple[Any, ...], out: Packer) -> None:
    for at, value in enumerate(values):
        with out.at(f"[{at}]"):
            element.pack(value, out)
