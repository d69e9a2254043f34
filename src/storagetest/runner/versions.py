"""Versions of a client's kernel and tools, read once for each client."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from weakref import WeakKeyDictionary

from storagetest.hosts.base import Host

_MARK = "@@ storagetest: "
_DEADLINE = 120.0
"""Timeout in seconds for the command; a bound on a hang (chosen): fio took over 30 s to start on a
busy client."""


class Versions:
    """Versions by client connection. A tool that gives no version is left out, because it is no check."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Host, dict[str, str]] = WeakKeyDictionary()

    def get(self, client: Host, tools: Mapping[str, tuple[str, ...]]) -> Mapping[str, str]:
        """Return ``{"kernel": "6.1.0-18-amd64", "fio": "fio-3.33"}``: the kernel and ``tools`` (name → argv).

        One command on the client reads all versions that are not known yet. Raises :class:`HostError` if the
        client cannot be reached.
        """
        known = self._known.setdefault(client, {})
        wanted = {"kernel": ("uname", "-r"), **tools}
        missing = {name: argv for name, argv in wanted.items() if name not in known}
        if missing:
            script = "\n".join(
                f"echo {shlex.quote(_MARK + name)}; {shlex.join(argv)} 2>/dev/null </dev/null"
                for name, argv in missing.items()
            )
            done = client.run(["sh", "-c", script], deadline=_DEADLINE, check=False)
            for part in done.stdout.split(_MARK)[1:]:
                name, _, output = part.partition("\n")
                known[name] = output.strip().partition("\n")[0]
        return {name: known[name] for name in wanted if known.get(name)}
