"""Features of the small subsystem's controllers (NVM Express Base 2.3, 5.2.11, 5.2.26)."""

# ruff: noqa: C901, PLR0912  # a rule of the standard is an `if` and a `raise`, side by side

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from nvme_namespace import Answer, CommandFailed, Namespace

from storagetest.wire.nvme.codes import Feature, StatusCode
from storagetest.wire.nvme.command import Command

if TYPE_CHECKING:
    from nvme_subsystem import Controller

_SETTABLE: dict[int, int] = {
    Feature.ARBITRATION: 0,
    Feature.TEMPERATURE_THRESHOLD: 0x157,
    Feature.ERROR_RECOVERY: 0,
    Feature.WRITE_ATOMICITY: 0,
    Feature.ASYNC_EVENT: 0,
}
"""Features that are a number and nothing more here, and their default values."""

_OF_NAMESPACE = (
    Feature.ERROR_RECOVERY,
    Feature.RESERVATION_NOTIFICATION_MASK,
    Feature.RESERVATION_PERSISTENCE,
    Feature.WRITE_PROTECT,
)
"""Features whose scope is a namespace (5.2.26; NVM 4.1.3)."""

_UNDER_THRESHOLD = 1 << 8 | Feature.TEMPERATURE_THRESHOLD
"""Key of the under temperature threshold of the composite temperature (5.2.26.1.3)."""

_OF_DISCOVERY = (Feature.ASYNC_EVENT, Feature.KATO)
"""Features of a discovery controller (3.1.3.3)."""

CHANGEABLE = {**_SETTABLE, Feature.KATO: 120_000, Feature.NUMBER_OF_QUEUES: 0}
"""Features that Set Features changes, and their default values; none is saveable."""

ALL_NAMESPACES = 0xFFFFFFFF


def get_features(controller: Controller, command: Command) -> Answer:
    """Return the value of a feature (5.2.11)."""
    fid, select = command.cdw10 & 0xFF, command.cdw10 >> 8 & 7
    values = _values(controller, command.nsid)
    if select > 3:
        raise CommandFailed(StatusCode.INVALID_FIELD)  # a reserved value (1.4.1.6)
    _check_nsid(controller, fid, command.nsid)
    if controller.discovery and fid not in _OF_DISCOVERY:
        raise CommandFailed(StatusCode.INVALID_FIELD)
    if fid == Feature.TEMPERATURE_THRESHOLD and not select:
        _check_threshold(command.cdw11)
        if command.cdw11 >> 20 & 3 == 1:
            return Answer(result=controller.features.get(_UNDER_THRESHOLD, 0))
    if fid == Feature.HOST_IDENTIFIER:
        if not command.cdw11 & 1:
            raise CommandFailed(StatusCode.INVALID_FIELD)  # over fabrics it has 16 bytes (5.2.26.1.32)
        return Answer(controller.hostid)
    if fid == Feature.HOST_BEHAVIOR:
        return Answer(result=4) if select == 3 else Answer(bytes(512) if select else controller.behavior)
    if fid == Feature.RESERVATION_NOTIFICATION_MASK:
        return _selected(select, controller.masks.get(_masked(controller, command.nsid).nsid, 0))
    if fid == Feature.RESERVATION_PERSISTENCE:
        return _selected(select, controller.namespace(command.nsid).persistence)
    if fid == Feature.WRITE_PROTECT and controller.traits.nwpc:
        return _selected(select, controller.namespace(command.nsid).protection)
    if fid not in values:
        raise CommandFailed(StatusCode.INVALID_FIELD)
    changeable = fid in CHANGEABLE
    if select == 3:
        return Answer(result=4 * changeable | 2 * (fid in _OF_NAMESPACE))
    if select and changeable:  # the default value, which is the saved one of a feature that is not saved
        return Answer(result=CHANGEABLE[fid])
    return Answer(result=values[fid])


def _selected(select: int, value: int) -> Answer:
    """Return a feature of a namespace by SEL: it is changeable and not saveable, and its default is 0."""
    return Answer(result=6 if select == 3 else 0 if select else value)


