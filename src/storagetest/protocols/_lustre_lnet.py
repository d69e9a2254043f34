"""LNet of a Lustre client: NIDs, and its networks (lnetctl(8); Lustre Operations Manual, "Configuring LNet").

:func:`added` adds the interfaces that the requested networks lack, and removes them at the release. LNet
itself is configured as a mount would do it, and stays configured, as after any mount. An interface that was
there before is never changed: if it differs from the request, that is a mismatch of the attach.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from storagetest.errors import ClientLacks
from storagetest.protocols._acquire import Attaching

_NID = re.compile(r"[A-Za-z0-9_][\w.-]*@([a-z][a-z0-9]*)", re.ASCII)
_NETWORK = re.compile(r"([a-z][a-z0-9]*)\(([\w.,-]*)\)", re.ASCII)
_INTERFACE = re.compile(r"[A-Za-z0-9_][\w.-]{0,14}", re.ASCII)

SHOW = r"""
modprobe lnet || exit 90
lnetctl net show >/dev/null 2>&1 || lnetctl lnet configure --all || exit 90
lnetctl net show -v
"""

RELEASE = r"""
lnetctl net del --net "$1" --if "$2" && exit 0
# An interface that is not there any more is released.
! lnetctl net show --net "$1" 2>/dev/null | grep -qw "$2"
"""


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface of a network; ``conns_per_peer`` is None if LNet shows none, as for other than TCP."""

    network: str
    name: str
    conns_per_peer: int | None = None


def check_nids(text: str) -> str:
    """Return ``text``. Raises ValueError with one sentence if it is not a list of NIDs."""
    for nid in re.split(r"[,:]", text):
        if not _NID.fullmatch(nid):
            what = f"{nid!r} is no NID" if nid else "a NID is missing"
            raise ValueError(
                f"{what} in {text!r}: expected ADDRESS@NETWORK, such as 10.0.0.1@tcp, with ':' between "
                "failover partners and ',' between the NIDs of one"
            )
    return text


def tcp_addresses(nids: str) -> tuple[str, ...]:
    """Return the addresses of all NIDs if every network is TCP, else none: other networks have no port."""
    parts = [nid.partition("@") for nid in re.split(r"[,:]", nids)]
    if not all(re.fullmatch(r"tcp\d*", network) for _, _, network in parts):
        return ()
    return tuple(dict.fromkeys(address for address, _, _ in parts))


def check_networks(text: str) -> str:
    """Return ``text``. Raises ValueError with one sentence if it names no networks with interfaces."""
    parse_networks(text)
    return text


def parse_networks(text: str) -> tuple[Interface, ...]:
    """Parse ``tcp(eth0,eth1),tcp1(eth0)``. Raises ValueError with one sentence."""
    found: list[Interface] = []
    rest = text
    while rest:
        match = _NETWORK.match(rest)
        if match is None:
            raise ValueError(
                f"{rest!r} in {text!r} is no network: expected NETWORK(INTERFACE), such as tcp(eth0)"
            )
        for name in match[2].split(","):
            if not _INTERFACE.fullmatch(name):
                raise ValueError(f"{name!r} in {match[0]!r} is no network interface, such as eth0")
            if Interface(match[1], name) in found:
                raise ValueError(f"{match[1]}({name}) is listed twice in {text!r}")
            found.append(Interface(match[1], name))
        rest = rest[match.end() :]
        if rest.startswith(","):
            rest = rest[1:] or ","
    if not found:
        raise ValueError("expected NETWORK(INTERFACE), such as tcp(eth0)")
    return tuple(found)


