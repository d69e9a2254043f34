"""Captures that the NFS suites write, read by tshark: it finds calls and replies, and no fault."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ganesha
import ganesha_front
import kdc
import pytest
import secure_nfs
from pnfs_nfs import EXPORT, PnfsNfs
from suite_runs import run_suite

pytestmark = pytest.mark.skipif(
    shutil.which("tshark") is None, reason="tshark is not installed (script/setup installs it)"
)
GSS_NAME = "nfs@localhost"


@contextmanager
def layouts() -> Iterator[dict[str, Any]]:
    """Serve NFSv4.1 and 4.2 with layouts; yield the target."""
    with PnfsNfs() as server:
        yield {"version": "4.2", "export": EXPORT, "port": server.port}


@contextmanager
def files() -> Iterator[dict[str, Any]]:
    """Serve NFSv3, MOUNT and NLM by NFS-Ganesha; yield the target."""
    if not ganesha.is_installed():
        pytest.skip("NFS-Ganesha is not installed (script/setup installs it)")
    with ganesha_front.serve() as (_, port):
        ports = dict.fromkeys(("port", "mount_port", "lock_port"), port)
        yield {"version": "3", "export": ganesha.EXPORT, **ports}


@contextmanager
def kerberos() -> Iterator[dict[str, Any]]:
    """Serve NFSv4.0 with RPCSEC_GSS; yield the target."""
    if kdc.why_not():
        pytest.skip(kdc.why_not())
    with kdc.realm(), secure_nfs.SecureNfs() as server:
        name = {"security": "krb5p", "service_principal": GSS_NAME}
        yield {"version": "4.0", "export": secure_nfs.EXPORT, "port": server.port, **name}


def frames(capture: Path) -> list[tuple[set[str], str]]:
    """Return protocols and faults of each frame with a payload; a part of a record counts at its end."""
    fields = [
        word
        for name in (
            "frame.protocols",
            "tcp.reassembled_in",
            "_ws.col.Protocol",
            "_ws.malformed",
            "_ws.expert.message",
        )
        for word in ("-e", name)
    ]
    argv = ["tshark", "-2", "-r", str(capture), "-Y", "tcp.len > 0", "-T", "fields", *fields]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True)
    rows = [(line + "\t\t\t\t").split("\t") for line in done.stdout.splitlines()]
    return [({*row[0].split(":"), row[2]}, f"{row[3]} {row[4]}") for row in rows if not row[1]]


SAMPLES = {
    "nfs4": (layouts, "nfs4/test_layouts.py", "LG-CLOSE or GDI-BLOCK or LG-SEQ-NEXT", {"nfs"}),
    "callbacks": (layouts, "nfs4/test_layout_recalls.py", "LRC-TRUNCATE", {"nfs", "NFS CB"}),
    "nfs3": (files, "nfs3/test_filesystem.py", "static", {"nfs"}),
    "mount": (files, "nfs3/test_mount.py", "handle_of_a_mount or null", {"mount"}),
    "nlm": (files, "nfs3/test_locks.py", "test_a_range_that", {"nfs", "nlm"}),
    "gss": (kerberos, "nfs4/test_gss.py", "wrong_checksum", {"rpc"}),
}


SLOW = [name for name, (serve, *_) in SAMPLES.items() if serve is not layouts]
"""Samples that start NFS-Ganesha or a KDC."""


@pytest.mark.parametrize(
    "sample", [pytest.param(one, marks=pytest.mark.slow if one in SLOW else ()) for one in SAMPLES]
)
def test_tshark_finds_calls_and_replies_and_no_fault(sample: str, tmp_path: Path) -> None:
    serve, module, chosen, protocols = SAMPLES[sample]
    with serve() as options:
        target = {"protocol": "nfs", "address": "127.0.0.1", **options}
        select = ("-k", chosen, "--st-wire", str(tmp_path / "wire"))
        records = run_suite({"sound": target}, tmp_path, module, options=select)
    assert records
    captures = [one for one in sorted(tmp_path.glob("wire/**/*.pcap")) if one.stat().st_size > 24][:3]
    assert captures, [record["outcome"] for record in records]
    found: Counter[str] = Counter()
    for capture in captures:
        read = frames(capture)
        found.update(name for names, _ in read for name in names)
        for number, (names, fault) in enumerate(read, 1):
            assert "rpc" in names, f"{capture.name}: frame {number} with data is {sorted(names)}"
            assert "alformed" not in fault, f"{capture.name}: frame {number}: {fault}"
            assert "issector bug" not in fault, f"{capture.name}: frame {number}: {fault}"
    assert protocols <= set(found), f"tshark found {dict(found)}"
