"""A capture as the proof that a lock request left the client: what it counts, and when it is inconclusive."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from storagetest.counters.base import MOUNTS, RequestKind
from storagetest.runner.request_evidence import RequestCounter
from storagetest.runner.syscall_session import CapturedCalls

NFS3 = """\
device nas:/export mounted on /mnt with fstype nfs statvers=1.1
\tper-op statistics
\t       GETATTR: 1 1 0 100 100 0 1 1 0
"""


def watch(counts: Mapping[str, int], lost: int) -> RequestCounter:
    session = SimpleNamespace(
        read_files=lambda _: {MOUNTS: NFS3},
        start_rpc_capture=lambda: None,
        stop_rpc_capture=lambda: CapturedCalls(counts, lost),
    )
    return RequestCounter(session, "/mnt/d")  # type: ignore[arg-type]  # the part of a session that is used


@pytest.mark.parametrize(
    ("counts", "lost", "count"),
    [
        ({"100021.2": 1, "100021.4": 1, "100003.1": 5}, 0, 2),
        ({"100003.1": 5}, 0, 0),
        ({"100021.2": 1}, 7, 1),
        ({"100003.1": 5}, 7, None),
    ],
    ids=["seen", "none", "seen, some packets lost", "none, some packets lost"],
)
def test_a_capture_that_lost_packets_never_proves_that_nothing_was_sent(
    counts: Mapping[str, int], lost: int, count: int | None
) -> None:
    with watch(counts, lost).count_requests(RequestKind.LOCK) as seen:
        pass
    assert seen.count == count
    assert ("lost 7 packets" in seen.how) == bool(lost)
