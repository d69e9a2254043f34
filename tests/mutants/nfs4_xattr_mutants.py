"""Broken pages of LISTXATTRS (RFC 8276 8.4.3), by a server of extended attributes in the proxy.

NFS-Ganesha has no extended attributes, and knfsd 6.1 lists them in one page alone. So the proxy executes the
four operations itself, in place of the NFS4ERR_NOTSUPP of NFS-Ganesha: :class:`Attributes` is sound
(``tests/mutants/test_sound_nfs4_xattrs.py``), and each mutant changes its pages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from nfs4_proxy_connection import Nfs4ProxyConnection, mutant, opname

from storagetest.wire.nfs4.types import (
    COMPOUND4args,
    COMPOUND4res,
    GETXATTR4res,
    LISTXATTRS4res,
    LISTXATTRS4resok,
    REMOVEXATTR4res,
    SETXATTR4res,
    change_info4,
    nfsstat4,
    setxattr_option4,
)

OK, NOXATTR, TOOSMALL = nfsstat4.NFS4_OK, nfsstat4.NFS4ERR_NOXATTR, nfsstat4.NFS4ERR_TOOSMALL
FIXED = 16
"""Bytes of LISTXATTRS4resok besides the names."""
Page = Callable[[list[bytes], int, LISTXATTRS4resok], LISTXATTRS4resok | None]
"""Returns a page in place of a sound one (None: NFS4ERR_TOOSMALL), given all names and the cookie asked."""


@dataclass
class Attributes:
    """The extended attributes of one file. A cookie is the number of names before the next one."""

    values: dict[bytes, bytes] = field(default_factory=dict)

    def set(self, argument: Any) -> SETXATTR4res:
        exists = argument.sxa_key in self.values
        if exists and argument.sxa_option == setxattr_option4.SETXATTR4_CREATE:
            return SETXATTR4res(nfsstat4.NFS4ERR_EXIST)
        if not exists and argument.sxa_option == setxattr_option4.SETXATTR4_REPLACE:
            return SETXATTR4res(NOXATTR)
        self.values[argument.sxa_key] = argument.sxa_value
        return SETXATTR4res(OK, change_info4(False, 1, 2))

    def get(self, argument: Any) -> GETXATTR4res:
        found = self.values.get(argument.gxa_name)
        return GETXATTR4res(NOXATTR) if found is None else GETXATTR4res(OK, found)

    def remove(self, argument: Any) -> REMOVEXATTR4res:
        if self.values.pop(argument.rxa_name, None) is None:
            return REMOVEXATTR4res(NOXATTR)
        return REMOVEXATTR4res(OK, change_info4(False, 1, 2))

    def list(self, argument: Any, page: Page | None = None) -> LISTXATTRS4res:
        """Return the names from the cookie on that ``lxa_maxcount`` has space for."""
        names, start = sorted(self.values), argument.lxa_cookie
        if start > len(names):
            return LISTXATTRS4res(nfsstat4.NFS4ERR_BAD_COOKIE)
        free, end = argument.lxa_maxcount - FIXED, start
        while end < len(names) and free >= (size := 4 + (len(names[end]) + 3) // 4 * 4):
            free, end = free - size, end + 1
        if end == start < len(names):
            return LISTXATTRS4res(TOOSMALL)
        sound: LISTXATTRS4resok | None = LISTXATTRS4resok(end, tuple(names[start:end]), end == len(names))
        if page is not None:
            sound = page(names, start, sound)
        return LISTXATTRS4res(TOOSMALL) if sound is None else LISTXATTRS4res(OK, sound)


def pages(row: str, page: Page) -> None:
    """Register a mutant of the pages of LISTXATTRS."""

    def compound(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
        if results.status != nfsstat4.NFS4ERR_NOTSUPP:
            return results
        asked, last = arguments.argarray[len(results.resarray) - 1], results.resarray[-1]
        handle = next((one.value.object for one in arguments.argarray if opname(one) == "PUTFH"), b"")
        of_file = talk.shared.setdefault(handle, Attributes())
        execute: dict[str, Callable[[Any], Any]] = {
            "SETXATTR": of_file.set,
            "GETXATTR": of_file.get,
            "REMOVEXATTR": of_file.remove,
            "LISTXATTRS": lambda argument: of_file.list(argument, page),
        }
        if opname(asked) not in execute:
            return results
        result = execute[opname(asked)](asked.value)
        status = getattr(result, result.DISCRIMINANT[0])
        return replace(results, status=status, resarray=(*results.resarray[:-1], replace(last, value=result)))

    mutant(row, part="compound")(compound)


pages(
    "xattr-page-early-eof | RFC 8276 8.4.3 | lxr_eof is TRUE in the page before the last one",
    lambda names, start, sound: replace(sound, lxr_eof=2 * sound.lxr_cookie - start >= len(names)),
)
pages(
    "xattr-page-late-eof | RFC 8276 8.4.3 | lxr_eof is TRUE only in an empty page after the last name",
    lambda names, start, sound: replace(sound, lxr_eof=start == len(names)),
)
pages(
    "xattr-page-skips | RFC 8276 8.4.3 | each cookie leads to the name after the next one",
    lambda names, _start, sound: replace(sound, lxr_cookie=min(sound.lxr_cookie + 1, len(names))),
)
pages(
    "xattr-page-repeats | RFC 8276 8.4.3 | each cookie leads to the last name of the page before",
    lambda _names, start, sound: replace(sound, lxr_cookie=max(sound.lxr_cookie - 1, start)),
)
pages(
    "xattr-page-restarts | RFC 8276 8.4.3 | each cookie leads to the first name",
    lambda _names, _start, sound: replace(sound, lxr_cookie=0),
)
pages(
    "xattr-page-toosmall | RFC 8276 8.4.3 | the second page ends with NFS4ERR_TOOSMALL",
    lambda _names, start, sound: None if start else sound,
)
