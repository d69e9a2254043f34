"""Layouts that cannot be: each is refused with a message, and nothing is left of the attempt."""

from __future__ import annotations

import os

import pytest

from storagetest.agent.testlib import call_in_subprocess, record_observation, run_as_user
from storagetest.agent.testlib.lfs import layout_of, lfs, ost_indices, refused, try_lfs
from storagetest.agent.testlib.tmpfiles import make_file

NO_MUTANT = "no file system in user space has layouts, quota or a changelog"

pytestmark = [
    pytest.mark.needs("filesystem", "layouts"),
    pytest.mark.case(
        level="MUST",
        section="lfs-setstripe(1): OPTIONS",
        builds_on=("LUS-STRIPE-01",),
        no_mutant_reason=NO_MUTANT,
    ),
]
components = "lfs-setstripe(1): COMPONENT OPTIONS"
USER = 61234

REFUSED = [
    pytest.param(("-S", "1000"), marks=pytest.mark.case("LUS-REFUSED-01")),
    pytest.param(("-S", "96K"), marks=pytest.mark.case("LUS-REFUSED-02")),
    pytest.param(("-S", "8G"), marks=pytest.mark.case("LUS-REFUSED-03")),
    pytest.param(("-c", "-2"), marks=pytest.mark.case("LUS-REFUSED-04")),
    pytest.param(("-c", "70000"), marks=pytest.mark.case("LUS-REFUSED-05")),
    pytest.param(("-c", "one"), marks=pytest.mark.case("LUS-REFUSED-06")),
    pytest.param(("-i", "9999", "-c", "1"), marks=pytest.mark.case("LUS-REFUSED-07")),
    pytest.param(("-p", "nosuchpool"), marks=pytest.mark.case("LUS-REFUSED-08")),
    pytest.param(("-o", "9999"), marks=pytest.mark.case("LUS-REFUSED-09")),
    pytest.param(("-E", "1000", "-E", "-1"), marks=pytest.mark.case("LUS-REFUSED-10", section=components)),
    pytest.param(
        ("-E", "4M", "-c", "1", "-E", "1M", "-c", "1"),
        marks=pytest.mark.case("LUS-REFUSED-11", section=components),
    ),
    pytest.param(
        ("-E", "-1", "-c", "1", "-E", "4M", "-c", "1"),
        marks=pytest.mark.case("LUS-REFUSED-12", section=components),
    ),
    pytest.param(
        ("-E", "1M", "-c", "1", "-E", "2M", "-L", "mdt"),
        marks=pytest.mark.case("LUS-REFUSED-13", section="lfs-setstripe(1): OPTIONS, --layout"),
    ),
]


@pytest.mark.parametrize("words", REFUSED)
def test_impossible_layout_of_a_file_is_refused(client_dir, words):
    """A value that no layout can have is refused with a message, and the next layout is possible."""
    refused("setstripe", *words, client_dir / "f")
    if os.path.lexists(client_dir / "f"):
        record_observation("an empty file is left")
        assert os.stat(client_dir / "f").st_size == 0
    lfs("setstripe", "-c", 1, client_dir / "g")


@pytest.mark.case("LUS-REFUSED-14")
def test_refused_layout_of_a_directory_leaves_its_default(client_dir):
    """If a directory's new default is refused, the old one stays."""
    lfs("setstripe", "-c", 1, "-S", "2M", client_dir)
    refused("setstripe", "-S", "1000", client_dir)
    assert layout_of(make_file(client_dir / "f")).size == 2 << 20


@pytest.mark.case("LUS-REFUSED-15")
def test_directory_above_has_to_exist(client_dir):
    """A file is not created in a directory that does not exist."""
    refused("setstripe", "-c", 1, client_dir / "none" / "f")
    assert not os.path.lexists(client_dir / "none")


@pytest.mark.case("LUS-REFUSED-16", section="lfs-getstripe(1): DESCRIPTION")
def test_layout_of_a_missing_file_is_refused(client_dir):
    """The layout of a file that does not exist is refused."""
    refused("getstripe", client_dir / "none")


@pytest.mark.case("LUS-REFUSED-17", section="POSIX.1-2024 open(): ERRORS, EACCES", builds_on=())
def test_user_without_write_permission_creates_no_file(client_dir):
    """A user who may not write to a directory creates no file in it by lfs setstripe."""
    os.chmod(client_dir, 0o755)
    assert call_in_subprocess(_status_as_user, str(client_dir / "f"), within=25.0) != 0
    assert not os.path.lexists(client_dir / "f")


@pytest.mark.case(
    "LUS-REFUSED-18", section="Lustre Operations Manual: Setting the Striping Layout for a Directory"
)
def test_user_does_not_change_the_default_of_anothers_directory(client_dir):
    """The default layout of a directory is changed by its owner or a user with that right only."""
    lfs("setstripe", "-c", 1, "-S", "2M", client_dir)
    os.chmod(client_dir, 0o755)
    assert call_in_subprocess(_status_as_user, str(client_dir), within=25.0) != 0
    assert layout_of(make_file(client_dir / "f")).size == 2 << 20


@pytest.mark.case("LUS-REFUSED-19", section="lfs-setstripe(1): OPTIONS, --ost-list")
def test_ost_listed_twice(client_dir):
    """A list that names an OST twice is refused, or requests overstriping, which the layout names."""
    index = ost_indices(client_dir)[0]
    done = try_lfs("setstripe", "-o", f"{index},{index}", client_dir / "f")
    if done.status == 0:
        layout = layout_of(client_dir / "f")
        overstriped = len(set(layout.osts)) != len(layout.osts)
        assert ("overstriped" in layout.pattern) == overstriped, f"OSTs {layout.osts}, {layout.pattern}"
        record_observation(f"an OST that is listed twice has {layout.osts.count(index)} objects")


def _status_as_user(path: str) -> int:
    with run_as_user(USER, USER):
        return try_lfs("setstripe", "-c", 1, "-S", "1M", path).status
