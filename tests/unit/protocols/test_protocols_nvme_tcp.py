from typing import Any

import pytest

from storagetest.errors import AttachError, OptionRefused
from storagetest.hosts import Completed
from storagetest.protocols import nvme_tcp
from storagetest.protocols.base import protocols

NvmeTcp: Any = protocols.get("nvme-tcp")


def options(**more: object) -> Any:
    return NvmeTcp.Options(**{"address": "10.77.0.1", "nqn": "nqn.2024-01.lab:fast", **more})


LOOK = """\
controller:nvme0
namespace-1:nvme0n1
block:nvme0n1
state:live
queue_count:3
sqsize:127
kato:5
numa_node:-1
address:traddr=10.77.0.1,trsvcid=4420
model:Linux
firmware_rev:6.1.0-56
cntlid:1
"""


def test_connect_passes_the_given_options() -> None:
    argv = nvme_tcp.connect_argv(
        options(queues=2, queue_depth=64, header_digest=True, data_digest=True, keep_alive=7, deadline=30),
        "nqn.host",
        "id",
    )
    assert argv == [
        "nvme",
        "connect",
        "--transport=tcp",
        "--traddr=10.77.0.1",
        "--trsvcid=4420",
        "--nqn=nqn.2024-01.lab:fast",
        "--hostnqn=nqn.host",
        "--hostid=id",
        "--keep-alive-tmo=7",
        "--reconnect-delay=2",
        "--ctrl-loss-tmo=30",
        "--nr-io-queues=2",
        "--queue-size=64",
        "--hdr-digest",
        "--data-digest",
    ]


def test_options_that_are_not_set_are_not_passed() -> None:
    argv = " ".join(nvme_tcp.connect_argv(options(), "h", "i"))
    assert not any(word in argv for word in ("queue", "digest"))


def test_read_back() -> None:
    seen = nvme_tcp.parse_query(LOOK)
    assert seen["block"] == "nvme0n1"
    assert nvme_tcp.parse_negotiated(seen, options(data_digest=True)) == {
        "queue_count": "3",
        "sqsize": "127",
        "kato": "5",
        "numa_node": "-1",
        "model": "Linux",
        "firmware_rev": "6.1.0-56",
        "cntlid": "1",
        "header_digest": "none",
        "data_digest": "crc32c",
    }


@pytest.mark.parametrize(
    ("asked", "different"),
    [
        ({}, []),
        ({"queues": 2, "queue_depth": 128}, []),
        ({"queues": 4}, ["queues: requested 4, got 2"]),
        ({"queue_depth": 256}, ["queue_depth: requested 256, got 128"]),
        ({"keep_alive": 10}, ["keep_alive: requested 10, got 5"]),
    ],
)
def test_silent_changes_are_found(asked: dict[str, object], different: list[str]) -> None:
    negotiated = nvme_tcp.parse_negotiated(nvme_tcp.parse_query(LOOK), options())
    assert [str(one) for one in NvmeTcp().option_mismatches(options(**asked), negotiated)] == different


STDERR = "could not add new controller: failed to write to nvme-fabrics device"


@pytest.mark.parametrize(
    ("kernel", "error", "words"),
    [
        (
            "nvme_tcp: queue 0: header digest mismatch host: enabled ctrl: disabled",
            OptionRefused,
            "these digests",
        ),
        ("nvme nvme0: Connect Invalid Data Parameter, subsysnqn x", AttachError, "it has this NQN"),
        ("", AttachError, "Check that it has this NQN"),
    ],
)
def test_words_of_nvme_connect_and_of_the_kernel(kernel: str, error: type[Exception], words: str) -> None:
    found = nvme_tcp.error_from_output(Completed("c1", ("nvme",), 1, "", STDERR, 0.1), options(), kernel)
    assert type(found) is error
    assert words in str(found)
    assert STDERR in str(found)
    assert kernel in str(found)


def test_each_portal_is_a_path_of_its_own() -> None:
    asked = options(more_paths=[{"address": "10.77.0.2"}, {"address": "10.77.0.1", "port": 4421}])
    paths = [(path.address, path.port) for path in nvme_tcp.each_path(asked)]
    assert paths == [("10.77.0.1", 4420), ("10.77.0.2", 4420), ("10.77.0.1", 4421)]
    argv = nvme_tcp.connect_argv(nvme_tcp.each_path(asked)[2], "h", "i")
    assert {"--traddr=10.77.0.1", "--trsvcid=4421"} <= set(argv)


def test_a_path_that_is_not_live_is_a_difference() -> None:
    asked = options(more_paths=[{"address": "10.77.0.2"}])
    seen = nvme_tcp.parse_query(LOOK + "path-nvme0:live\npath-nvme1:connecting\n")
    negotiated = nvme_tcp.parse_negotiated(seen, asked)
    assert negotiated["paths"] == "1"
    assert [*map(str, NvmeTcp().option_mismatches(asked, negotiated))] == ["paths: requested 2, got 1"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([{"namespace": 1, "erase": "uuid.1"}], "each namespace is named once"),
        ([{"namespace": 2, "erase": "uuid.1"}] * 2, "each namespace is named once"),
        ([{"namespace": 2, "erase": "uuid.*"}], "a pattern is not allowed"),
        ([{"namespace": 2}], "Field required"),
    ],
)
def test_each_more_namespace_is_another_and_has_its_identity(
    more: list[dict[str, object]], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        options(more_namespaces=more)
    asked = options(more_namespaces=[{"namespace": 2, "erase": "uuid.2"}])
    assert [(one.namespace, one.erase) for one in asked.more_namespaces] == [(2, "uuid.2")]
