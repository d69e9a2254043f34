"""Broken rules of fields that hosts seldom use.

The rules, from the text (NVM Express Base 2.3, NVM Command Set 1.2), before any case:

- 5.2.26.1.33: each bit of the Reservation Notification Mask excludes the notification of its own type (MUST).
- NVM 4.1.5.1: RESCAP bit 7 is 1 in controllers of version 1.3 and later that support reservations (MUST).
- 4.3.2: a command that has more data than its SGL ends with Data SGL Length Invalid (MUST).
"""

from dataclasses import replace

from nvme_tcp_proxy_connection import ProxyConnection
from nvme_tcp_rules import accepts, commands, feature, host, identify, patch, target

from storagetest.wire.nvme.codes import Admin, Cns, Feature, StatusCode
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd

MASK_ALL, RESCAP = 0b1110, 31
SETS_MASK = feature(Admin.SET_FEATURES, Feature.RESERVATION_NOTIFICATION_MASK)


def _some(through: ProxyConnection, command: Command) -> bool:
    return SETS_MASK(through, command) and bool(command.cdw11 & MASK_ALL)


host(
    "notice-mask-wider | Base 5.2.26.1.33 | a mask of some notifications excludes all",
    commands(lambda capsule, c: CapsuleCmd(replace(c, cdw11=MASK_ALL).encode()), when=_some),
)
target(
    "iekey-not-stated | NVM 4.1.5.1 | RESCAP bit 7 is 0",
    patch(
        lambda raw: raw[:RESCAP] + bytes([raw[RESCAP] & 0x7F]) + raw[RESCAP + 1 :],
        when=identify(Cns.NAMESPACE),
    ),
)
target(
    "feature-short | Base 4.3.2 | Get Features succeeds, and its SGL is shorter than the data",
    accepts(StatusCode.DATA_SGL_LENGTH_INVALID, when=feature(Admin.GET_FEATURES)),
)
