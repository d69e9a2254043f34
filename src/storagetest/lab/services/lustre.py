"""Lustre, if an overlay contains its modules and tools: Debian has no packages of them (see overlays.py).

MGS, MDT and two OSTs run in memory on osd-wbcfs, the OSD of Lustre 2.17 that needs no disk. It has no ACLs,
no user.* attributes, no quota, no fallocate(), no symbolic links and no special files, and `df` always shows
0 used (docs/findings/posix.md). It cuts nothing off, and finds no data (docs/findings/lustre.md). Slab
reclaim on the server destroys its objects, so the script disables that.

targets.yaml always contains the targets, as optional ones: they are skipped on clients without Lustre.
"""

from __future__ import annotations

from storagetest.lab.services import ADDRESS, OverlayContents, Service, Target, YamlValue
from storagetest.lab.services.client import ISOLATE_CONTROLS

_FSNAME = "lustre"
_NID = f"{ADDRESS}@tcp"

# The service is ready when the MDT has preallocated objects on both OSTs: a client that mounts earlier waits
# 25 s. sys.timeout (default: 100 s) decides when a client that does not respond is evicted.
_SCRIPT = r"""
command -v mount.lustre_tgt >/dev/null || exit $WITHOUT
lustre_network
sysctl -q -w vm.vfs_cache_pressure=0
export OSD_WBC_FSNAME=@FSNAME@ OSD_WBC_MGS_NID=@NID@
mkdir -p /srv/lustre/mdt0 /srv/lustre/ost0 /srv/lustre/ost1
target() {
    export OSD_WBC_TGT_TYPE=$1 OSD_WBC_INDEX=$2
    /usr/bin/mount -t lustre_tgt lustre-wbcfs "$3"
}
export OSD_WBC_PRIMARY_MDT=1
target MDT 0 /srv/lustre/mdt0
unset OSD_WBC_PRIMARY_MDT
target OST 0 /srv/lustre/ost0
target OST 1 /srv/lustre/ost1
preallocated() {
    [ "$(lctl get_param -n 'osp.@FSNAME@-OST000*-osc-MDT0000.prealloc_status' 2>&1 | tr '\n' ' ')" = "0 0 " ]
}
wait_until 60 preallocated
lctl conf_param @FSNAME@.sys.timeout=40
"""

_OSP = f"osp.{_FSNAME}-OST0001-osc-MDT0000.active"
_FAULT_CONTROLS: dict[str, YamlValue] = {
    "deactivate_ost": ["lctl", "set_param", f"{_OSP}=0"],
    "activate_ost": ["lctl", "set_param", f"{_OSP}=1"],
    # Lustre's own fault injection (OBD_FAIL_OST_ENOSPC): osd-wbcfs has no limit of space.
    "exhaust_space": ["lctl", "set_param", "fail_loc=0x215"],
    "free_space": ["lctl", "set_param", "fail_loc=0"],
}
"""Target controls of the suite's faults. None restarts the MDS: what osd-wbcfs has is lost with its mount."""

SERVICE = Service(
    "lustre",
    _SCRIPT.replace("@FSNAME@", _FSNAME).replace("@NID@", _NID),
    implementation="lustre-wbcfs",
    version="cat /sys/fs/lustre/version",
    overlay=OverlayContents(
        modules=(
            *("ksocklnd", "lustre"),  # LNet over TCP, and the client
            *("mgs", "mdt", "mdd", "lod", "ofd", "osp", "osd_wbcfs"),  # the server variant
        ),
        programs=(
            ("usr/sbin/mount.lustre", "mount(8)'s helper of the client, which it looks for in /sbin only"),
            ("usr/sbin/mount.lustre_tgt", "mount(8)'s helper of the server's targets"),
            ("usr/sbin/lctl", "configures and reads Lustre"),
            ("usr/bin/lfs", "sets and reads layouts"),
        ),
        plugins=(("mount_osd_wbcfs.so", "the plugin of the server's helper for osd-wbcfs"),),
        libraries=("liblustreapi", "liblnetconfig"),
    ),
    targets=(
        Target(
            "lustre",
            {
                "protocol": "lustre",
                "mgs": _NID,
                "fsname": _FSNAME,
                "optional": True,
                # Under emulation the removal of one file takes 30 ms, and a run may leave many files.
                "deadline": "3min",
                "matrix": {"stripe_count": [1, 2]},
                "controls": ISOLATE_CONTROLS | _FAULT_CONTROLS,
            },
            "Served if an --overlay contains Lustre. A client without Lustre skips an optional target.",
        ),
    ),
)
