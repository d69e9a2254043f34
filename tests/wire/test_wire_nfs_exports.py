"""What the looks at an NFS export find: directories of killed runs, and callers that the export maps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import ganesha
import pytest

from storagetest.errors import AttachError
from storagetest.hosts.run_directories import is_left, new_name
from storagetest.wire.nfs3 import harness as nfs3
from storagetest.wire.nfs3.client import ok
from storagetest.wire.nfs4 import harness as nfs4

LOOKS = {
    "3": "from storagetest.wire.nfs3.harness import *; endpoint = Nfs3Endpoint",
    "4": "from storagetest.wire.nfs4.harness import *; endpoint = Nfs4Endpoint",
}
KILLED = """
import sys, time
from storagetest.hosts.run_directories import new_name
{look}({arguments})
print(look(endpoint, new_name()).name.decode(), flush=True)
time.sleep(300)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ganesha.Ganesha]:
    if not ganesha.is_installed():
        pytest.skip("NFS-Ganesha is not installed")
    with ganesha.ganesha() as made:
        yield made


def endpoint_of(server: ganesha.Ganesha, export: str = ganesha.EXPORT) -> nfs3.Nfs3Endpoint:
    return nfs3.Nfs3Endpoint("127.0.0.1", server.nfs, export, 10.0, server.mount, server.lock)


def names_in(facts: nfs3.Nfs3Export) -> set[bytes]:
    with nfs3.Nfs3Harness(facts.endpoint) as bench:
        return {one.name for one in bench.arranger().entries(facts.root)} - {b".", b".."}


def killed_run(version: str, server: ganesha.Ganesha) -> bytes:
    """Return the name of the directory of a run that was killed."""
    ports = f", {server.mount}" if version == "3" else ""
    arguments = f"'127.0.0.1', {server.nfs}, '{ganesha.EXPORT}', 10.0{ports}"
    argv = [sys.executable, "-c", KILLED.format(look=LOOKS[version], arguments=arguments)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert not is_left(name), "its process runs"
        os.kill(process.pid, signal.SIGKILL)
    return name


@pytest.mark.parametrize("version", ["3", "4"])
def test_the_directory_of_a_killed_run_is_removed_by_the_next(server: ganesha.Ganesha, version: str):
    name = killed_run(version, server)
    endpoint = endpoint_of(server)
    if version == "3":
        facts = nfs3.look(endpoint, new_name(), is_left=is_left)
        found = names_in(facts)
        nfs3.clean_up(facts)
    else:
        other = nfs4.Nfs4Endpoint("127.0.0.1", server.nfs, ganesha.EXPORT, 10.0)
        facts4 = nfs4.look(other, new_name(), is_left=is_left)
        found = {one.name for one in _entries4(facts4)}
        nfs4.clean_up(facts4)
    assert name not in found
    assert len(found) == 1, "the directory of this run is there"


def _entries4(facts: nfs4.Nfs4Facts) -> list[object]:
    with nfs4.Nfs4Harness(facts.endpoint) as bench:
        return list(nfs4.entries(bench.arranger(facts.minors[-1]), facts.root))


def test_other_directories_stay(server: ganesha.Ganesha):
    facts = nfs3.look(endpoint_of(server), new_name(), is_left=is_left)
    prefix, _, start = new_name().rpartition(b".")
    ended = prefix + b"." + str(int(start) + 1).encode()
    boot = ended.replace(ended.split(b".")[1], b"0" * 32)
    kept = {b"storagetest-wire-01234567", b"storagetest-wire-", new_name(), boot}
    with nfs3.Nfs3Harness(facts.endpoint) as bench:
        nfs = bench.arranger()
        for name in {*kept, ended}:
            ok(nfs.mkdir(facts.root, name))
        second = nfs3.look(endpoint_of(server), new_name(), is_left=is_left)
        found = names_in(second)
        nfs3.clean_up(second)
        for name in kept:
            ok(nfs.rmdir(facts.root, name))
    nfs3.clean_up(facts)
    assert found == kept | {facts.name, second.name}


@pytest.mark.parametrize(("export", "maps_root"), [(ganesha.EXPORT, False), (ganesha.SQUASHED, True)])
def test_a_look_finds_the_user_that_an_export_maps_root_to(
    server: ganesha.Ganesha, export: str, maps_root: bool
):
    facts = nfs3.look(endpoint_of(server, export), new_name())
    nfs3.clean_up(facts)
    assert (facts.root_is != 0, facts.user_is) == (maps_root, nfs3.OTHER_UID)


def test_an_export_that_cannot_be_written_is_one_sentence(server: ganesha.Ganesha):
    with pytest.raises(AttachError, match=r"MKDIR in the export ended with NFS3ERR_ROFS.*no_root_squash"):
        nfs3.look(endpoint_of(server, ganesha.READ_ONLY), new_name())
