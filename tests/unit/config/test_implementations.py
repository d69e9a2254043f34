"""Versions of implementations, ranges of versions, and what a file and a target report about one target."""

from __future__ import annotations

import pytest

from storagetest.config.implementations import Implementation, VersionRange, numbers


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("6.1.0-56-cloud-amd64", (6, 1, 0)),
        ("2:4.17.12+dfsg-0+deb12u3", (4, 17, 12)),
        ("v4.3", (4, 3)),
        ("25.05", (25, 5)),
        ("7", (7,)),
        (" 1.0.85\n", (1, 0, 85)),
        ("", None),
        ("ONTAP 9.14", None),
        ("-1.2", None),
    ],
)
def test_a_version_is_its_leading_numbers(version: str, expected: tuple[int, ...] | None):
    assert numbers(version) == expected


@pytest.mark.parametrize(
    ("text", "version", "contained"),
    [
        (">=6.1,<6.2", "6.1.0-56-cloud-amd64", True),
        (">=6.1,<6.2", "6.2.0", False),
        (">=6.1 , < 6.2", "6.0.99", False),
        ("==6.1", "6.1.0", True),
        ("==6.1", "6.1.1", False),
        ("==1.0.85", "1.0.85-1.1", True),
        ("<10", "9.99", True),
        (">6.1", "6.1", False),
        ("<=6.1", "6.1.0", True),
        ("<=6.1", "6.1.1", False),
        (">=6.9", "6.10", True),
        (">=1", "unknown", None),
        ("<1", "", None),
    ],
)
def test_a_range_compares_numbers(text: str, version: str, contained: bool | None):
    assert VersionRange.parse(text).contains(version) is contained


@pytest.mark.parametrize("text", ["", "6.1", ">=", ">=6.1,", "~=6.1", "!=6.1", ">=6.1 <7", ">=a", "==6.*"])
def test_text_that_is_no_range_is_refused(text: str):
    with pytest.raises(ValueError, match="expected a range of versions, such as >="):
        VersionRange.parse(text)


LIO = Implementation("lio")


@pytest.mark.parametrize(
    ("claimed", "found", "merged"),
    [
        (Implementation(), Implementation("nvmet", "6.1.0-56"), Implementation("nvmet", "6.1.0-56")),
        (LIO, Implementation(), LIO),
        (Implementation("lio", "6.1"), LIO, Implementation("lio", "6.1")),
        (LIO, Implementation("lio", "6.1"), Implementation("lio", "6.1")),
        (Implementation("a", "6.1.170"), Implementation("a", "6.1.0-56"), Implementation("a", "6.1.170")),
    ],
)
def test_what_the_target_reports_completes_what_the_file_claims(
    claimed: Implementation, found: Implementation, merged: Implementation
):
    assert claimed.merge(found) == merged


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (Implementation("tgt"), "the target is 'tgt', and not 'lio'"),
        (Implementation("lio", "6.12.9"), "lio is version 6.12.9, and not 6.1.2"),
    ],
)
def test_a_contradiction_is_refused(found: Implementation, message: str):
    with pytest.raises(ValueError, match=message):
        Implementation("lio", "6.1.2").merge(found)
