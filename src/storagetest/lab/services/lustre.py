"""Lustre, where an overlay brings its modules and tools: no package registry carries them (see overlays.py).

MGS, MDT and two OSTs run in memory on osd-wbcfs, the OSD of Lustre 2.17 that needs no disk. Its limits, as
seen: no ACLs, no user.* attributes, no quota, no fallocate(), no symbolic links and special files, `df` shows
nothing used (docs/findings/posix.md). Slab reclaim on the server destroys its objects, so the kernel is told
to leave those caches alone.

The targets are written into targets.yaml in any case, as optional ones: where the client has no Lustre they
are skipped.
"""

from __future__ import annotations

from storagetest.lab.services import ADDRESS, Service, Target
from storagetest.lab.services.client import CUT_OFF

__all__ = ["SERVICE"]

_FSNAME = "lustre"
_NID = f"{ADDRESS}@tcp"

# Ready is when the MDT has preallocated objects on both OSTs: a client that mounts before waits 25 s. The
# timeout is 100 s by itself; the longer it is, the later is a silent client evicted.
_SCRIPT = r"""
. /run/lab/lib.sh
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

SERVICE = Service(
    "lustre",
    _SCRIPT.replace("@FSNAME@", _FSNAME).replace("@NID@", _NID),
    targets=(
        Target(
            "lustre",
            {
                "protocol": "lustre",
                "implementation": "lustre-wbcfs",
                "server": "appliance",
                "mgs": _NID,
                "fsname": _FSNAME,
                "clients": "all",
                "optional": True,
                # Under emulation each file that is removed takes 30 ms, and a run may leave many.
                "deadline": "3min",
                "matrix": {"stripe_count": [1, 2]},
                "controls": CUT_OFF,
            },
            "Served when an --overlay brings Lustre. Where a client lacks it, an optional target is skipped.",
        ),
    ),
)