def set_features(controller: Controller, command: Command, *, data: bytes) -> Answer:
    """Set a feature (5.2.26)."""
    fid, value, traits = command.cdw10 & 0xFF, command.cdw11, controller.traits
    if command.cdw10 >> 31:
        raise CommandFailed(StatusCode.FEATURE_NOT_SAVEABLE)
    _check_nsid(controller, fid, command.nsid)
    if fid not in _OF_NAMESPACE and 1 <= command.nsid <= traits.nn:
        raise CommandFailed(StatusCode.FEATURE_NOT_NAMESPACE_SPECIFIC)  # 4.4
    if controller.discovery and fid not in _OF_DISCOVERY:
        raise CommandFailed(StatusCode.INVALID_FIELD)
    if fid == Feature.NUMBER_OF_QUEUES:
        if value & 0xFFFF == 0xFFFF or value >> 16 == 0xFFFF:
            raise CommandFailed(StatusCode.INVALID_FIELD)
        if controller.hangups:  # there are I/O queues
            raise CommandFailed(StatusCode.COMMAND_SEQUENCE_ERROR)
        return Answer(result=(traits.max_qid - 1) * 0x10001)
    if fid == Feature.TEMPERATURE_THRESHOLD:
        _check_threshold(value)
    if fid in _SETTABLE:
        under = fid == Feature.TEMPERATURE_THRESHOLD and value >> 20 & 3 == 1
        controller.features[_UNDER_THRESHOLD if under else fid] = value & ~(3 << 20) if under else value
        if fid == Feature.ERROR_RECOVERY:  # of each namespace by itself
            every = [
                nsid for nsid in controller.subsystem.namespaces if command.nsid in (nsid, 0, ALL_NAMESPACES)
            ]
            controller.features.update(dict.fromkeys([nsid << 8 | fid for nsid in every], value))
            del controller.features[fid]
    elif fid == Feature.KATO:
        if not value:
            raise CommandFailed(StatusCode.KEEP_ALIVE_INVALID)  # 3.9.1
        controller.kato = traits.rounded_timeout(value)
        controller.alive()
    elif fid == Feature.HOST_BEHAVIOR:
        if len(data) < len(controller.behavior):
            raise CommandFailed(StatusCode.DATA_SGL_LENGTH_INVALID)
        if data[0] > 1:
            raise CommandFailed(StatusCode.INVALID_FIELD)  # a reserved value of ACRE (1.4.1.6)
        controller.behavior = data[:1].ljust(512, b"\0")
    elif fid == Feature.RESERVATION_NOTIFICATION_MASK:
        every = command.nsid == ALL_NAMESPACES
        for nsid in controller.subsystem.namespaces if every else [_masked(controller, command.nsid).nsid]:
            controller.masks[nsid] = value
    elif fid == Feature.RESERVATION_PERSISTENCE:
        every = command.nsid == ALL_NAMESPACES
        for nsid in controller.subsystem.namespaces if every else [command.nsid]:
            controller.namespace(nsid).persistence = value & 1
    elif fid == Feature.WRITE_PROTECT and traits.nwpc and value & 7 <= 1:
        controller.namespace(command.nsid).protection = value & 7
    elif fid == Feature.HOST_IDENTIFIER:
        raise CommandFailed(StatusCode.COMMAND_SEQUENCE_ERROR)  # Connect has set it (5.2.26.1.32)
    elif fid == Feature.VOLATILE_WRITE_CACHE and traits.write_cache and not value & 1:
        pass  # the cache is never enabled
    elif fid == Feature.POWER_MANAGEMENT and not value & 0x1F:
        pass
    else:
        raise CommandFailed(StatusCode.INVALID_FIELD)
    return Answer()


def over_threshold(controller: Controller) -> int:
    """Return the over temperature threshold of the composite temperature, in kelvins (5.2.26.1.3)."""
    fid = Feature.TEMPERATURE_THRESHOLD
    return controller.features.get(fid, _SETTABLE[fid]) & 0xFFFF


def under_threshold(controller: Controller) -> int:
    """Return the under temperature threshold of the composite temperature, in kelvins (5.2.26.1.3)."""
    return controller.features.get(_UNDER_THRESHOLD, 0) & 0xFFFF


def feature_effects(controller: Controller) -> bytes:
    """Return the Feature Identifiers Supported and Effects log page (5.2.12.1.18)."""
    fids = {
        *_values(controller),
        *(fid for fid in _OF_NAMESPACE if fid != Feature.WRITE_PROTECT or controller.traits.nwpc),
        Feature.HOST_IDENTIFIER,
        Feature.HOST_BEHAVIOR,
    }
    if controller.discovery:
        fids = set(_OF_DISCOVERY)
    scopes = {fid: 1 << 20 if fid in _OF_NAMESPACE else 1 << 21 for fid in fids}
    return b"".join(struct.pack("<I", scopes.get(fid, 0) | (fid in fids)) for fid in range(256))


def _values(controller: Controller, nsid: int = 0) -> dict[int, int]:
    """Return the values of features, by FID; Error Recovery of ``nsid``, or of the first namespace."""
    features, recovery = controller.features, Feature.ERROR_RECOVERY
    nsid = nsid if nsid in controller.subsystem.namespaces else min(controller.subsystem.namespaces)
    return {
        Feature.POWER_MANAGEMENT: 0,
        Feature.NUMBER_OF_QUEUES: (controller.traits.max_qid - 1) * 0x10001,
        **({Feature.VOLATILE_WRITE_CACHE: 0} if controller.traits.write_cache else {}),
        **_SETTABLE,
        **{fid: value for fid, value in features.items() if fid <= 0xFF},
        recovery: features.get(nsid << 8 | recovery, _SETTABLE[recovery]),
        Feature.KATO: controller.kato,
    }


def _check_nsid(controller: Controller, fid: int, nsid: int) -> None:
    """An NSID that is not valid is refused (3.2.1.5); those of a mask by its own rule (5.2.26.1.33)."""
    valid = nsid <= controller.traits.nn or nsid == ALL_NAMESPACES
    if not valid and fid != Feature.RESERVATION_NOTIFICATION_MASK:
        raise CommandFailed(StatusCode.INVALID_NAMESPACE)


def _check_threshold(value: int) -> None:
    """There is no sensor (5.2.26.1.3), and THSEL has two values."""
    if value >> 16 & 0xF or value >> 20 & 3 > 1:
        raise CommandFailed(StatusCode.INVALID_FIELD)


def _masked(controller: Controller, nsid: int) -> Namespace:
    """Return the namespace of a notification mask: Invalid Field for every other (5.2.26.1.33)."""
    if nsid not in controller.subsystem.namespaces:
        raise CommandFailed(StatusCode.INVALID_FIELD)
    return controller.subsystem.namespaces[nsid]
