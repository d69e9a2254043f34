"""Broken rules of the lock manager (RFC 1813 6)."""

# a mutant is a row of a table

from typing import Any

from nfs3_proxy_connection import MUTANTS, Call, ProxyConnection, mutant, put

from storagetest.wire.nfs3.nlm import nlm4_holder, nlm4_stats, nlm4_testrply

GRANTED, DENIED = nlm4_stats.NLM4_GRANTED, nlm4_stats.NLM4_DENIED
FAR = 1 << 50


def answers(
    row: str, procedure: str, status: nlm4_stats, instead: nlm4_stats, path: str = "stat.stat"
) -> None:
    """A mutant whose lock manager ends a call with ``instead`` of ``status``."""

    def change(talk: ProxyConnection, call: Call, result: Any) -> Any:
        found = result.stat.stat if path == "stat.stat" else result.stat
        return put(result, path, instead) if found == status else result

    mutant(row, procedure)(change)


def sees(row: str, path: str, new: Any, *procedures: str) -> None:
    """A mutant whose lock manager sees another value of a field in each argument."""
    mutant(row, *procedures, part="request")(lambda talk, call: put(call.argument, path, new))


answers("nlm-lock-denied | RFC 1813 6.1.4 | each LOCK is denied", "LOCK", GRANTED, DENIED)
answers(
    "nlm-block-denied | RFC 1813 6.1.4 | a LOCK that may wait is denied",
    "LOCK",
    nlm4_stats.NLM4_BLOCKED,
    DENIED,
)
answers(
    "nlm-stale-granted | RFC 1813 6.1.4 | a removed file is locked", "LOCK", nlm4_stats.NLM4_STALE_FH, GRANTED
)
answers("nlm-share-granted | RFC 1813 6.1.4 | each SHARE is granted", "SHARE", DENIED, GRANTED, "stat")
answers("nlm-share-denied | RFC 1813 6.1.4 | each SHARE is denied", "SHARE", GRANTED, DENIED, "stat")
sees("nlm-shared-excludes | RFC 1813 6.1.4 | each lock is exclusive", "exclusive", True, "LOCK")
sees("nlm-exclusive-ignored | RFC 1813 6.1.4 | each lock is shared", "exclusive", False, "LOCK")
sees(
    "nlm-offset-32 | RFC 1813 6.3.1 | the upper half of an offset is ignored",
    "alock.l_offset",
    lambda offset: offset & 0xFFFFFFFF,
    "LOCK",
    "UNLOCK",
)
sees(
    "nlm-end-short | RFC 1813 6.1.4 | length 0 is 4096 bytes",
    "alock.l_len",
    lambda length: length or 4096,
    "LOCK",
)
sees("nlm-unlock-nothing | RFC 1813 6.1.4 | UNLOCK releases nothing", "alock.l_offset", FAR, "UNLOCK")


@mutant("nlm-lock-granted | RFC 1813 6.1.4 | each LOCK is granted", "LOCK", "NM_LOCK")
def lock_granted(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "stat.stat", GRANTED)


@mutant("nlm-cookie | RFC 1813 6.2 | the cookie of a result is another one", "LOCK")
def cookie(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "cookie", b"other")


@mutant("nlm-range-whole | RFC 1813 6.1.4 | a lock is of the whole file", "LOCK", part="request")
def range_whole(talk: ProxyConnection, call: Call) -> Any:
    return put(put(call.argument, "alock.l_offset", 0), "alock.l_len", 0)


@mutant("nlm-unlock-whole | RFC 1813 6.1.4 | UNLOCK releases the whole file", "UNLOCK", part="request")
def unlock_whole(talk: ProxyConnection, call: Call) -> Any:
    return put(put(call.argument, "alock.l_offset", 0), "alock.l_len", 0)


@mutant(
    "nlm-files-shared | RFC 1813 6.1.4 | all files have one set of locks", "LOCK", "UNLOCK", part="request"
)
def files_shared(talk: ProxyConnection, call: Call) -> Any:
    return put(call.argument, "alock.fh", talk.memory.setdefault("file", call.argument.alock.fh))


