"""MOUNT version 3 (RFC 1813 5): MNT, DUMP, UMNT, UMNTALL and EXPORT."""

from __future__ import annotations

import pytest

from storagetest.wire.nfs3.harness import Nfs3Harness
from storagetest.wire.nfs3.mount import MNTPATHLEN, MOUNT_V3, mountstat3
from storagetest.wire.nfs3.types import ftype3, nfs_fh3
from storagetest.wire.rpc.types import accept_stat, auth_flavor
from storagetest.wire.xdr import Program

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 5.2.1")]

ABSENT = b"/storagetest-no-such-export"


@pytest.fixture
def mount(bench: Nfs3Harness):
    """Return a connection to the MOUNT program."""
    return bench.rpc(MOUNT_V3)


@pytest.fixture
def export(bench: Nfs3Harness) -> bytes:
    """Return the path of the export."""
    return bench.endpoint.export.encode()


@pytest.mark.case("MNT-NULL-01", section="RFC 1813 5.2.0", kills=("rpc-null-fails",))
def test_null_of_mount_succeeds(mount) -> None:
    mount.call("NULL")


@pytest.mark.case("MNT-MNT-01", kills=("mnt-handle", "mnt-refused"))
def test_the_handle_of_a_mount_is_a_directory(mount, bench: Nfs3Harness, export: bytes) -> None:
    mounted = mount.call("MNT", export)
    assert mounted.fhs_status == mountstat3.MNT3_OK
    assert bench.arranger().attributes(nfs_fh3(mounted.value.fhandle)).type == ftype3.NF3DIR


@pytest.mark.case("MNT-MNT-FLAVORS", kills=("mnt-flavors",))
def test_the_flavors_of_a_mount_work(mount, export: bytes) -> None:
    flavors = mount.call("MNT", export).value.auth_flavors
    usable = {auth_flavor.AUTH_SYS, auth_flavor.AUTH_NONE}  # AUTH_NONE: it disregards credentials
    assert usable & set(flavors), f"AUTH_SYS works here, and the server states {flavors}"


@pytest.mark.case("MNT-MNT-AGAIN", kills=("mnt-other-root",))
def test_each_mount_of_a_path_is_of_the_same_directory(mount, bench: Nfs3Harness, export: bytes) -> None:
    nfs = bench.arranger()
    found = [nfs.attributes(nfs_fh3(mount.call("MNT", export).value.fhandle)) for _ in range(2)]
    assert (found[0].fsid, found[0].fileid) == (found[1].fsid, found[1].fileid)


@pytest.mark.case("MNT-MNT-ABSENT", kills=("mnt-absent-accepted",))
def test_a_path_that_is_not_exported_is_refused(mount, observe) -> None:
    status = mount.call("MNT", ABSENT).fhs_status
    observe(status.name)
    assert status in (mountstat3.MNT3ERR_NOENT, mountstat3.MNT3ERR_ACCES), status.name


@pytest.mark.case("MNT-MNT-PARENT", kills=("mnt-absent-accepted",), builds_on=("MNT-EXPORT-01",))
def test_the_directory_that_has_the_export_is_not_mounted(mount, export: bytes, observe) -> None:
    """A directory that exists and that no entry of EXPORT covers is not exported: MNT refuses it."""
    parent = export.rstrip(b"/").rpartition(b"/")[0] or b"/"
    listed = [one.ex_dir for one in mount.call("EXPORT")]
    if any(f"{parent.decode()}/".startswith(f"{one.decode().rstrip('/')}/") for one in listed):
        pytest.skip(f"{parent.decode()} is exported, or is in an export")
    status = mount.call("MNT", parent).fhs_status
    observe(status.name)
    assert status != mountstat3.MNT3_OK, f"EXPORT lists {listed}, and {parent.decode()} is mounted"


@pytest.mark.case(
    "MNT-MNT-LONG", section="RFC 1813 5.1.4", kills=("mnt-absent-accepted",), builds_on=("MNT-MNT-ABSENT",)
)
def test_a_path_over_mntpathlen_is_refused(mount, observe) -> None:
    reply = mount.ask("MNT", b"/" + b"p" * MNTPATHLEN)
    observe(reply.status if reply.result is None else reply.result.fhs_status.name)
    if reply.result is None:
        assert reply.accepted == accept_stat.GARBAGE_ARGS
    else:
        wanted = (
            mountstat3.MNT3ERR_NAMETOOLONG,
            mountstat3.MNT3ERR_NOENT,
            mountstat3.MNT3ERR_ACCES,
            mountstat3.MNT3ERR_INVAL,
        )
        assert reply.result.fhs_status in wanted
    mount.call("NULL")


