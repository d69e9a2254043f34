"""A listing without end: a cookie that comes twice ends it (RFC 1813 3.3.16, RFC 8881 18.23.3)."""

from types import SimpleNamespace
from typing import Any

import pytest

from storagetest.wire.nfs3.client import Nfs3Client
from storagetest.wire.nfs3.types import nfsstat3


class Endless(Nfs3Client):
    """A client of a server that returns the same page for every cookie."""

    def __init__(self) -> None:
        """No connection is needed."""

    def readdir(self, *_: Any, **__: Any) -> Any:
        page = SimpleNamespace(entries=[SimpleNamespace(name=b"a", cookie=7)], eof=False)
        return SimpleNamespace(
            status=nfsstat3.NFS3_OK, value=SimpleNamespace(reply=page, cookieverf=bytes(8))
        )


def test_a_cookie_that_comes_twice_ends_the_listing():
    with pytest.raises(AssertionError, match=r"3.3.16: the cookie 7 comes twice"):
        list(Endless().entries(b"directory"))