def parse_shown(text: str) -> tuple[Interface, ...]:
    """Parse ``lnetctl net show -v``: the interfaces of all networks, without the loopback network.

    Raises ValueError if an interface has no network: then an interface that exists would be taken for
    missing, added, and removed at the release.
    """
    found: list[Interface] = []
    network = ""
    for line in text.splitlines():
        key, _, value = line.strip().removeprefix("-").strip().partition(":")
        value = value.strip()
        if key == "net type":
            network = value
        elif key.isdecimal() and not network:
            raise ValueError(f"interface {value} is in no network")
        elif key.isdecimal() and network != "lo":
            found.append(Interface(network, value))
        elif key == "conns_per_peer" and found and value.isdecimal():
            found[-1] = Interface(found[-1].network, found[-1].name, int(value))
    return tuple(found)


def add_argv(interface: Interface, conns_per_peer: int | None) -> list[str]:
    """Build the command that adds an interface to its network."""
    argv = ["lnetctl", "net", "add", "--net", interface.network, "--if", interface.name]
    return argv + ([] if conns_per_peer is None else ["--conns-per-peer", str(conns_per_peer)])


@contextmanager
def added(attaching: Attaching, requested: str | None, conns_per_peer: int | None) -> Iterator[None]:
    """Add the interfaces that LNet lacks, and remove them at the end; None: change nothing."""
    if requested is None:
        yield
        return
    with ExitStack() as stack:
        with attaching.step("setting up LNet"):
            existing = {(one.network, one.name) for one in _show(attaching)}
            for interface in parse_networks(requested):
                if (interface.network, interface.name) not in existing:
                    stack.enter_context(_added(attaching, interface, conns_per_peer))
        yield


@contextmanager
def _added(attaching: Attaching, interface: Interface, conns_per_peer: int | None) -> Iterator[None]:
    release = ["sh", "-c", RELEASE, "storagetest-lnet", interface.network, interface.name]
    what = f"LNet interface {interface.network}({interface.name})"
    with attaching.acquire(what, lambda _: release):
        done = attaching.run(add_argv(interface, conns_per_peer))
        if not done.ok:
            raise _error(
                attaching, f"adding {interface.network}({interface.name}) to LNet", done.stderr or done.stdout
            )
        yield


def negotiated(attaching: Attaching, requested: str | None) -> dict[str, str]:
    """Return the interfaces of the requested networks as LNet has them; {} if none were requested."""
    if requested is None:
        return {}
    with attaching.step("reading LNet"):
        return negotiated_networks(parse_networks(requested), _show(attaching))


def negotiated_networks(requested: Sequence[Interface], shown: Sequence[Interface]) -> dict[str, str]:
    """Return ``lnet`` in the request's notation and order, and ``conns_per_peer``."""
    order = {(one.network, one.name): number for number, one in enumerate(requested)}
    wanted = list(dict.fromkeys(one.network for one in requested))
    used = [one for one in shown if one.network in wanted]
    used.sort(key=lambda one: (wanted.index(one.network), order.get((one.network, one.name), len(order))))
    names: Mapping[str, list[str]] = {
        network: [one.name for one in used if one.network == network] for network in wanted
    }
    text = ",".join(f"{network}({','.join(have)})" for network, have in names.items() if have)
    counts = sorted({one.conns_per_peer for one in used if one.conns_per_peer is not None})
    return {"lnet": text, **({"conns_per_peer": " and ".join(map(str, counts))} if counts else {})}


def normal(requested: str | None) -> str | None:
    """Return the requested networks as :func:`negotiated` shows them."""
    if requested is None:
        return None
    interfaces = parse_networks(requested)
    return negotiated_networks(interfaces, interfaces)["lnet"]


def _show(attaching: Attaching) -> tuple[Interface, ...]:
    done = attaching.run(["sh", "-c", SHOW, "storagetest-lnet"])
    if not done.ok:
        raise _error(attaching, "reading LNet's networks", done.stderr or done.stdout)
    try:
        return parse_shown(done.stdout)
    except ValueError as error:
        raise _error(attaching, "reading LNet's networks", f"{error}: {done.stdout}") from None


def _error(attaching: Attaching, step: str, output: str) -> ClientLacks:
    shown = " ".join(output.split()) or "no output"
    return ClientLacks(f"{attaching.target}: {attaching.client.name}: {step} failed: {shown}")
