"""pNFS: which layout a mount uses. The texts are those of Linux 6.1 clients of knfsd, in the lab."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from storagetest.errors import AttachError
from storagetest.hosts import Completed
from storagetest.protocols._acquire import Attaching
from storagetest.protocols._mount import Mounted, MountEntry
from storagetest.protocols._nfs_layout import LayoutUse, layout_got, layout_use
from storagetest.protocols.base import protocols

Nfs: Any = protocols.get("nfs")
TEXTS = Path(__file__).parent / "mountstats"
POINT = "/run/storagetest/storagetest-0a"


def text(name: str) -> str:
    """Return the mountstats of the state ``name``: a mount with block layouts, before and after the probe.

    ``used`` is after a probe on the device, ``fell-back`` after one without a device that blkmapd finds,
    ``plain`` of an export without layouts, ``v3`` of version 3.
    """
    return (TEXTS / f"{name}.txt").read_text()


def options(**more: object) -> Any:
    return Nfs.Options(**{"address": "10.77.0.1", "export": "/p", "version": "4.2", **more})


def use(name: str) -> LayoutUse:
    found = layout_use(text(name), POINT)
    assert found is not None
    return found


def test_the_driver_and_the_counters_are_read():
    mounted, used = use("mounted"), use("used")
    assert (mounted.driver, used.driver) == ("block", "block")
    assert (mounted.layout_reads, mounted.layout_writes) == (0, 0)
    assert used.layout_reads > 0
    assert used.layout_writes > 0
    assert used.calls("LAYOUTGET") > 0
    assert used.calls("WRITE") == used.calls("READ", "READ_PLUS") == 0


def test_a_mount_without_layouts_has_no_driver():
    assert use("plain").driver == "none"
    assert use("plain").calls("WRITE") > 0
    assert layout_use(text("v3"), POINT) is None
    assert layout_use(text("used"), "/elsewhere") is None


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("LAYOUT_NFSV4_1_FILES", "files"),
        ("LAYOUT_FLEX_FILES", "flexfiles"),
        ("LAYOUT_SCSI", "scsi"),
        ("LAYOUT_OF_TOMORROW", "LAYOUT_OF_TOMORROW"),
    ],
)
def test_other_drivers(kernel, name):
    found = layout_use(text("used").replace("LAYOUT_BLOCK_VOLUME", kernel), POINT)
    assert found is not None
    assert found.driver == name


def test_what_was_asked_for_is_got_if_the_data_went_that_way():
    assert layout_got(use("mounted"), use("used")) == "block"


def test_a_driver_without_data_is_no_layout():
    got = layout_got(use("mounted"), use("fell-back"))
    assert got.startswith("block, but the first data went through the server: 4 WRITE, 5 READ (")
    assert layout_got(use("used"), use("used")).startswith("block, but "), "nothing moved at all"


class Client:
    """A client whose probe prints ``after``."""

    def __init__(self, after: str, status: int = 0) -> None:
        self.name, self.after, self.status, self.ran = "client1", after, status, 0

    def run(self, argv, **_: object) -> Completed:
        self.ran += 1
        return Completed("client1", tuple(argv), self.status, self.after, "dd: no space", 0.1)


def negotiated(client: Client, before: str, given: Any) -> Any:
    attaching = Attaching(client, "nfs 4.2 10.77.0.1:/p", 60)  # type: ignore[arg-type]
    entry = MountEntry("0:52", POINT, "nfs4", "10.77.0.1:/p", {"vers": given.version, "sec": "sys"})
    mount = Mounted(f"{POINT}/own", 1 << 30, entry, {"/proc/self/mountstats": before})
    return Nfs().negotiated(attaching, given, mount)


@pytest.mark.parametrize(
    ("asked", "before", "after", "different"),
    [
        ("block", "mounted", "used", ""),
        ("none", "plain", "", ""),
        (None, "mounted", "", ""),
        ("scsi", "mounted", "used", "layout: requested scsi, got block"),
        ("none", "mounted", "", "layout: requested none, got block"),
        ("block", "plain", "plain", "layout: requested block, got none"),
        (
            "block",
            "mounted",
            "fell-back",
            "layout: requested block, got block, but the first data went through the server: 4 WRITE, 5 READ",
        ),
    ],
)
def test_a_silent_change_of_the_layout_is_found(asked, before, after, different):
    given, client = options(layout=asked), Client(text(after) if after else "")
    found = Nfs().option_mismatches(given, negotiated(client, text(before), given))
    assert "; ".join(map(str, found))[: len(different) or None] == different
    assert client.ran == bool(after), "only a layout that was asked for is probed"


def test_a_probe_after_which_the_mount_is_not_shown_proves_no_layout():
    given = options(layout="block")
    found = Nfs().option_mismatches(given, negotiated(Client(""), text("mounted"), given))
    assert list(map(str, found)) == ["layout: requested block, got no value"]


def test_a_probe_that_fails_is_an_error_of_the_attach():
    given = options(layout="block")
    with pytest.raises(AttachError, match="client1 cannot write and read a file: dd: no space"):
        negotiated(Client("", status=1), text("mounted"), given)


def test_a_layout_needs_its_module_and_gives_the_capability():
    assert Nfs().needs(options(layout="block")).modules == ("nfsv4", "blocklayoutdriver")
    assert Nfs().needs(options(layout="flexfiles")).modules == ("nfsv4", "nfs_layout_flexfiles")
    assert Nfs().needs(options(layout="none")).modules == ("nfsv4",)
    assert "pnfs" in Nfs().capabilities(options(layout="scsi"))
    assert "pnfs" not in Nfs().capabilities(options(layout="none")) | Nfs().capabilities(options())


@pytest.mark.parametrize("version", ["3", "4.0"])
def test_versions_without_sessions_have_no_layouts(version):
    with pytest.raises(ValidationError, match=r"pNFS needs NFS version 4\.1 or 4\.2; this variant has"):
        options(version=version, layout="block")
