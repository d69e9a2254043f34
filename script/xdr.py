#!/usr/bin/env python3
# ruff: noqa: E501  # rows of generated code
"""Writes the modules of src/storagetest/wire that are made from the XDR text of standards (RFC 4506).

`python script/xdr.py` writes them; `--check` only verifies that they are current. Each line of MODULES is a
module, its text in script/xdr/, the standard that its sections are of, and the text whose definitions it uses.
"""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
WIRE = ROOT / "src" / "storagetest" / "wire"
TEXTS = ROOT / "script" / "xdr"


class Module(NamedTuple):
    path: str
    text: str
    standard: str
    about: str
    uses: str = ""


# One module for each text, whatever its length (nfs4/types.py has over 6,000 lines): the types of a text refer to each
# other in both directions, and they are not edited by hand.
MODULES = (
    Module("rpc/types.py", "rpc.x", "RFC 5531", "RPC version 2: messages and system authentication."),
    Module("rpc/gss_types.py", "rpcsec_gss.x", "RFC 2203", "RPCSEC_GSS version 1."),
    Module("rpc/rpcbind.py", "rpcbind.x", "RFC 1833", "The port mapper and rpcbind."),
    Module("nfs3/types.py", "nfs3.x", "RFC 1813", "NFS version 3."),
    Module("nfs3/mount.py", "mount3.x", "RFC 1813", "MOUNT version 3."),
    Module("nfs3/nlm.py", "nlm4.x", "RFC 1813", "NLM version 4: locks."),
    Module("nfs3/nsm.py", "nsm.x", "XNFS", "The Network Status Monitor."),
    Module("nfs4/types.py", "nfs4.x", "RFC 7863", "NFS versions 4.0 to 4.2.", uses="rpc.x"),
    Module("nfs4/block_layout.py", "pnfs_block.x", "RFC 5663", "pNFS: the block layout.", uses="nfs4.x"),
)
BASE = {
    "int": ("INT", "int"),
    "unsigned int": ("UINT", "int"),
    "hyper": ("HYPER", "int"),
    "unsigned hyper": ("UHYPER", "int"),
    "bool": ("BOOL", "bool"),
    "void": ("VOID", "None"),
    "string": ("VarOpaque()", "bytes"),
}
TOKEN = re.compile(
    r"(?P<comment>/\*.*?\*/)|(?P<pass>^%.*?$)|(?P<word>-?\w+)|(?P<mark>[^\s\w])", re.DOTALL | re.MULTILINE
)


@dataclass
class Declared:
    """A declaration: ``form`` is "", "[" (fixed), "<" (variable) or "*" (optional)."""

    kind: str
    name: str
    form: str = ""
    size: str = ""


@dataclass
class Definition:
    """``what`` is const, typedef, enum, struct, union or program."""

    what: str
    name: str
    section: str
    module: str
    values: list[tuple[str, str]] = field(default_factory=list)
    fields: list[Declared] = field(default_factory=list)
    switch: Declared | None = None
    arms: list[tuple[list[str], Declared]] = field(default_factory=list)
    versions: list[tuple[str, str, list[tuple[str, str, str, str]]]] = field(default_factory=list)


