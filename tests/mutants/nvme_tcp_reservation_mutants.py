"""Broken rules of reservations (NVM Express Base 2.3, sections 7.5 to 7.8 and 8.1.24)."""

import itertools

from nvme_tcp_proxy_connection import ProxyConnection
from nvme_tcp_rules import (
    accepts,
    action,
    drops_command,
    host,
    on_admin,
    on_io,
    patch,
    put,
    refuses,
    results,
    target,
)

from storagetest.wire.nvme.codes import Admin, Io, StatusCode
from storagetest.wire.nvme.command import Command

REPORT = on_io(Io.RESERVATION_REPORT)
target(
    "reservation-not-enforced | Base 8.1.24.1 | a reservation excludes no host",
    accepts(StatusCode.RESERVATION_CONFLICT),
)
target(
    "reservation-too-strict | Base 8.1.24.1 | a reservation excludes every host",
    refuses(StatusCode.RESERVATION_CONFLICT, when=on_io(Io.READ, Io.WRITE)),
)
target(
    "reservation-key-unchecked | Base 8.1.24.3 | keys are not compared",
    accepts(
        StatusCode.RESERVATION_CONFLICT,
        when=on_io(Io.RESERVATION_REGISTER, Io.RESERVATION_ACQUIRE, Io.RESERVATION_RELEASE),
    ),
)
target(
    "reservation-stolen | Base 8.1.24.5 | a reservation of another host may be acquired",
    accepts(StatusCode.RESERVATION_CONFLICT, when=action(Io.RESERVATION_ACQUIRE, 0)),
)
target(
    "register-refused | Base 7.6 | no host may register",
    refuses(StatusCode.RESERVATION_CONFLICT, when=action(Io.RESERVATION_REGISTER, 0)),
)
target(
    "acquire-refused | Base 7.5 | a registrant may not acquire",
    refuses(StatusCode.RESERVATION_CONFLICT, when=action(Io.RESERVATION_ACQUIRE, 0)),
)
host(
    "reservation-outlives | Base 8.1.24.4 | unregistering does nothing",
    drops_command(action(Io.RESERVATION_REGISTER, 1)),
)
target(
    "rtype-unchecked | Base 7.5 | any type is accepted",
    accepts(StatusCode.INVALID_FIELD, when=action(Io.RESERVATION_ACQUIRE)),
)
target("report-empty | Base 7.8 | the report lists no registrant", patch(put(5, bytes(2)), when=REPORT))
target(
    "report-holder-lost | Base 7.8 | the report has no holder",
    patch(
        lambda raw: b"".join(
            [raw[:64], *(raw[at : at + 2] + b"\0" + raw[at + 3 : at + 64] for at in range(64, len(raw), 64))]
        ),
        when=REPORT,
    ),
)
target("generation-stuck | Base 7.8 | GEN is always 5", patch(put(0, b"\5\0\0\0"), when=REPORT))
GENERATION = itertools.count(1)
target(
    "generation-runs | Base 7.8 | GEN counts reports too",
    patch(lambda raw: next(GENERATION).to_bytes(4, "little") + raw[4:], when=REPORT),
)
host(
    "release-ignored | Base 8.1.24.6 | Release does nothing",
    drops_command(action(Io.RESERVATION_RELEASE, 0)),
)
target(
    "release-type | Base 7.7 | Release does not check the type",
    accepts(StatusCode.INVALID_FIELD, when=action(Io.RESERVATION_RELEASE)),
)
host("clear-ignored | Base 8.1.24.8 | Clear does nothing", drops_command(action(Io.RESERVATION_RELEASE, 1)))
host(
    "preempt-ignored | Base 8.1.24.7 | Preempt does nothing",
    drops_command(action(Io.RESERVATION_ACQUIRE, 1, 2)),
)
target(
    "preempt-unknown | Base 8.1.24.7 | Preempt of an unknown key succeeds for an all-registrants reservation",
    accepts(StatusCode.RESERVATION_CONFLICT, when=action(Io.RESERVATION_ACQUIRE, 1)),
)
target(
    "release-by-any-host | Base 8.1.24.6 | a release by any host releases the reservation",
    patch(put(4, b"\0"), when=REPORT),
)
target(
    "preempt-takes | Base 8.1.24.7 | the report still counts preempted registrants",
    patch(lambda raw: raw[:5] + b"\2\0" + raw[7:] if raw[4] and raw[5] == 1 else raw, when=REPORT),
)
target(
    "notice-lost | Base 8.1.24.7 | a preempted host gets another event",
    results(lambda t, c, old: 0x020002, when=on_admin(Admin.ASYNCHRONOUS_EVENT_REQUEST)),
)
target(
    "registration-lost | Base 8.1.24.1 | a registration ends together with the association",
    accepts(StatusCode.RESERVATION_CONFLICT, when=on_io(Io.READ)),
)
host(
    "iekey-ignored | Base 7.6 | Ignore Existing Key is ignored",
    drops_command(
        lambda t, c: action(Io.RESERVATION_REGISTER, 2)(t, c) and c.cdw10 >> 3 & 1 == 1,
        status=StatusCode.RESERVATION_CONFLICT,
    ),
)


def second_acquire(through: ProxyConnection, c: Command) -> bool:
    if not action(Io.RESERVATION_ACQUIRE, 0)(through, c):
        return False
    through.memory["acquired"] = through.memory.get("acquired", 0) + 1
    return bool(through.memory["acquired"] == 2)


host(
    "acquire-again-refused | Base 8.1.24.5 | the holder may not acquire again",
    drops_command(second_acquire, status=StatusCode.RESERVATION_CONFLICT),
)
