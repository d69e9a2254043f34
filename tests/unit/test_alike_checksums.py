"""The names of the cases of equal checksums have them: computed by each function's definition."""

import zlib
from collections.abc import Callable

import pytest

from storagetest.suites.conformance.posix.test_checksums import ALIKE, names_of

MASK = 0xFFFF_FFFF


def crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit (RFC 3720 appendix B.4)."""
    crc = MASK
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F6_3B78 if crc & 1 else 0)
    return crc ^ MASK


def of_powers(factor: int, start: int) -> Callable[[bytes], int]:
    def function(data: bytes) -> int:
        found = start
        for byte in data:
            found = found * factor + byte & MASK
        return found

    return function


def fnv_1(data: bytes) -> int:
    found = 0x811C_9DC5
    for byte in data:
        found = found * 0x0100_0193 & MASK ^ byte
    return found


def fnv_1a(data: bytes) -> int:
    found = 0x811C_9DC5
    for byte in data:
        found = (found ^ byte) * 0x0100_0193 & MASK
    return found


def rotated_by_seven(data: bytes) -> int:
    found = 0
    for byte in data:
        found = (found << 7 | found >> 25) & MASK ^ byte
    return found


def r5(data: bytes) -> int:
    found = 0
    for byte in data:
        found = (found + (byte << 4) + (byte >> 4)) * 11 & MASK
    return found


FUNCTIONS: dict[str, Callable[[bytes], int]] = {
    "CRC-32C": crc32c,
    "CRC-32": zlib.crc32,
    "Adler-32": zlib.adler32,
    "DJB2": of_powers(33, 5381),
    "FNV-1": fnv_1,
    "FNV-1a": fnv_1a,
    "SDBM": of_powers(65_599, 0),
    "Java's hashCode()": of_powers(31, 0),
    "XFS's da_hashname": rotated_by_seven,
    "R5": r5,
}


@pytest.mark.parametrize("checksum", ALIKE)
def test_names_have_one_checksum(checksum: str) -> None:
    names = names_of(checksum)
    assert len(set(names)) == 4
    for front in ("", *([] if "FNV" in checksum else ["user."])):
        found = {FUNCTIONS[checksum]((front + name).encode()) for name in names}
        assert len(found) == 1


def test_checksums_are_those_of_the_published_examples() -> None:
    assert crc32c(b"123456789") == 0xE306_9283
    assert fnv_1a(b"foobar") == 0xBF9C_F968
    assert fnv_1(b"foobar") == 0x31F0_B262
    assert of_powers(31, 0)(b"storage") == sum(ord(c) * 31 ** (6 - i) for i, c in enumerate("storage")) & MASK
