"""Services of every client: the daemons that the kernel's NFS and iSCSI clients need.

Kernel modules of a protocol are loaded by the program that attaches a target, as on any client. The iSCSI
initiator name and the NVMe host NQN are set per client; otherwise all clients would have those of the image.
"""

from __future__ import annotations

from storagetest.lab.services import Service, YamlValue

ISOLATE_CONTROLS: dict[str, YamlValue] = {
    "isolate": ["tc", "qdisc", "replace", "dev", "eth0", "root", "netem", "loss", "100%"],
    "reconnect": ["tc", "qdisc", "delete", "dev", "eth0", "root"],
}
"""Target controls (storagetest.config.controls) that drop all packets that a client sends."""

_SCRIPT = r"""
. /run/lab/machine.env
mkdir -p /etc/iscsi /etc/nvme
echo "InitiatorName=iqn.2026-11.org.storagetest:$LAB_HOSTNAME" >/etc/iscsi/initiatorname.iscsi
sed -i 's|^iscsid.startup.*|iscsid.startup = /usr/sbin/iscsid|' /etc/iscsi/iscsid.conf
echo "nqn.2014-08.org.nvmexpress:uuid:$LAB_UUID" >/etc/nvme/hostnqn
echo "$LAB_UUID" >/etc/nvme/hostid
lustre_network
rpcbind -w
rpc.statd --no-notify
"""

SERVICE = Service(
    "client",
    _SCRIPT,
    packages=(
        *("fio", "nfs-common", "rpcbind", "cifs-utils", "keyutils", "open-iscsi", "lsscsi", "nvme-cli"),
        # Libraries of the Lustre tools, which come in an overlay (see overlays.py).
        *("libyaml-0-2", "libnl-3-200", "libnl-genl-3-200", "libmount1", "libkeyutils1", "libreadline8"),
    ),
)
