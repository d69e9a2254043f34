"""pynfs runs in a directory of its own in an export."""

import ganesha
import pytest

from storagetest.config.base import SecretText
from storagetest.external.pynfs import Pynfs40
from storagetest.protocols.nfs import Nfs
from storagetest.wire.nfs4.harness import Nfs4Harness, entries

SUITE = Pynfs40()


@pytest.mark.skipif(not ganesha.is_installed(), reason="NFS-Ganesha is not installed")
def test_the_run_has_a_directory_of_its_own_in_the_export_and_leaves_nothing():
    with ganesha.ganesha() as server:
        options = Nfs.Options(
            address="nas.example.net", export=ganesha.EXPORT, wire=SecretText(f"127.0.0.1:{server.nfs}")
        )
        info = SUITE.look(options)
        run = SUITE.invocation("LOCK1", options, info)
        facts = info.made

        def names():
            with Nfs4Harness(facts.endpoint) as bench:
                return [entry.name for entry in entries(bench.arranger(1), facts.root)]

        assert run.argv[1] == f"nfs://127.0.0.1:{server.nfs}{ganesha.EXPORT}/{facts.name.decode()}"
        assert names() == [facts.name]
        SUITE.look_again(options)
        assert names() == [facts.name]
        SUITE.release(options, info)
        assert names() == []
