"""What several subjects of NFSv3 mutants are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nfs3_proxy_connection import MUTANTS, Call, ProxyConnection, mutant, put, with_status

from storagetest.wire.nfs3.types import nfsstat3

OK = nfsstat3.NFS3_OK


def sets(
    row: str, procedure: str, path: str, new: Any, *, when: Callable[[Call, Any], bool] | None = None
) -> None:
    """A mutant that sets a field of every successful result, or of those for which ``when`` holds."""

    def change(talk: ProxyConnection, call: Call, result: Any) -> Any:
        if result.status != OK or (when is not None and not when(call, result)):
            return result
        return put(result, f"value.{path}", new)

    mutant(row, procedure)(change)


def accepts(row: str, *statuses: nfsstat3, procedures: tuple[str, ...] = ()) -> None:
    """A mutant whose server answers NFS3_OK where it has to refuse."""
    mutant(row, *procedures)(answering(statuses, OK))


def answers(row: str, instead: nfsstat3, *statuses: nfsstat3, procedures: tuple[str, ...] = ()) -> None:
    """A mutant whose server refuses with another status."""
    mutant(row, *procedures)(answering(statuses, instead))


def refuses(
    row: str, procedure: str, instead: nfsstat3, *, when: Callable[[Call, Any], bool] | None = None
) -> None:
    """A mutant whose server refuses what it has to do."""

    def change(talk: ProxyConnection, call: Call, result: Any) -> Any:
        wanted = result.status == OK and (when is None or when(call, result))
        return with_status(result, instead) if wanted else result

    mutant(row, procedure)(change)


def answering(statuses: tuple[nfsstat3, ...], instead: nfsstat3) -> Any:
    def change(talk: ProxyConnection, call: Call, result: Any) -> Any:
        return with_status(result, instead) if getattr(result, "status", None) in statuses else result

    return change


def ignores(row: str, procedure: str, path: str, new: Any) -> None:
    """A mutant whose server sees another value of a field in each argument."""
    mutant(row, procedure, part="request")(lambda talk, call: put(call.argument, path, new))


def undone(row: str, procedure: str, change: Callable[[Any], Any]) -> None:
    """A mutant that makes the server fail on a changed argument, and answers that it succeeded."""

    def request(talk: ProxyConnection, call: Call) -> Any:
        return change(call.argument)

    mutant(row, procedure, part="request")(request)


def forged(row: str, procedure: str, change: Callable[[Any], Any]) -> None:
    """A mutant whose server does nothing and answers NFS3_OK."""
    name = row.split("|")[0].strip()
    undone(row, procedure, change)
    MUTANTS[name].reply = lambda talk, call, result: (
        with_status(result, OK) if result.status != OK else result
    )
