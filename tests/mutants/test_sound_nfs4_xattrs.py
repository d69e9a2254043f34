"""The server of extended attributes in the proxy is sound: its pages have each name once."""

import pytest
from nfs4_xattr_mutants import Attributes as Stored

from storagetest.suites.conformance.nfs4.test_xattrs import LONG, MANY, MIXED, Attributes
from storagetest.wire.nfs4.client import Done
from storagetest.wire.nfs4.types import COMPOUND4res, LISTXATTRS4args, nfs_opnum4, nfs_resop4


class Listed(Attributes):
    """Attributes that are asked for their names alone, without a connection."""

    def __init__(self, names: list[bytes]) -> None:
        self.stored = Stored(dict.fromkeys(names, b"v"))

    def list(self, cookie: int = 0, maxcount: int = 8192) -> Done:
        result = self.stored.list(LISTXATTRS4args(cookie, maxcount))
        listed = nfs_resop4(nfs_opnum4.OP_LISTXATTRS, result)
        return Done(COMPOUND4res(result.lxr_status, b"", (listed,)))


@pytest.mark.parametrize("names", [MANY, MIXED, LONG, []], ids=["many", "mixed", "long", "none"])
@pytest.mark.parametrize("maxcount", [80, 100, 128, 200, 500, 8192])
def test_each_name_is_listed_once(names: list[bytes], maxcount: int) -> None:
    assert sorted(Listed(names).names(maxcount)) == names
