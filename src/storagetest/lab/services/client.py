"""What every client runs: the daemons that the kernel's NFS and iSCSI clients cannot do without.

Modules are left to whoever attaches a target, as on any client. Names that must be a client's own (the
initiator's, the NVMe host's) would otherwise come from the image, the same for all.
"""

from __future__ import annotations

from storagetest.lab.services import Service, Value

__all__ = ["CUT_OFF", "SERVICE"]

CUT_OFF: dict[str, Value] = {
    "isolate": ["tc", "qdisc", "replace", "dev", "eth0", "root", "netem", "loss", "100%"],
    "reconnect": ["tc", "qdisc", "delete", "dev", "eth0", "root"],
}
"""Controls of a target (storagetest.config.controls): nothing that the client sends gets onto the network."""

_SCRIPT = r"""
. /run/lab/lib.sh
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

SERVICE = Service("client", _SCRIPT)