@pytest.mark.case("MNT-EXPORT-01", section="RFC 1813 5.2.5", kills=("export-empty",))
def test_the_export_is_in_the_list_of_exports(mount, export: bytes) -> None:
    listed = [one.ex_dir for one in mount.call("EXPORT")]
    assert any(export == one or export.startswith(one.rstrip(b"/") + b"/") for one in listed), listed


@pytest.mark.case("MNT-DUMP-01", section="RFC 1813 5.2.2", kills=("dump-fails",))
def test_dump_returns_a_list(mount, export: bytes, observe) -> None:
    mount.call("MNT", export)
    listed = [one.ml_directory for one in mount.call("DUMP")]
    observe("the mount is listed" if export in listed else "the mount is not listed")


@pytest.mark.case("MNT-UMNT-01", section="RFC 1813 5.2.3", kills=("umnt-fails",))
def test_umnt_returns_nothing_and_leaves_the_handle(mount, bench: Nfs3Harness, export: bytes) -> None:
    mounted = mount.call("MNT", export)
    mount.call("UMNT", export)
    assert bench.arranger().attributes(nfs_fh3(mounted.value.fhandle)).type == ftype3.NF3DIR


@pytest.mark.case("MNT-UMNT-ABSENT", section="RFC 1813 5.2.3", kills=("umnt-fails",))
def test_umnt_of_what_is_not_mounted_returns_nothing(mount) -> None:
    mount.call("UMNT", ABSENT)


@pytest.mark.case("MNT-UMNTALL-01", section="RFC 1813 5.2.4", kills=("umnt-fails",))
def test_umntall_returns_nothing(mount) -> None:
    mount.call("UMNTALL")


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(
            call,
            marks=pytest.mark.case(
                f"MNT-{call}-LISTED", section=section, level="SHOULD", kills=("umnt-stays",)
            ),
        )
        for call, section in (("UMNT", "RFC 1813 5.2.3"), ("UMNTALL", "RFC 1813 5.2.4"))
    ],
)
@pytest.mark.exclusive  # another program that mounts the export has entries, too
def test_what_is_unmounted_is_listed_no_more(mount, export: bytes, call: str, observe) -> None:
    """The call removes the entry of this client from the list of mounts that DUMP returns."""
    mount.call("MNT", export)
    before = [one for one in mount.call("DUMP") if one.ml_directory == export]
    if not before:
        observe("DUMP does not list the mount")
        return
    mount.call(call, *((export,) if call == "UMNT" else ()))
    after = [one for one in mount.call("DUMP") if one.ml_directory == export]
    assert len(after) < len(before), (
        f"DUMP lists {len(before)} mounts of the export before it, {len(after)} after it"
    )


@pytest.mark.case("MNT-PROC-6", section="RFC 5531 9", kills=("rpc-procedure-accepted",))
def test_an_unknown_procedure_of_mount_is_unavailable(mount) -> None:
    call = mount.encode("NULL").override("body.value.proc", 6)
    assert mount.receive(mount.send(mount.procedure("NULL"), call)).accepted == accept_stat.PROC_UNAVAIL


@pytest.mark.case(
    "MNT-VERS-99", section="RFC 5531 9", kills=("rpc-program-version-accepted", "rpc-program-version-range")
)
def test_an_unknown_version_of_mount_is_a_mismatch(bench: Nfs3Harness) -> None:
    program = Program(MOUNT_V3.number, 99, "MOUNT 99", MOUNT_V3.procedures)
    reply = bench.rpc(program, port=bench.endpoint.port_of(MOUNT_V3)).ask("NULL")
    assert reply.accepted == accept_stat.PROG_MISMATCH
    assert reply.mismatch is not None
    assert reply.mismatch.low <= 3 <= reply.mismatch.high


@pytest.mark.case("MNT-ARGS-CUT", section="RFC 5531 9", kills=("rpc-garbage-accepted", "rpc-garbage-ends"))
def test_a_path_that_is_cut_is_garbage(mount, export: bytes) -> None:
    call = mount.encode("MNT", export).override("length", 400)
    assert mount.receive(mount.send(mount.procedure("MNT"), call)).accepted == accept_stat.GARBAGE_ARGS
    mount.call("NULL")