@mutant("nlm-lock-own-denied | RFC 1813 6.1.4 | an own lock is in the way of a second LOCK", "LOCK")
def own_denied(talk: ProxyConnection, call: Call, result: Any) -> Any:
    region = call.argument.alock
    again = (region.oh, region.fh) in talk.memory
    talk.memory[region.oh, region.fh] = True
    return put(result, "stat.stat", DENIED) if again else result


@mutant("nlm-reclaim-granted | RFC 1813 6.1.4 | a lock is reclaimed at any time", "LOCK")
def reclaim_granted(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "stat.stat", GRANTED) if call.argument.reclaim else result


@mutant("nlm-test-denied | RFC 1813 6.1.4 | each TEST is denied", "TEST")
def test_denied(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "stat", nlm4_testrply(DENIED, nlm4_holder(True, 1, b"holder", 0, 0)))


@mutant("nlm-test-granted | RFC 1813 6.1.4 | each TEST is granted", "TEST")
def test_granted(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "stat", nlm4_testrply(GRANTED))


def holder(row: str, **fields: Any) -> None:
    """A mutant whose TEST states another holder."""

    def change(talk: ProxyConnection, call: Call, result: Any) -> Any:
        for name, value in fields.items():
            result = put(result, f"stat.value.{name}", value)
        return result

    mutant(row, "TEST")(change)


holder(
    "nlm-holder-range | RFC 1813 6.1.4 | TEST states the whole file as the range in the way",
    l_offset=0,
    l_len=0,
)
holder("nlm-holder-exclusive | RFC 1813 6.1.4 | TEST states each lock as exclusive", exclusive=True)
holder("nlm-holder-owner | RFC 1813 6.1.4 | TEST states no owner", svid=0, oh=b"")


@mutant("nlm-test-locks | RFC 1813 6.1.4 | TEST locks", "TEST", "LOCK")
def test_locks(talk: ProxyConnection, call: Call, result: Any) -> Any:
    region = call.argument.alock
    if call.name == "TEST":
        talk.memory[region.fh] = region.oh
        return result
    return put(result, "stat.stat", DENIED) if talk.memory.get(region.fh, region.oh) != region.oh else result


@mutant(
    "nlm-unlock-end-byte | RFC 1813 6.1.4 | UNLOCK to the end of the file releases one byte",
    "UNLOCK",
    part="request",
)
def unlock_end_byte(talk: ProxyConnection, call: Call) -> Any:
    return put(call.argument, "alock.l_len", lambda length: length or 1)


@mutant("nlm-unlock-denied | RFC 1813 6.1.4 | UNLOCK of what is not locked is denied", "LOCK", "UNLOCK")
def unlock_denied(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if call.name == "LOCK":
        talk.memory[call.argument.alock.oh] = True
        return result
    return result if call.argument.alock.oh in talk.memory else put(result, "stat.stat", DENIED)


@mutant(
    "nlm-unlock-all | RFC 1813 6.1.4 | UNLOCK releases the lock of another owner",
    "LOCK",
    "UNLOCK",
    part="request",
)
def unlock_all(talk: ProxyConnection, call: Call) -> Any:
    region = call.argument.alock
    if call.name == "LOCK":
        talk.memory.setdefault(region.fh, region)
        return call.argument
    first = talk.memory.get(region.fh, region)
    return put(put(call.argument, "alock.oh", first.oh), "alock.svid", first.svid)


@mutant(
    "nlm-cancel-nothing | RFC 1813 6.1.4 | a cancelled LOCK takes its range when it is free", "CANCEL", "LOCK"
)
def cancel_nothing(talk: ProxyConnection, call: Call, result: Any) -> Any:
    region = call.argument.alock
    if call.name == "CANCEL":
        talk.memory[region.fh] = region.oh
        return result
    return put(result, "stat.stat", DENIED) if region.fh in talk.memory else result


@mutant("nlm-block-forgotten | RFC 1813 6.1.4 | a LOCK that waits is never granted", "LOCK", part="request")
def block_forgotten(talk: ProxyConnection, call: Call) -> Any:
    return put(call.argument, "block", False)


def _blocked(talk: ProxyConnection, call: Call, result: Any) -> Any:
    waits = call.argument.block and result.stat.stat == DENIED
    return put(result, "stat.stat", nlm4_stats.NLM4_BLOCKED) if waits else result


MUTANTS["nlm-block-forgotten"].reply = _blocked
