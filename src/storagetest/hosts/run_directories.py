"""The directory of a run in a share: its name states its process, so that a later run can remove it.

A run that is killed leaves its directory. The next run on the same machine removes it if its name proves that
its process has ended: the machine has not been booted since, and no process there has the process id and the
start time. Other directories are left alone.
"""

from __future__ import annotations

import re
import secrets

from storagetest.hosts.owner import Owner, is_running

PREFIX = "storagetest-wire-"
_NAME = re.compile(rf"{PREFIX}[0-9a-f]{{8}}\.([0-9a-f]{{32}})\.(\d+)\.(\d+)\.(\d+)")


def new_name() -> bytes:
    """Return a name that no other directory has, and that states this process."""
    me = Owner.current()
    owner = f"{_boot(me)}.{me.pid_namespace}.{me.pid}.{me.start_time}"
    return f"{PREFIX}{secrets.token_hex(4)}.{owner}".encode()


def is_left(name: bytes) -> bool:
    """Whether the name is that of a directory whose process ran here, in this boot, and has ended."""
    found = _NAME.fullmatch(name.decode(errors="replace"))
    me = Owner.current()
    if found is None or (found[1], found[2]) != (_boot(me), me.pid_namespace):
        return False
    owner = Owner(me.host, int(found[3]), int(found[4]), me.boot_id, me.pid_namespace)
    return not is_running(owner, me)


def _boot(owner: Owner) -> str:
    return owner.boot_id.replace("-", "")
