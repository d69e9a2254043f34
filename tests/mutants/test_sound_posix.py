"""Sound file systems: the posix suite accuses none for a choice that the standards leave open."""

from functools import cache

import fuse_mount
import pytest
from body_cases import collected
from posix_mutation_run import run_on

NOT_HERE = fuse_mount.why_not()
pytestmark = pytest.mark.skipif(NOT_HERE is not None, reason=str(NOT_HERE))

SOUND = {
    "NoLinks": (
        "test_link",
        "test_remove",
        "test_rename",
        "test_create",
        "test_path_errors",
        "test_xattr",
        "test_kinds",
        "test_refused",
        "test_lock_lifetimes",
        "test_placed",
        "test_histories",
        "test_birth",
        "test_inode_flags",
        "test_often_refused",
        "test_replaced_kinds",
        "test_first_changes",
        "test_whiteouts",
        "test_processes",
        "test_unprivileged",
        "test_marked_directories",
        "test_sticky",
    ),
    "NoLinksByPermission": ("test_link", "test_remove", "test_rename", "test_create", "test_path_errors"),
    "OnlyFiles": (
        "test_again",
        "test_create",
        "test_described",
        "test_directories",
        "test_exchanged",
        "test_histories",
        "test_kinds",
        "test_link",
        "test_mode_owner",
        "test_open",
        "test_open_files",
        "test_path_errors",
        "test_refused",
        "test_remove",
        "test_rename",
        "test_statfs",
        "test_times",
        "test_xattr",
        "test_birth",
        "test_inode_flags",
        "test_lengths",
        "test_replaced_kinds",
        "test_stamped",
        "test_attribute_calls",
        "test_first_changes",
        "test_whiteouts",
        "test_left_alone",
        "test_processes",
        "test_unprivileged",
        "test_marked_directories",
        "test_sticky",
    ),
    "NoModes": (
        "PSX-MOVED-FILE",
        "PSX-MOVED-DIRECTORY",
        "PSX-EFFECTS-AGAIN",
        "test_birth",
        "test_lengths",
        "test_often_refused",
        "test_replaced_kinds",
        "test_stamped",
        "test_checksums",
    ),
    "NoSetIds": (
        "test_mode_owner",
        "test_again",
        "test_refused",
        "test_kinds",
        "test_described",
        "test_acl_calls",
        "test_first_changes",
        "test_whiteouts",
        "test_marked_directories",
    ),
    "NoSynchronisedIo": ("test_data", "test_kinds", "test_open", "PSX-SEQUENCE-DATA-1"),
    "ShortNames": (
        "test_names",
        "test_directories",
        "test_path_errors",
        "test_listings",
        "test_lengths",
        "PSX-IDLE-LISTING",
        "test_processes",
        "test_unprivileged",
    ),
    "NoHoles": ("test_sparse", "test_data", "test_allocated", "test_far_ranges", "test_first_changes"),
    "NoBlocks": ("PSX-FALLOCATE-ALLOCATES", "test_allocated", "test_counted", "test_freed"),
    "NoSizes": ("test_statfs", "test_allocated", "test_sparse", "PSX-FREED-BLOCKS-O-TRUNC"),
    "Small": (
        "test_data",
        "test_sparse",
        "PSX-LARGE-BORDERS-CALLS",
        "test_allocated",
        "test_far_ranges",
        "test_first_changes",
    ),
    "SmallQuota": ("test_far_ranges", "PSX-LARGE-APPEND", "PSX-LARGE-BORDERS-CALLS", "PSX-SEQUENCE-4-GIB"),
    "SmallFiles": (
        "test_data",
        "test_sparse",
        "PSX-LARGE-READ",
        "PSX-LARGE-CUT",
        "PSX-LARGE-BORDERS",
        "PSX-LARGE-BORDERS-CALLS",
        "test_allocated",
        "test_far_ranges",
        "test_first_changes",
        "PSX-MMAP-TAIL-ZERO",
    ),
    "SmallDirectories": (
        "test_full_directories",
        "PSX-DIR-TYPES-MANY",
        "PSX-DIR-STREAMS",
        "PSX-FREED-ATTRIBUTE-FILES",
        "PSX-FREED-ATTRIBUTE-REMOVED",
        "PSX-KEPT-DIRECTORY-1100",
        "PSX-LARGE-DIRECTORY",
        "PSX-LARGE-LINKS",
        "test_unprivileged",
    ),
    "SmallAttributes": (
        "test_xattr",
        "PSX-XATTR-ALIKE",
        "test_lengths",
        "test_checksums",
        "test_attribute_calls",
    ),
    "CoarseTimes": (
        "test_times",
        "test_histories",
        "test_birth",
        "test_stamped",
        "test_acl_calls",
        "test_marked_directories",
    ),
    "FatTimes": (
        "test_times",
        "test_histories",
        "test_birth",
        "test_stamped",
        "test_acl_calls",
        "test_marked_directories",
    ),
    "FineWrites": ("test_times", "test_stamped"),
    "LeastLimits": (
        "test_create",
        "test_link",
        "test_xattr",
        "test_lengths",
        "test_kept",
        "test_checksums",
        "test_first_changes",
        "test_attribute_calls",
        "test_left_alone",
        "PSX-FSYNC",
        "PSX-DIR-REMOVED-OPEN",
        "PSX-HISTORY-REMOVED-DIRECTORY",
        "PSX-LARGE-XATTR-LIST",
        "PSX-NAME-COLON",
        "PSX-NAME-NEWLINE",
        "PSX-NAME-LATIN",
        "PSX-NAME-DASH",
        "test_processes",
        "test_marked_directories",
        "test_sticky",
    ),
    "FirstListing": ("PSX-NAME-DEPTH",),
    "DirectRefused": ("test_direct",),
    "SillyRename": ("test_sequences", "test_lock_lifetimes", "test_placed", "test_histories"),
}
"""Class of :mod:`fuse_sound` → the modules or cases of the suite that its choice concerns."""

cases = cache(lambda: collected("posix"))


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_file_system_is_accused_by_no_case(name: str) -> None:
    chosen = [case for case in cases() if {case.call.module.stem, case.id} & {*SOUND[name]}]
    answers = run_on(f"fuse_sound:{name}", chosen)
    optional = {case.id for case in chosen if case.level == "MAY"}
    bad = {
        case: f"{answer.status.value}: {answer.message[:300]}"
        for case, answer in answers.items()
        if answer.status.value not in ("passed", "skipped") and case not in optional
    }
    assert not bad, "\n".join(f"{case} {end}" for case, end in bad.items())
    assert any(answer.status.value == "passed" for answer in answers.values())
