"""Attaching: the steps that all protocols share, and whether the target can be reached."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest
from device_facts import CLEAN

from storagetest.config.base import BlockOptions, Items, Port, Portal, TargetOptions
from storagetest.errors import (
    AttachError,
    ClientLacks,
    DataAtRisk,
    DeadlineExceeded,
    OptionRefused,
    TargetDead,
)
from storagetest.hosts import Completed, Journal, LocalHost
from storagetest.protocols import _preflight, template
from storagetest.protocols._preflight import PreflightResult
from storagetest.protocols.base import AttachmentKind, ClientRequirements
from storagetest.protocols.template import Attaching, Mounted, MountRequest

STEPS = {"preflight", "mount", "query", "unmount", "existing", "connect", "release", "facts", "clear"}


class Share(template.MountedProtocol["Share.Options"]):
    """A share with a size."""

    class Options(TargetOptions):
        rsize: int = 4096

        @property
        def target_label(self) -> str:
            return "the share"

    def server(self, options: Share.Options) -> str:
        return "nas"

    def mount_request(self, options: Share.Options) -> MountRequest:
        return MountRequest("sharefs", "nas:/a", lambda path: [f"secret={path}"], b"hunter2", ["/proc/share"])

    def error_from_output(self, stderr: str, options: Share.Options, client: str) -> OptionRefused | None:
        return OptionRefused(f"{client}: too old") if "old" in stderr else None

    def negotiated(self, attaching: Attaching, options: Share.Options, mount: Mounted) -> Mapping[str, str]:
        return {**mount.entry.options, "file": mount.files["/proc/share"]}

    def requested(self, options: Share.Options) -> Mapping[str, object]:
        return {"rsize": options.rsize, "wsize": None}


class Disk(template.DeviceProtocol["Disk.Options"]):
    """A disk behind a connection."""

    class Options(BlockOptions):
        address: str = "10.0.0.1"
        port: Port = 3260
        more_paths: Items[Portal] = ()

    def needs(self, options: Disk.Options) -> ClientRequirements:
        return ClientRequirements(address=options.address, port=options.port)

    def connection(self, options: Disk.Options) -> template.Connection:
        return template.Connection(
            "a connection",
            ["existing"],
            "has a session",
            "Log out",
            connect=lambda attaching: (attaching.run(["connect"]).stdout, {"depth": "8"}),
            release=lambda seconds: ["release", str(seconds)],
        )


class Scripted(LocalHost):
    """Keeps its journal for real; commands of the protocols are answered as given and noted."""

    def __init__(self, **results: tuple[int, str, str]) -> None:
        super().__init__()
        self.results = results
        self.steps: list[str] = []
        self.mounted = ""

    def run(self, argv: Any, **more: Any) -> Completed:
        words = list(argv)
        scripted = next((word for word in words if word.startswith("storagetest-")), "")
        step = scripted.removeprefix("storagetest-") or (words[2] if words[0] == "python3" else words[0])
        if step not in STEPS:  # the journal's
            return super().run(argv, **more)
        self.steps.append(step)
        if step == "mount":
            self.mounted = words[4]
        if step in {"mount", "connect"}:
            assert Journal(LocalHost()).entries(), "how to undo it is written before it is done"
        mount_state = f"1 2 0:5 / {self.mounted} rw - sharefs nas:/a rsize=1024\n== /proc/share\nfast"
        mount_state = f"== size\n2 4096\n== /proc/self/mountinfo\n{mount_state}"
        usual = {"query": mount_state, "connect": "sdx", "facts": json.dumps(asdict(CLEAN))}
        status, out, err = self.results.get(step, (0, usual.get(step, ""), ""))
        if status == 124:
            raise DeadlineExceeded("it hangs")
        return Completed("c", tuple(words), status, out, err, 0.1)

    def push(self, *_: Any, **__: Any) -> None:
        self.steps.append("secret")


def entries() -> int:
    return len(Journal(LocalHost()).entries())


def test_a_file_system_is_checked_journalled_mounted_read_back_and_released():
    client = Scripted()
    with Share().attach(client, Share.Options()) as attachment:
        assert client.steps == ["preflight", "secret", "mount", "query"]
        assert attachment.kind is AttachmentKind.FILESYSTEM
        assert attachment.path.startswith(attachment.root)
        assert (attachment.size, attachment.negotiated) == (8192, {"rsize": "1024", "file": "fast"})
        assert [str(one) for one in attachment.mismatches] == ["rsize: requested 4096, got 1024"]
        assert entries() == 1
    assert client.steps[4:] == ["unmount"]
    assert entries() == 0


def test_what_the_protocol_knows_of_a_refusal_is_the_error():
    client = Scripted(mount=(32, "", "the server is too old"))
    with pytest.raises(OptionRefused, match="too old"), Share().attach(client, Share.Options()):
        pass
    assert client.steps[-1] == "unmount"
    assert entries() == 0


def test_a_step_that_does_not_end_names_target_client_and_step():
    client = Scripted(mount=(124, "", ""))
    wanted = r"the share: no response to .*while mounting"
    with pytest.raises(TargetDead, match=wanted), Share().attach(client, Share.Options()):
        pass
    assert entries() == 0


def test_what_is_left_is_an_error_and_stays_in_the_journal():
    client = Scripted(unmount=(1, "busy", ""))
    wanted = r"mount of nas:/a .*still exists"
    with pytest.raises(AttachError, match=wanted), Share().attach(client, Share.Options()):
        pass
    assert entries() == 1


def test_a_device_is_connected_examined_leased_and_cleared():
    client = Scripted()
    with Disk().attach(client, Disk.Options(erase="naa.1")) as attachment:
        assert client.steps == ["preflight", "existing", "connect", "facts"]
        assert (attachment.path, attachment.negotiated) == ("/dev/sdx", {"depth": "8"})
        assert entries() == 1
    assert client.steps[4:] == ["clear", "release"]
    assert entries() == 0


def test_a_device_that_may_not_be_overwritten_is_released_untouched():
    client = Scripted()
    with pytest.raises(DataAtRisk), Disk().attach(client, Disk.Options(erase="naa.2")):
        pass
    assert client.steps[-1] == "release"
    assert "clear" not in client.steps


def test_a_connection_of_another_user_is_not_changed():
    client = Scripted(existing=(0, "session3\n", ""))
    wanted = r"disk: .* already has a session \(session3\), which storagetest does not touch. Log out there"
    with pytest.raises(AttachError, match=wanted), Disk().attach(client, Disk.Options()):
        pass
    assert client.steps == ["preflight", "existing"]
    assert entries() == 0


def test_every_path_is_checked():
    more = [{"address": "10.0.0.2"}, {"address": "10.0.0.3", "port": 1}]
    options = Disk.Options.model_validate({"more_paths": more})
    paths = [(path.address, path.port) for path in template.each_path(options)]
    assert paths == [("10.0.0.1", 3260), ("10.0.0.2", 3260), ("10.0.0.3", 1)]
    client = Scripted()
    Disk().probe(client, options)
    assert client.steps == ["preflight"] * 3


GOOD = PreflightResult(root=True, tools=(), modules=(), connect=(0, ""))


def say(findings: PreflightResult) -> None:
    _preflight.raise_for_findings(
        findings, client="c1", target="nfs h:/e", address="h", port=2049, packages="nfs-common"
    )


def test_parse() -> None:
    text = "root no\ntool mount.nfs\ntool x\nmodule nfsv4\nconnect 1 bash: connect: Connection refused\n"
    assert _preflight.parse_findings(text) == PreflightResult(
        False, ("mount.nfs", "x"), ("nfsv4",), (1, "bash: connect: Connection refused")
    )
    assert _preflight.parse_findings("connect 0 \n") == GOOD
    assert not _preflight.parse_findings("device rdma\n").rdma
    assert _preflight.parse_findings("") == PreflightResult(True, (), (), None)


def test_nothing_lacking_is_silent() -> None:
    say(GOOD)
    say(PreflightResult(True, (), (), None))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"tools": ("mount.nfs",)}, ClientLacks, "c1 has no mount.nfs.*Install nfs-common"),
        ({"modules": ("nfsv4",)}, ClientLacks, "c1's kernel has no nfsv4"),
        (
            {"root": False, "modules": ("nfsv4",), "connect": None},
            ClientLacks,
            "not root and cannot load modules",
        ),
        ({"root": False}, ClientLacks, "require root on c1"),
        ({"rdma": False}, ClientLacks, r"c1 has no RDMA device \(/sys/class/infiniband\)\. Use a client"),
        (
            {"rdma": False, "modules": ("ib_iser",)},
            ClientLacks,
            r"c1 has no RDMA device \(.*\), and its kernel has no ib_iser\. Use a client with an RDMA card",
        ),
        ({"connect": (1, "Connection refused")}, TargetDead, "c1 cannot connect to h port 2049: .*refused"),
        ({"connect": (124, "")}, TargetDead, "no response within"),
    ],
)
def test_each_lack_has_its_error(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        say(replace(GOOD, **change))


def test_unknown_words_are_passed_on() -> None:
    assert _preflight.unreachable_reason(1, "bash: something new", "h") == "bash: something new"
    assert _preflight.unreachable_reason(7, "", "h") == "status 7"


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def check(address: str, port: int, **more: object) -> None:
    needs = ClientRequirements(address=address, port=port, **more)  # type: ignore[arg-type]  # tools or modules
    _preflight.check_client(LocalHost(), needs, target="a target", deadline=30)


def test_open_port_is_reached(listener: int) -> None:
    check("127.0.0.1", listener, tools=("sh",))


def test_closed_port(listener: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    with pytest.raises(TargetDead, match=f"cannot connect to .* port {closed}: .* refused"):
        check("127.0.0.1", closed)


def test_unknown_name() -> None:
    with pytest.raises(TargetDead, match=r"the name 'no-such-host\.invalid'"):
        check("no-such-host.invalid", 1)


def test_missing_tool_and_module_are_found() -> None:
    with pytest.raises(ClientLacks, match="no-such-tool"):
        check("", 0, tools=("sh", "no-such-tool"))
    with pytest.raises(ClientLacks, match="no_such_module"):
        check("", 0, modules=("no_such_module",))


def test_collect_never_raises() -> None:
    found = _preflight.collect_diagnostics(
        LocalHost(), {"good": ["echo", "x"], "bad": ["false"], "missing": ["no-such-tool"]}
    )
    assert found["good"] == "x\n"
    assert "exited 1" in found["bad"]
    assert "not installed" in found["missing"]
    assert "dmesg" in found
