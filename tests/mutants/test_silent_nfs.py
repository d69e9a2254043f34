"""A server that accepts connections and answers nothing: one failure of the suites of NFS, which names it."""

import socket
from pathlib import Path

import pytest
from suite_runs import run_suite


@pytest.mark.parametrize(
    ("version", "what"),
    [("3", ("nfs3/test_mount.py", "nfs3/test_locks.py")), ("4.1", ("nfs4/test_tls.py", "nfs4/test_lock.py"))],
)
def test_a_server_that_answers_nothing_is_one_failure(
    version: str, what: tuple[str, ...], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        port = server.getsockname()[1]
        target = {"protocol": "nfs", "version": version, "export": "/export", "address": "127.0.0.1"}
        target |= {"port": port, "deadline": "1s"} | (
            {"mount_port": port, "lock_port": port} if version == "3" else {}
        )
        records = run_suite({"silent": target}, tmp_path, *what, options=("-m", "not slow"))
    red = [record["message"] for record in records if record["outcome"] in ("failed", "error")]
    assert len(red) == 1, red
    assert "neither responded nor closed" in red[0]
    assert len(records) > 20
    assert all(record["outcome"] == "skipped" for record in records if record["message"] not in red)
