"""The contract of every registered protocol."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args
from unittest.mock import Mock

import pytest
from pydantic import BaseModel, ValidationError

from storagetest.config.base import BlockOptions, TargetOptions
from storagetest.errors import HostError
from storagetest.hosts import Completed, LocalHost
from storagetest.protocols.base import AttachmentKind, Protocol, protocols

ALL = list(protocols.all().values())
every_protocol = pytest.mark.parametrize("protocol", ALL, ids=lambda protocol: protocol.name)


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """``model`` and every model nested in its fields."""
    yield model
    for field in model.model_fields.values():
        for kind in (field.annotation, *get_args(field.annotation)):
            if inspect.isclass(kind) and issubclass(kind, BaseModel):
                yield from models(kind)


def load(protocol: type[Protocol[Any]], **more: object) -> TargetOptions:
    return protocol.Options.model_validate({**protocol.example, **more})


def test_the_promised_protocols_are_there() -> None:
    assert {"iscsi", "local", "lustre", "nfs", "nvme-tcp", "smb"} <= set(protocols.all())


@every_protocol
def test_name_and_docstring(protocol: type[Protocol[Any]]) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", protocol.name)
    assert (protocol.__doc__ or "").strip(), "the class's docstring is its page in the reference"
    assert (inspect.getmodule(protocol).__doc__ or "").strip()  # type: ignore[union-attr]  # it has a module


@every_protocol
def test_every_option_is_described(protocol: type[Protocol[Any]]) -> None:
    for model in models(protocol.Options):
        undescribed = [name for name, field in model.model_fields.items() if not field.description]
        assert not undescribed, f"{model.__qualname__}: a docstring below each of {undescribed}"
        assert (model.__doc__ or "").strip()


@every_protocol
def test_example_loads(protocol: type[Protocol[Any]]) -> None:
    options = load(protocol)
    assert isinstance(options, TargetOptions)
    assert load(protocol) == options
    assert protocol().server(options)  # type: ignore[abstract]  # every registered one is concrete


@every_protocol
def test_capabilities_say_what_it_gives(protocol: type[Protocol[Any]]) -> None:
    options = load(protocol)
    capabilities = protocol().capabilities(options)  # type: ignore[abstract]
    assert len(capabilities & {"block", "filesystem"}) == 1
    assert capabilities <= protocol.capability_names
    if protocol.attachment_kind is AttachmentKind.BLOCK:
        assert isinstance(options, BlockOptions)
        assert "block" in capabilities
        with_files = protocol().capabilities(load(protocol, filesystem="ext4"))  # type: ignore[abstract]
        assert "filesystem" in with_files <= protocol.capability_names
        assert "block" not in with_files


@every_protocol
def test_unknown_option_is_refused(protocol: type[Protocol[Any]]) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        load(protocol, no_such_option=1)


@every_protocol
@pytest.mark.parametrize("deadline", [0, -1, True, "soon", None])
def test_impossible_deadline_is_refused(protocol: type[Protocol[Any]], deadline: object) -> None:
    with pytest.raises(ValidationError):
        load(protocol, deadline=deadline)


IMPOSSIBLE: dict[str, dict[str, list[object]]] = {
    "iscsi": {
        "iqn": ["nqn.x", "iqn.a b", "iqn.x/../../etc"], "lun": [-1], "header_digest": [True],
        "chap": [{"username": "u"}, {"username": "a b", "password": "x"}],
    },
    "lustre": {
        "mgs": ["10.0.0.1", "a b@tcp"], "fsname": ["toolongname"],
        "stripe_size": [1000], "stripe_count": [2.5],
    },
    "nfs": {"version": [4.2, "4", "2"], "nconnect": [0, 17], "export": ["e"], "rsize": [1]},
    "nvme-tcp": {
        "nqn": ["iqn.x", "nqn." + "x" * 220], "namespace": [0], "queues": [0], "queue_depth": [1],
    },
    "smb": {
        "dialect": ["1.0"], "share": ["a/b"], "username": ["a\nb"], "max_channels": [0], "password": [12],
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        (name, option, value)
        for name, options in IMPOSSIBLE.items()
        for option, values in options.items()
        for value in values
    ],
    ids=str,
)
def test_impossible_value_is_refused(name: str, option: str, value: object) -> None:
    with pytest.raises(ValidationError):
        load(protocols.get(name), **{option: value})


@pytest.mark.parametrize(
    "more",
    [
        {"dialect": "2.1", "encryption": True},
        {"dialect": "2.1", "max_channels": 2},
        {"dialect": "3.0", "posix": True},
    ],
    ids=str,
)
def test_what_a_dialect_of_smb_lacks_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        load(protocols.get("smb"), **more)


@pytest.mark.parametrize(("name", "wire"), [("iscsi", "iscsi-wire"), ("nvme-tcp", "nvme-tcp-wire")])
def test_several_paths_are_for_a_client_and_not_for_the_wire(name: str, wire: str) -> None:
    kind = protocols.get(name)
    one = kind().capabilities(load(kind))
    two = kind().capabilities(load(kind, more_paths=[{"address": "10.77.0.2"}]))
    assert (one - two, two - one) == ({wire}, {"multipath"})
    assert two <= kind.capability_names


@every_protocol
def test_short_names_name_options(protocol: type[Protocol[Any]]) -> None:
    assert set(protocol.Options.short) <= set(protocol.Options.model_fields)


@every_protocol
def test_no_option_is_shaped_like_a_command_line_switch(protocol: type[Protocol[Any]]) -> None:
    """What reaches a command line as a word of its own must not be able to pass for a switch."""
    for name in {"address", "export", "share", "iqn", "nqn", "fsname", "path", "device", "mgs", "pool"}:
        if name in protocol.Options.model_fields:
            with pytest.raises(ValidationError):
                load(protocol, **{name: "--evil" if name != "share" else "a/b"})


@every_protocol
def test_secrets_are_shown_by_nothing(protocol: type[Protocol[Any]]) -> None:
    secret = {"password": "hunter2-secret"}
    account = {"username": "u", **secret}
    more: dict[str, object] = {"chap": {**account, "mutual": account}, **secret}
    wanted = {name: value for name, value in more.items() if name in protocol.Options.model_fields}
    options = load(protocol, **wanted)
    assert "hunter2" not in f"{options!r} {options} {options.model_dump()} {options.model_dump_json()}"


@every_protocol
def test_the_requirements_of_an_attach_are_known_before_any_connection(protocol: type[Protocol[Any]]) -> None:
    options = load(protocol)
    needs = protocol().needs(options)  # type: ignore[abstract]
    assert bool(needs.tools or needs.modules) <= bool(needs.packages)
    assert all(tool and "/" not in tool for tool in needs.tools)
    assert all(0 < port < 1 << 16 for port in protocol.ports)
    if protocol.ports:
        assert needs.tools, "what a client's kernel mounts or logs in to takes a command"
        assert needs.port in protocol.ports, "by default it is where it usually answers"
        assert needs.address == protocol().server(options)  # type: ignore[abstract]


@every_protocol
@pytest.mark.parametrize(
    "run",
    [
        Mock(side_effect=HostError("lost")),
        Mock(return_value=Completed("c", ("x",), 1, "/not an answer\n", "no", 0.1)),
        Mock(return_value=Completed("c", ("x",), 0, "{\x00 noise\n\n]", "", 0.1)),
    ],
    ids=["lost", "fails", "noise"],
)
def test_a_machine_that_cannot_be_asked_offers_nothing_and_is_no_error(
    protocol: type[Protocol[Any]], run: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = LocalHost()
    monkeypatch.setattr(client, "run", run)
    for one in protocol().discover(client, "nas.example.net", deadline=1):  # type: ignore[abstract]
        assert set(one) <= set(protocol.Options.model_fields)
