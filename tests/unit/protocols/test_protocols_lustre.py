from typing import Any

import pytest

from storagetest.config.matrix import parts
from storagetest.protocols import lustre
from storagetest.protocols.base import protocols

Lustre: Any = protocols.get("lustre")


def options(**more: object) -> Any:
    return Lustre.Options(**{"mgs": "10.77.0.1@tcp", "fsname": "lustre", **more})


LAYOUT = """\
lmm_stripe_count:  2
lmm_stripe_size:   1048576
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 1
lmm_objects:
      - l_ost_idx: 1
        l_fid:     0x100010000:0x2:0x0
"""


def test_read_back() -> None:
    assert lustre.parse_negotiated(LAYOUT) == {
        "stripe_count": "2",
        "stripe_size": "1048576",
        "pattern": "raid0",
    }


def test_read_back_of_a_composite_layout_takes_the_first_component() -> None:
    composite = "  lcm_entry_count: 2\ncomponent0:\n  sub_layout:\n    lmm_stripe_count:  1\n" + LAYOUT
    assert lustre.parse_negotiated(composite)["stripe_count"] == "1"


@pytest.mark.parametrize(
    ("asked", "different"),
    [
        ({}, []),
        ({"stripe_count": 2, "stripe_size": "1MiB"}, []),
        ({"stripe_count": -1}, []),
        ({"stripe_count": 4}, ["stripe_count: requested 4, got 2"]),
        ({"pool": "flash"}, ["pool: requested flash, got no value"]),
    ],
)
def test_silent_changes_are_found(asked: dict[str, object], different: list[str]) -> None:
    found = Lustre().option_mismatches(options(**asked), lustre.parse_negotiated(LAYOUT))
    assert [str(one) for one in found] == different


def test_layout_options() -> None:
    asked = options(stripe_count=4, stripe_size="1MiB", pool="flash")
    assert lustre.setstripe_options(asked) == [
        "--stripe-count",
        "4",
        "--stripe-size",
        "1048576",
        "--pool",
        "flash",
    ]
    assert lustre.setstripe_options(options()) == ["--stripe-count", "0"]


@pytest.mark.parametrize(
    ("mgs", "server"),
    [
        ("10.0.0.1@tcp", "10.0.0.1"),
        ("mgs1@o2ib:mgs2@o2ib", "mgs1"),
        ("10.0.0.1@tcp,10.1.0.1@tcp1", "10.0.0.1"),
    ],
)
def test_server_is_the_first_address(mgs: str, server: str) -> None:
    assert Lustre().server(options(mgs=mgs)) == server


def test_all_osts_and_one_are_two_variants():
    ids = [parts(options(stripe_count=count), ["stripe_count"]) for count in (1, -1)]
    assert ids == [{"stripe_count": "c1"}, {"stripe_count": "cminus1"}]