class Parser:
    def __init__(self, text: str, module: str) -> None:
        self.notices: list[str] = []
        self.tokens: list[tuple[str, str]] = []  # (token, section)
        self.module, self.at = module, 0
        section = ""
        for match in TOKEN.finditer(text):
            if match["comment"]:
                words = " ".join(match["comment"].strip("/* \n").replace("*", " ").split())
                if found := re.match(r"(\d[\d.]*\d|\d|Appendix [A-Z])\b", words):
                    section = found[1]
                if "Copyright" in words:
                    self.notices.append(match["comment"])
            elif not match["pass"]:
                self.tokens.append((match[0], section))

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def next(self, *wanted: str) -> str:
        token = self.peek()
        if not token or (wanted and token not in wanted):
            raise SystemExit(f"{self.module}: {wanted} is due, not {token!r} (token {self.at})")
        self.at += 1
        return token

    def definitions(self) -> list[Definition]:
        found = []
        while self.peek():
            what, section = self.next(), self.tokens[self.at - 1][1]
            if what == "typedef":
                declared = self.declaration()
                one = Definition(what, declared.name, section, self.module, fields=[declared])
            else:
                one = Definition(what, self.next(), section, self.module)
                getattr(self, f"read_{what}")(one)
            self.next(";")
            found.append(one)
        return found

    def kind(self) -> str:
        word = self.next()
        if word == "unsigned":
            return f"unsigned {self.next()}" if self.peek() in ("int", "hyper") else "unsigned int"
        return self.next() if word == "struct" else word

    def declaration(self) -> Declared:
        kind = self.kind()
        if kind == "void":
            return Declared("void", "")
        if self.peek() == "*":
            self.next()
            return Declared(kind, self.next(), "*")
        one = Declared(kind, self.next())
        if self.peek() in ("[", "<"):
            one.form = self.next()
            if self.peek() not in ("]", ">"):
                one.size = self.next()
            self.next("]", ">")
        return one

    def read_const(self, one: Definition) -> None:
        self.next("=")
        one.values = [(one.name, self.next())]

    def read_enum(self, one: Definition) -> None:
        self.next("{")
        while self.peek() != "}":
            name = self.next()
            self.next("=")
            one.values.append((name, self.next()))
            if self.peek() == ",":
                self.next()
        self.next("}")

    def read_struct(self, one: Definition) -> None:
        self.next("{")
        while self.peek() != "}":
            one.fields.append(self.declaration())
            self.next(";")
        self.next("}")

    def read_union(self, one: Definition) -> None:
        self.next("switch")
        self.next("(")
        one.switch = self.declaration()
        self.next(")")
        self.next("{")
        while self.peek() != "}":
            labels = []
            while self.peek() in ("case", "default"):
                labels.append(self.next() if self.peek() == "default" else (self.next(), self.next())[1])
                self.next(":")
            one.arms.append((labels, self.declaration()))
            self.next(";")
        self.next("}")

    def read_program(self, one: Definition) -> None:
        self.next("{")
        while self.next("version", "}") == "version":
            name, procedures = self.next(), []
            self.next("{")
            while self.peek() != "}":
                result, procedure = self.kind(), self.next()
                self.next("(")
                argument = self.kind()
                self.next(")")
                self.next("=")
                procedures.append((procedure, argument, result, self.next()))
                self.next(";")
            self.next("}")
            self.next("=")
            one.versions.append((name, self.next(), procedures))
            self.next(";")
        self.next("=")
        one.values = [(one.name, self.next())]


