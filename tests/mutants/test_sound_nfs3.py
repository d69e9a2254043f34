"""Sound servers: the NFSv3 suite accuses none for a legal choice (RFC 1813)."""

from pathlib import Path

import mutation_run
import pytest
from ganesha import EXPORT, is_installed
from ganesha_front import serve
from nfs3_sound_run import CASES
from nfs3_sound_whole import LEGAL
from proxy import Proxy
from rpc_records import splitter
from suite_runs import run_suite

pytestmark = pytest.mark.skipif(not is_installed(), reason="nfs-ganesha is not installed")


def test_a_sound_server_is_accused_by_no_case(tmp_path: Path) -> None:
    outcomes = mutation_run.run("nfs3_sound_run", tmp_path, honest=False)
    tried = {one.case: one for attempts in outcomes.attempts.values() for one in attempts}
    assert set(tried) == {case for cases in CASES.values() for case in cases}
    idle = sorted(case for case, one in tried.items() if not one.acted)
    assert not idle, f"the server did not make its choice in {idle}"
    found = {case: (one.outcome, one.message) for case, one in tried.items()}
    for encouraged in ("NF3-RENAME-HANDLE", "NF3-CREATE-UNCHECKED-KEEPS"):  # and not required
        assert found.pop(encouraged)[0] == "warned"
    for missing in ("NF3-READDIRPLUS-REMOVED-PAGE", "NF3-SETATTR-GUARD-NSEC", *CASES["create-plain"]):
        assert found.pop(missing)[0] == "skipped"
    assert {outcome for outcome, _ in found.values()} <= {"passed", "observed"}, found


@pytest.mark.parametrize("name", LEGAL)
def test_a_sound_server_is_accused_by_no_case_of_the_suite(name: str, tmp_path: Path) -> None:
    with serve() as (host, port), Proxy(host, port, splitter, LEGAL[name].rewrites()) as proxy:
        target = {"protocol": "nfs", "version": "3", "export": EXPORT, "address": "127.0.0.1"}
        target |= dict.fromkeys(("port", "mount_port", "lock_port"), proxy.port)
        target["implementation"] = {"name": "nfs-ganesha", "version": "4.3"}
        records = run_suite({"sound": target}, tmp_path, "nfs3", options=("-m", "not slow"))
    assert sum(record["outcome"] == "passed" for record in records) > 350
    red = {record["id"]: record["message"] for record in records if record["outcome"] in ("failed", "error")}
    assert not {case: message for case, message in red.items() if "remove the entry" not in message}
