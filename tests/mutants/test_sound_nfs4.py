"""Sound servers: the NFSv4 suite accuses none for a legal choice (RFC 8881)."""

from pathlib import Path

import pytest
from ganesha import EXPORT, ganesha, is_installed
from nfs4_mutation_run import GANESHA
from nfs4_sound import LEGAL
from proxy import Proxy
from rpc_records import splitter
from suite_runs import run_suite

pytestmark = pytest.mark.skipif(not is_installed(), reason="nfs-ganesha is not installed")

MODULES = {
    "short-io": ("attributes", "io", "limits", "v42"),
    "one-entry": ("after_changes", "readdir"),
    "few-attributes": ("limits", "namespace"),
    "small-session": ("filehandles", "readdir", "slots"),
    "busy": ("again", "client_ids", "compound", "filehandles", "open_state"),
    "modest": ("attributes", "io", "limits", "made", "v42"),
}
"""The modules of the suite that a choice concerns."""


@pytest.mark.parametrize("name", MODULES)
def test_a_sound_server_is_accused_by_no_case(name: str, tmp_path: Path) -> None:
    with (
        ganesha(lease=60) as server,
        Proxy("127.0.0.1", server.nfs, splitter, LEGAL[name].rewrites()) as proxy,
    ):
        target = {"protocol": "nfs", "version": "4.2", "export": EXPORT, "address": "127.0.0.1"}
        target |= {"port": proxy.port, "implementation": {"name": "nfs-ganesha", "version": GANESHA}}
        modules = (f"nfs4/test_{module}.py" for module in MODULES[name])
        records = run_suite({"sound": target}, tmp_path, *modules, options=("-m", "not slow", "-k", "NFS42"))
    assert sum(record["outcome"] == "passed" for record in records) > 40
    red = {record["id"]: record["message"] for record in records if record["outcome"] in ("failed", "error")}
    assert not {case: message for case, message in red.items() if "remove the entry" not in message}