class Writer:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.out: list[str] = []
        self.written: set[str] = set()
        self.imported: set[str] = set()
        parser = Parser((TEXTS / module.text).read_text(), module.text)
        self.own = parser.definitions()
        self.notices = parser.notices
        foreign = Parser((TEXTS / module.uses).read_text(), module.uses).definitions() if module.uses else []
        self.known = {one.name: one for one in [*foreign, *self.own]}
        self.values = {name: (one, text) for one in [*foreign, *self.own] for name, text in one.values}

    def write(self) -> str:
        for one in self.own:
            self.define(one.name)
        body = "\n".join(self.out)
        codecs = [
            name
            for name in ("BOOL", "HYPER", "INT", "UHYPER", "UINT", "VOID", "Array", "Codec", "Enumeration", "LinkedList",
                         "Opaque", "Optional", "Procedure", "Program", "Struct", "Union", "VarArray", "VarOpaque")
            if re.search(rf"\b{name}\b", body)
        ]  # fmt: skip
        head = [
            f"# Generated by script/xdr.py from script/xdr/{self.module.text}: edit that file, and run the script.",
            "# ruff: noqa: E501, I001, N801, N815, N816, RUF100",
            "# fmt: off",
            f'"""{self.module.about} Names and sections are those of {self.module.standard}."""',
            "",
            *(line for notice in self.notices for line in commented(notice)),
            "from __future__ import annotations",
            "",
        ]
        if "@dataclass" in body:
            head.append("from dataclasses import dataclass")
        if "IntEnum)" in body:
            head.append("from enum import IntEnum")
        if "ClassVar[" in body:
            head.append("from typing import ClassVar")
        head += ["", "from storagetest.wire.xdr.codecs import ("]
        head += [*(f"    {name}," for name in codecs), ")"]
        used = sorted(name for name in self.imported if re.search(rf"\b{name}\b", body))
        if used:
            home = next(one.path for one in MODULES if one.text == self.module.uses)
            path = f"storagetest.wire.{home.removesuffix('.py').replace('/', '.')}"
            head.insert(-len(codecs) - 2, f"from {path} import {', '.join(used)}")
        return "\n".join(head) + "\n" + body.rstrip() + "\n"

    def define(self, name: str) -> None:
        one = self.known.get(name)
        if one is None or name in self.written:
            return
        self.written.add(name)
        if one.module != self.module.text:
            self.imported.add(name)
            return
        getattr(self, f"write_{one.what}")(one)

    def value(self, text: str) -> str:
        """Return a number, or the expression of a named constant."""
        if text not in self.values:
            return {"TRUE": "True", "FALSE": "False"}.get(text, text)
        one, _ = self.values[text]
        self.define(one.name)
        return f"{one.name}.{text}" if one.what == "enum" else text

    def linked(self, name: str) -> bool:
        """Whether a structure ends with the next of its kind."""
        one = self.known.get(name)
        if one is None or one.what != "struct" or not one.fields:
            return False
        last = one.fields[-1]
        if last.form != "*":
            alias = self.known.get(last.kind)
            if alias is None or alias.what != "typedef" or alias.fields[0].form != "*":
                return False
            last = alias.fields[0]
        return last.kind == name

    def optional(self, one: Definition) -> Declared | None:
        """Return the arm of a union over a boolean whose other arm is void."""
        if one.what != "union" or one.switch is None or one.switch.kind != "bool" or len(one.arms) != 2:
            return None
        (labels, arm), (_, other) = one.arms
        return arm if labels == ["TRUE"] and other.kind == "void" else None

    def codec(self, declared: Declared) -> tuple[str, str]:
        """Return the codec of a declaration and its type in Python."""
        kind, form = declared.kind, declared.form
        size = self.value(declared.size) if declared.size else ""
        if kind in ("opaque", "string") and form:
            return (f"Opaque({size})" if form == "[" else f"VarOpaque({size})"), "bytes"
        codec, python = BASE.get(kind) or self.named(kind)
        if form == "*":
            return (f"LinkedList({codec})", f"tuple[{python}, ...]") if self.linked(kind) else (
                f"Optional({codec})", f"{python} | None")  # fmt: skip
        if form == "[":
            return f"Array({codec}, {size})", f"tuple[{python}, ...]"
        if form == "<":
            return f"VarArray({codec}{', ' + size if size else ''})", f"tuple[{python}, ...]"
        return codec, python

    def named(self, kind: str) -> tuple[str, str]:
        if kind not in self.known:
            raise SystemExit(f"{self.module.text}: {kind} is not defined")
        self.define(kind)
        one = self.known[kind]
        if one.what == "enum":
            return f"Enumeration({kind})", kind
        if one.what == "typedef":
            return kind, self.codec(one.fields[0])[1]
        arm = self.optional(one)
        return (kind, kind) if arm is None else (kind, f"{self.codec(arm)[1]} | None")

    def cite(self, one: Definition) -> str:
        return f"{self.module.standard} {one.section}".strip() + "."

    def write_const(self, one: Definition) -> None:
        self.out += [f"{one.name} = {self.value(one.values[0][1])}", f'"""{self.cite(one)}"""']

    def write_enum(self, one: Definition) -> None:
        values = [f"    {name} = {self.value(text)}" for name, text in one.values]
        self.out += ["", "", f"class {one.name}(IntEnum):", f'    """{self.cite(one)}"""', "", *values, ""]

    def write_typedef(self, one: Definition) -> None:
        codec = self.codec(one.fields[0])[0]
        self.out += ["", f"{one.name}{': Codec' if codec in ('BOOL', 'VOID') else ''} = {codec}"]
        self.out += [f'"""{self.cite(one)}"""']

    def write_struct(self, one: Definition) -> None:
        fields = one.fields[:-1] if self.linked(one.name) else one.fields
        made = [(attribute(each.name), *self.codec(each)) for each in fields]
        self.out += [*self.opening(one, "Struct"), *(f"    {name}: {python}" for name, _, python in made)]
        rows = "".join(f'\n        ("{name}", {codec}),' for name, codec, _ in made)
        self.out += [f"    FIELDS: ClassVar[tuple[tuple[str, Codec], ...]] = ({rows}\n    )", ""]

    def write_union(self, one: Definition) -> None:
        arm = self.optional(one)
        if arm is not None:
            self.out += ["", f"{one.name} = Optional({self.codec(arm)[0]})", f'"""{self.cite(one)}"""']
            return
        assert one.switch is not None
        codec, python = self.codec(one.switch)
        arms, default, types = [], "", []
        for labels, declared in one.arms:
            value, kind = self.codec(declared)
            types += [each for each in kind.split(" | ") if each not in types]
            for label in labels:
                if label == "default":
                    default = value
                else:
                    arms.append(f"        {self.value(label)}: {value},")
        types.sort(key=lambda kind: kind == "None")
        name = attribute(one.switch.name)
        value = f"    value: {' | '.join(types)}" + (" = None" if "None" in types else "")
        self.out += [*self.opening(one, "Union"), f"    {name}: {python}", value]
        self.out += [f'    DISCRIMINANT: ClassVar[tuple[str, Codec]] = ("{name}", {codec})']
        self.out += ["    ARMS: ClassVar[dict[int, Codec]] = {", *arms, "    }"]
        self.out += [f"    DEFAULT: ClassVar[Codec | None] = {default}"] if default else []
        self.out.append("")

    def opening(self, one: Definition, base: str) -> list[str]:
        return ["", "", "@dataclass(frozen=True, slots=True)", f"class {one.name}({base}):", f'    """{self.cite(one)}"""',
                ""]  # fmt: skip

    def write_program(self, one: Definition) -> None:
        for version, number, procedures in one.versions:
            rows = []
            for name, argument, result, at in procedures:
                short = re.sub(r"^(?:[A-Z]*PROC\d*_|SM_)", "", name)
                codecs = f"{self.codec(Declared(argument, ''))[0]}, {self.codec(Declared(result, ''))[0]}"
                rows.append(f'    {at}: Procedure({at}, "{short}", {codecs}),')
            self.out += [
                "",
                f'{version} = Program({one.values[0][1]}, {number}, "{version}", {{',
                *rows,
                "})",
            ]
            self.out += [f'"""{self.cite(one)}"""']


def attribute(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def commented(notice: str) -> list[str]:
    lines = (line.strip().lstrip("/*").rstrip("/*").strip() for line in notice.splitlines())
    return [*(f"# {line}".rstrip() for line in lines if line), ""]


def main(arguments: list[str]) -> int:
    stale = []
    for module in MODULES:
        text, path = Writer(module).write(), WIRE / module.path
        if not path.exists() or path.read_text() != text:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in arguments:
                path.write_text(text)
    if "--check" in arguments and stale:
        print(f"not current, run `python script/xdr.py`: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
