"""``storagetest init``: a first targets.yaml, for the machine whose address the user gives.

From the client, that address and no other is tried on the ports that the registered protocols usually answer
at, all at once and with a short deadline; whoever answers is asked what it serves. What cannot be known is
asked for, where somebody sits at a terminal, or stands in the file as an example that is marked. No password
is ever asked for or written: the file names an environment variable.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from storagetest import config, installed_suites
from storagetest.commands._console import get_console
from storagetest.commands._port_scan import answering, port_list
from storagetest.commands._targets_template import TargetDraft, required, targets_yaml
from storagetest.config import HostConfig
from storagetest.config.base import Address
from storagetest.config.schema import schema_text
from storagetest.errors import ConfigError, StoragetestError
from storagetest.hosts.connect import connect
from storagetest.protocols.base import Protocol, protocols

if TYPE_CHECKING:
    from rich.console import Console

    from storagetest.commands._console import Subparsers

__all__ = ["add_parser"]

SCHEMA = "targets.schema.json"
_OFFERS = 20.0


def add_parser(subparsers: Subparsers) -> None:
    """Add ``init`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "init",
        help="write a first targets.yaml for a machine of yours",
        description="Write a first targets.yaml. The given address, and no other, is tried on the ports of "
        "the known protocols, from the client. What is not given is asked for, if stdin is a terminal. "
        "Exit status: 0 written, 1 not written, 2 misuse.",
    )
    parser.add_argument("address", nargs="?", metavar="ADDRESS", help="the storage's name or IP address")
    parser.add_argument("-o", "--output", type=Path, default=Path("targets.yaml"), metavar="FILE",
                        help="the file to write (default: ./targets.yaml)")  # fmt: skip
    parser.add_argument("--client", metavar="[USER@]HOST[:PORT]",
                        help="who puts load on it, over SSH; 'local' is this machine")  # fmt: skip
    parser.add_argument("--key", type=Path, metavar="FILE", help="the SSH key for the client")
    parser.add_argument("--protocol", action="append", default=[], metavar="NAME",
                        help="write a target of this protocol in any case; may be repeated")  # fmt: skip
    parser.add_argument("--set", dest="given", action="append", default=[], metavar="PROTOCOL.OPTION=VALUE",
                        help="an option of a target, such as nfs.export=/tank; may be repeated")  # fmt: skip
    parser.add_argument("--no-probe", action="store_true", help="contact nothing")
    parser.add_argument("--suites", action="store_true", help="copy the suites beside it too, to be edited")
    parser.add_argument("--force", action="store_true", help="overwrite a file that is there")
    parser.set_defaults(func=_init)


def _init(arguments: argparse.Namespace) -> int:
    out = get_console()
    talk = Prompter(out, asks=sys.stdin.isatty() and sys.stdout.isatty())
    target: Path = arguments.output
    if target.exists() and not arguments.force:
        raise StoragetestError(
            f"{target} is there already: name another file with -o, or overwrite it with --force"
        )
    if not target.parent.is_dir():
        raise StoragetestError(f"{target}: there is no directory {target.parent}")
    suites = target.parent / "suites"
    if arguments.suites:
        installed_suites.check_free(suites)
    for name in arguments.protocol:
        protocols.get(name)
    given = _given(arguments.given)
    wanted = list(dict.fromkeys([*arguments.protocol, *given]))
    remote = [name for name in wanted if protocols.get(name).ports] or not wanted
    address = _address(talk, arguments.address) if remote else ""
    client = arguments.client or talk.ask("client (user@host, or local)", "local")
    machine = _machine(client, arguments.key)
    drafts = _drafts(talk, machine, address, wanted, given, probe=not arguments.no_probe)
    _fill(talk, drafts)
    text = targets_yaml(machine, drafts, schema=SCHEMA)
    _write(target, text, force=arguments.force)
    if arguments.suites:
        installed_suites.copy(suites)
        out.print(f"{suites} is a copy of the suites, yours to edit.", soft_wrap=True)
    _say_next(out, target, drafts)
    return 0


@dataclass(frozen=True, slots=True)
class Prompter:
    """Asking a person, where there is one."""

    out: Console
    asks: bool

    def ask(self, question: str, default: str) -> str:
        """Return the answer, or ``default`` for none and where nobody can be asked."""
        if not self.asks:
            return default
        shown = f" [{default}]" if default else ""
        try:
            return input(f"{question}{shown}: ").strip() or default
        except EOFError:
            raise StoragetestError("no answer: nothing is written") from None


def _address(talk: Prompter, given: str | None) -> str:
    address = given or talk.ask("the storage's name or IP address", "")
    if not address:
        raise StoragetestError("whose storage? Give its address: storagetest init ADDRESS")
    try:
        return TypeAdapter(Address).validate_python(address)
    except ValidationError as error:
        raise StoragetestError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None


def _given(words: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return what ``--set`` says: protocol → option → text."""
    found: dict[str, dict[str, str]] = {}
    for word in words:
        path, equals, value = word.partition("=")
        name, dot, option = path.partition(".")
        if not (equals and dot and option):
            raise ConfigError(f"--set {word}: PROTOCOL.OPTION=VALUE is wanted, such as nfs.export=/tank")
        fields = protocols.get(name).Options.model_fields
        if option not in fields:
            raise ConfigError(
                f"--set {word}: {name} has no option {option!r}; there are: {', '.join(fields)}"
            )
        found.setdefault(name, {})[option] = value
    return found


def _machine(text: str, key: Path | None) -> HostConfig:
    if text == "local":
        if key is not None:
            raise StoragetestError("--key is for a client over SSH: name it with --client")
        return HostConfig("local", "local")
    user, at, rest = text.rpartition("@")
    host, colon, port = rest.partition(":") if rest.count(":") == 1 else (rest, "", "")
    try:
        address = TypeAdapter(Address).validate_python(host)
    except ValidationError as error:
        raise StoragetestError(
            f"--client {text}: " + error.errors()[0]["msg"].removeprefix("Value error, ")
        ) from None
    if (at and not user) or (colon and not (port.isdecimal() and 0 < int(port) < 1 << 16)):
        raise StoragetestError(f"--client {text}: [USER@]HOST[:PORT] is wanted")
    return HostConfig(
        "client1",
        "ssh",
        address=address,
        user=user or "root",
        port=int(port) if port else None,
        key=key,
    )


def _drafts(
    talk: Prompter,
    machine: HostConfig,
    address: str,
    wanted: Sequence[str],
    given: Mapping[str, Mapping[str, str]],
    *,
    probe: bool,
) -> list[TargetDraft]:
    """Return a target for each protocol that was asked for, or that answers."""
    kinds = protocols.all()
    answers: dict[str, list[int]] = {}
    offers: dict[str, Sequence[Mapping[str, Any]]] = {}
    if probe and address:
        talk.out.print(f"trying {address} from {machine.name}: ports {port_list(kinds)}", soft_wrap=True)
        with connect(machine) as host:
            answers = answering(host, address, kinds)
            for name in wanted or answers:
                found = kinds[name]().discover(host, address, deadline=_OFFERS)
                offers[name] = found
                _say_found(talk.out, kinds[name], answers.get(name, []), found)
    if not wanted and not answers:
        tried = "nothing answers there" if probe else "nothing was tried"
        raise StoragetestError(f"{address}: {tried}; name what it speaks with --protocol: {', '.join(kinds)}")
    return [
        TargetDraft(
            kinds[name],
            address=address,
            known=dict(_first(talk, kinds[name], offers.get(name, ()))) | dict(given.get(name, {})),
            ports=tuple(answers.get(name, ())),
            others=tuple(offers.get(name, ())[1:]),
        )
        for name in wanted or answers
    ]


def _say_found(
    out: Console, kind: type[Protocol[Any]], ports: Sequence[int], offers: Sequence[Mapping[str, Any]]
) -> None:
    where = f"answers on {', '.join(map(str, ports))}" if ports else "does not answer"
    what = ", ".join(str(next(iter(one.values()))) for one in offers[:8])
    more = f" and {len(offers) - 8} more" if len(offers) > 8 else ""
    out.print(f"  {kind.title} {where}" + (f"; offers {what}{more}" if what else ""), soft_wrap=True)


def _first(
    talk: Prompter, kind: type[Protocol[Any]], offers: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return one of what is offered: the first, or the one that somebody chooses."""
    if len(offers) < 2:
        return offers[0] if offers else {}
    for number, one in enumerate(offers, 1):
        if talk.asks:
            talk.out.print(f"    {number}: " + ", ".join(f"{name} {value}" for name, value in one.items()))
    answer = talk.ask(f"which one of {kind.title}", "1")
    return offers[int(answer) - 1] if answer.isdecimal() and 0 < int(answer) <= len(offers) else offers[0]


def _fill(talk: Prompter, drafts: Sequence[TargetDraft]) -> None:
    """Ask for the options that a target cannot do without and that nobody has said."""
    for draft in drafts:
        for name, purpose, secret in required(draft.kind):
            if name in draft.values or secret or not talk.asks:
                continue
            example = str(draft.kind.example.get(name, ""))
            answer = talk.ask(f"{draft.kind.title}: {purpose} (such as {example})", "")
            while answer and (why := draft.refuses(name, answer)):
                answer = talk.ask(f"{why}; again", "")
            if answer:
                draft.known[name] = answer


def _write(target: Path, text: str, *, force: bool) -> None:
    """Write the file whole or not at all, and the schema beside it for editors."""
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        part.write_text(text)
        config.load(part)
        if force:
            part.replace(target)
        else:
            os.link(part, target)  # which fails where somebody else made it meanwhile
        target.with_name(SCHEMA).write_text(schema_text())
    except ConfigError as error:
        said = str(error).replace(str(part), str(target))
        raise ConfigError(f"what would be written does not load: {said}") from None
    except OSError as error:
        raise StoragetestError(f"{target} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def _say_next(out: Console, target: Path, drafts: Sequence[TargetDraft]) -> None:
    out.print(f"{target} is written, and {SCHEMA} beside it for your editor.", soft_wrap=True)
    marked = [f"{draft.name}.{name}" for draft in drafts for name in draft.examples]
    if marked:
        out.print(f"To be filled in there (CHANGE THIS): {', '.join(marked)}", soft_wrap=True)
    where = "" if target == Path("targets.yaml") else f" --targets {target}"
    out.print(f"Next: storagetest check{where}")
