"""NVMe/TCP with a faulty controller, and at the limits that it announces."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from suite_runs import run_suite

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme.limits import UNLIMITED, Limits
from storagetest.wire.nvme.structures import Cap, ControllerData, NamespaceData, NvmCommandLimits, whole_list
from storagetest.wire.nvme_tcp.harness import implementation
from storagetest.wire.nvme_tcp.pdu import ICResp, encode

DEADLINE = 1.0
CASES = ("NVT-CAPSULE-02", "NVA-ID-CTRL-01", "NVF-CONNECT-03", "NVB-RW-01", "NVT-H2CTERM-02")
"""Of a response, a controller, a Connect, an I/O queue and an ending."""

NAMES = (
    "test_there_is_no_phase_tag or test_identify_returns_4096_bytes or test_an_unknown_subsystem_is_refused "
    "or test_what_is_written_is_read or test_h2ctermreq_is_not_answered"
)


def closes(sock: socket.socket) -> None:
    """Take what comes first, and close."""
    sock.recv(4096)


def closes_after_icresp(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.sendall(encode(ICResp()))
    sock.recv(4096)


def hangs(sock: socket.socket) -> None:
    """Receive all data, send nothing."""
    while sock.recv(65536):
        pass


def floods(sock: socket.socket) -> None:
    """Send endless unexpected PDUs after ICResp."""
    sock.sendall(encode(ICResp()))
    while True:
        sock.sendall(bytes([0x05, 0, 24, 0, 24, 0, 0, 0]) + b"\xf1" * 16)


def garbage(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.sendall(b"\xba\xdc\x0f\xfe" * 64)
    hangs(sock)


def garbage_after_icresp(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.sendall(encode(ICResp()))
    sock.recv(4096)
    sock.sendall(b"\xba\xdc\x0f\xfe" * 64)
    hangs(sock)


def four_gib(sock: socket.socket) -> None:
    """A C2HData whose PLEN is FFFFFFFFh, and as much of it as is taken."""
    sock.recv(4096)
    sock.sendall(encode(ICResp()) + bytes([0x07, 0, 24, 24]) + b"\xff" * 4)
    while True:
        sock.sendall(b"\xda" * 65536)


PEERS: dict[str, tuple[Callable[[socket.socket], None], str]] = {
    "closes": (closes, "closed"),
    "closes-after-icresp": (closes_after_icresp, "closed"),
    "hangs": (hangs, "neither responded nor closed"),
    "floods": (floods, "f1f1f1f1"),
    "garbage": (garbage, "badc0ffe"),
    "garbage-after-icresp": (garbage_after_icresp, "badc0ffe"),
    "four-gib": (four_gib, "ffffffff"),
}
"""What a controller does, and what the failure of a case shows of it."""


@contextlib.contextmanager
def serving(peer: Callable[[socket.socket], None]) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        sockets: list[socket.socket] = []

        def serve(sock: socket.socket) -> None:
            with contextlib.suppress(OSError), sock:
                peer(sock)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    sockets.append(sock)
                    threading.Thread(target=serve, args=(sock,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        for sock in (listener, *sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, object]]:
    """Run a few cases on every such controller, in a run that judges each; return the records."""
    where = tmp_path_factory.mktemp("bad-luck")
    with contextlib.ExitStack() as stack:
        targets = {
            name: {
                "protocol": "nvme-tcp",
                "address": "127.0.0.1",
                "port": stack.enter_context(serving(peer)),
                "nqn": "nqn.2024-01.example:bad-luck",
                "erase": "uuid.22222222-2222-4222-8222-222222222201",
                "deadline": f"{DEADLINE:g}s",
            }
            for name, (peer, _) in PEERS.items()
        }
        cases = run_suite(targets, where, "nvme_tcp", options=("-k", NAMES, "--st-judge-all"))
    return {(one["target"], one["id"]): one for one in cases}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("peer", PEERS)
def test_each_case_ends_and_the_suite_goes_on(
    records: dict[tuple[str, str], dict[str, object]], peer: str, case: str
) -> None:
    record = records[peer, case]
    assert record["outcome"] in ("failed", "warned", "skipped"), record
    if record["outcome"] == "skipped":  # cases that need a scratch: the target could not be queried
        assert "could not be queried" in str(record["message"])
        return
    message = str(record["message"]).replace(" ", "")
    assert PEERS[peer][1].replace(" ", "") in message, record["message"]


def controller(**fields: int | bytes) -> ControllerData:
    """Return Identify Controller with bytes at the named places."""
    raw = bytearray(4096)
    for name, value in fields.items():
        at = {"mdts": 77, "maxcmd": 514, "mn": 24, "fr": 64}[name]
        data = value if isinstance(value, bytes) else value.to_bytes(2 if name == "maxcmd" else 1, "little")
        raw[at : at + len(data)] = data
    return ControllerData(bytes(raw))


def namespace(*, shift: int = 9, mssrl: int = 0, mcl: int = 0, msrc: int = 0) -> NamespaceData:
    raw = bytearray(4096)
    raw[74:76], raw[76:80], raw[80] = mssrl.to_bytes(2, "little"), mcl.to_bytes(4, "little"), msrc
    raw[130] = shift
    return NamespaceData(bytes(raw))


def limits(
    mdts: int = 0, shift: int = 12, *, mqes: int = 127, maxcmd: int = 0, mpsmin: int = 0, **more: int
) -> Limits:
    commands = NvmCommandLimits(**{name: more.pop(name, 0) for name in ("vsl", "wzsl", "wusl", "dmrl")})
    cap = Cap(mqes | mpsmin << 48)
    return Limits.of(cap, controller(mdts=mdts, maxcmd=maxcmd), namespace(shift=shift, **more), commands)


@pytest.mark.parametrize(
    ("mdts", "mpsmin", "shift", "blocks"),
    [
        (0, 0, 12, UNLIMITED),
        (5, 0, 12, 32),
        (5, 0, 9, 256),
        (1, 0, 12, 2),
        (1, 4, 12, 32),
        (30, 0, 9, UNLIMITED),
    ],
)
def test_mdts_is_a_power_of_two_of_the_least_pages(mdts: int, mpsmin: int, shift: int, blocks: int) -> None:
    assert limits(mdts, shift, mpsmin=mpsmin).transfer == blocks


@pytest.mark.parametrize(
    ("flbas", "ctratt", "size", "blocks"),
    [(0x10, 0, 520, 252), (0x10, 1 << 16, 520, 256), (0, 0, 512, 256)],
)
def test_metadata_of_an_extended_lba_is_transferred(flbas: int, ctratt: int, size: int, blocks: int) -> None:
    raw = bytearray(namespace().raw)
    raw[26], raw[128], raw[130] = flbas, 8, 9
    one, every = NamespaceData(bytes(raw)), bytearray(controller(mdts=5).raw)
    every[96:100] = ctratt.to_bytes(4, "little")
    found = Limits.of(Cap(127), ControllerData(bytes(every)), one, NvmCommandLimits())
    assert (one.block_size, found.block_size, found.transfer) == (size, size, blocks)


def test_a_transfer_is_cut_to_the_limit_and_never_to_nothing() -> None:
    planned = limits(1)
    assert [planned.blocks_of(size) for size in (1, 4096, 4097, 1 << 20)] == [1, 1, 2, 2]
    assert planned.blocks_of(1 << 20, most=1) == 1


def test_pieces_cover_every_block_once() -> None:
    assert list(limits(1).pieces(10, 5)) == [(10, 2), (12, 2), (14, 1)]
    assert list(limits(1).pieces(10, 5, most=4)) == [(10, 4), (14, 1)]


@pytest.mark.parametrize(
    ("mssrl", "mcl", "msrc", "ranges"),
    [
        (64, 128, 3, [(4, 4), (0, 2)]),
        (64, 128, 0, [(4, 4)]),
        (1, 128, 3, [(4, 1), (0, 1)]),
        (64, 5, 3, [(4, 4), (0, 1)]),
        (0, 128, 3, []),
    ],
)
def test_a_copy_is_cut_to_msrc_mssrl_and_mcl(
    mssrl: int, mcl: int, msrc: int, ranges: list[tuple[int, int]]
) -> None:
    assert limits(mssrl=mssrl, mcl=mcl, msrc=msrc).copied([(4, 4), (0, 2)]) == ranges


def test_commands_at_once_are_limited_by_mqes_and_maxcmd() -> None:
    assert limits(mqes=127).outstanding == 127
    assert limits(mqes=1).outstanding == 1
    assert limits(mqes=127, maxcmd=8).outstanding == 8


def test_the_limits_of_commands_without_data() -> None:
    planned = limits(vsl=1, wzsl=2, wusl=3, dmrl=3)
    assert (planned.verify, planned.zeroes, planned.marks, planned.discard_ranges) == (2, 4, 8, 3)
    decoded = NvmCommandLimits.decode(bytes([1, 2, 9, 3, 4]).ljust(4096, b"\0"))
    assert decoded == NvmCommandLimits(vsl=1, wzsl=2, wusl=9, dmrl=3, dmrsl=4)


def test_a_namespace_list_without_end_is_not_read_for_ever() -> None:
    endless = whole_list(lambda above: list(range(above + 1, above + 1025)))
    assert len(endless) == 1025 * 1024
    assert whole_list(lambda above: [1, 2, 7]) == [1, 2, 7]


def test_limits_that_are_cut_off_are_an_error() -> None:
    with pytest.raises(RemoteProtocolError):
        NvmCommandLimits.decode(bytes(512))


@pytest.mark.parametrize(
    ("model", "revision", "name"),
    [
        (b"SPDK bdev Controller", b"24.01.1", ("spdk", "24.01.1")),
        (b"Linux", b"6.1.0-56", ("nvmet", "6.1.0-56")),
        (b"another", b"1", ("", "")),
    ],
)
def test_implementations_are_recognised(model: bytes, revision: bytes, name: tuple[str, str]) -> None:
    assert implementation(controller(mn=model.ljust(40), fr=revision.ljust(8)[:8])) == name
