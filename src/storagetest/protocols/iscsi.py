"""iSCSI, logged in by open-iscsi on a client (iscsiadm(8); RFC 7143).

The node record is made by iscsiadm, completed by us and put back as a file of mode 0600: iscsiadm itself
takes a CHAP secret only as an argument, which every user of the client could read. Nothing of anybody else's
is touched: where a session or a record for this target exists already, attaching is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from storagetest.config.base import Address, BlockOptions, Items, Model, Port, Portal, SecretText
from storagetest.errors import AttachError, ClientLacks, StoragetestError, TargetDead
from storagetest.hosts import Completed, Host
from storagetest.polling import wait_until
from storagetest.protocols._acquire import WITHIN, reject_newlines
from storagetest.protocols._block_device import block_capabilities, required_tools
from storagetest.protocols._preflight import collect_diagnostics, run_quietly
from storagetest.protocols.base import Capability, ClientRequirements, register
from storagetest.protocols.template import Attaching, Connection, DeviceProtocol, each_path

__all__ = ["Iscsi"]

PATH_LOST_SECONDS = 2
"""How long a path that has lost its connection may come back before its I/O goes to another path."""

RECORDS = "/etc/iscsi/nodes /var/lib/iscsi/nodes"
"""Where distributions keep node records; open-iscsi moved from the first to the second."""

FIND = f"""
iqn=$1 portals=$2
shopt -s nullglob
sessions() {{
    local session name
    for session in /sys/class/iscsi_session/session*; do
        read -r name <"$session/targetname" && [ "$name" = "$iqn" ] && echo "${{session##*/}}"
    done 2>/dev/null
}}
records() {{
    local root portal record
    for root in {RECORDS}; do
        for portal in $portals; do
            for record in "$root/$iqn/$portal" "$root/$iqn/$portal,"*; do
                [ -e "$record" ] && echo "$record"
            done
        done
    done
}}
"""

EXISTING = FIND + "sessions; records; exit 0"

NEW_RECORD = (
    FIND
    + r"""
iscsiadm -m node -o new -T "$iqn" -p "$3" >/dev/null || exit $?
record=$(records | head -n 1)
[ -d "$record" ] && record=$record/default
echo "$record"
cat "$record"
"""
)

QUERY = (
    FIND
    + r"""
lun=$3 scan=$4 attributes=$5
for session in $(sessions); do
    cd -P "/sys/class/iscsi_session/$session/device" || continue
    echo "session:$session"
    host=${PWD%/session*}
    [ -z "$scan" ] || echo "0 0 $lun" >"/sys/class/scsi_host/${host##*/}/scan"
    files=
    for name in $attributes; do
        for file in iscsi_session/*/$name connection*/iscsi_connection/*/$name; do
            files="$files $file"
        done
    done
    for unit in target*/*:"$lun"; do
        echo "lun:$lun"
    done
    for block in target*/*:"$lun"/block/*; do
        read -r size <"$block/size" && [ "$size" -gt 0 ] && [ -b "/dev/${block##*/}" ] || continue
        echo "block:${block##*/}"
        files="$files $block/device/queue_depth"
    done
    grep -s -H . $files
done
exit 0
"""
)

RELEASE = (
    WITHIN
    + FIND
    + r"""
limit=$3 map=$4
if [ -n "$map" ] && [ -n "$(dmsetup info --noheadings -c -o name "$map" 2>/dev/null)" ]; then
    [ -S /run/udev/control ] || export DM_DISABLE_UDEV=1  # or the node in /dev/mapper stays
    within "$limit" dmsetup remove --retry "$map"
fi
for session in $(sessions); do
    within "$limit" iscsiadm -m session -r "${session#session}" --logout
done
for record in $(records); do
    rm -rf "$record"
    rmdir "${record%/*}" 2>/dev/null
done
tail -n 3 "$log"
[ -z "$(sessions)$(records)" ]
"""
)

JOIN_PATHS = r"""
name=$1
shift
for disk in "$@"; do
    read -r size <"/sys/block/$disk/size" && read -r number <"/sys/block/$disk/dev" || exit 1
    paths="$paths $number 1"
done
[ -S /run/udev/control ] || export DM_DISABLE_UDEV=1
table="0 $size multipath 0 0 1 1 round-robin 0 $# 1$paths"
dmsetup create "$name" --uuid "storagetest-mpath-$name" --table "$table"
"""
"""A map of all paths in one group (kernel's dm-mpath.c: features, hardware handler, groups, next group; then
selector, its arguments, paths, arguments a path), which tries another path where one fails."""

_NEGOTIATED = {
    "header_digest": "HeaderDigest",
    "data_digest": "DataDigest",
    "max_recv_dlength": "MaxRecvDataSegmentLength",
    "max_xmit_dlength": "MaxXmitDataSegmentLength",
    "first_burst_len": "FirstBurstLength",
    "max_burst_len": "MaxBurstLength",
    "initial_r2t": "InitialR2T",
    "immediate_data": "ImmediateData",
    "max_outstanding_r2t": "MaxOutstandingR2T",
    "erl": "ErrorRecoveryLevel",
    "tpgt": "TargetPortalGroupTag",
    "recovery_tmo": "recovery_tmo",
    "queue_depth": "queue_depth",
}
"""sysfs names (scsi_transport_iscsi.c) to the keys of RFC 7143, section 13."""

_AMBIGUOUS_STATUSES = {4, 5, 8, 11, 19}
"""Exit statuses of iscsiadm that may mean a dead portal as well as a target that says no."""

_DIGEST_KEYS = {"none": "None", "crc32c": "CRC32C"}
"""The options' digests as RFC 7143 (13.1) and open-iscsi spell them."""

_DIGEST = {"0": "None", "1": "CRC32C"}
_VALUE_NAMES = {
    "HeaderDigest": _DIGEST,
    "DataDigest": _DIGEST,
    "InitialR2T": {"0": "No", "1": "Yes"},
    "ImmediateData": {"0": "No", "1": "Yes"},
}
"""sysfs has numbers for what the RFC spells out."""


class Chap(Model):
    """One direction of CHAP (RFC 7143, 12.1.3)."""

    username: Annotated[str, Field(pattern=r"^[^\s]+$")]
    """The CHAP name."""

    password: SecretText
    """The CHAP secret."""


class Authentication(Chap):
    """CHAP: who we are, and, for mutual CHAP, who the target must prove to be."""

    mutual: Chap | None = None
    """The target's name and secret, when it has to authenticate itself too."""


@register
class Iscsi(DeviceProtocol["Iscsi.Options"]):
    """A LUN of an iSCSI target, logged in to by open-iscsi on a client."""

    name = "iscsi"
    title = "iSCSI"
    ports = (3260,)

    class Options(BlockOptions):
        """A portal, a target and a LUN."""

        short: ClassVar[Mapping[str, str]] = {"header_digest": "hdgst", "data_digest": "ddgst"}

        address: Address
        """The portal's address."""

        iqn: Annotated[str, Field(pattern=r"^(iqn|eui|naa)\.[A-Za-z0-9.:_-]+$")]
        """The target's name."""

        lun: Annotated[int, Field(ge=0, le=16383)] = 0
        """The logical unit's number."""

        port: Port = 3260
        """The portal's TCP port."""

        chap: Authentication | None = None
        """CHAP names and secrets; without it no authentication is offered."""

        header_digest: Literal["none", "crc32c"] = "none"
        """Digest of every PDU's header; nothing else is offered to the target."""

        data_digest: Literal["none", "crc32c"] = "none"
        """Digest of every data segment; nothing else is offered to the target."""

        queue_depth: Annotated[int, Field(ge=1, le=1024)] | None = None
        """Commands in flight for the LUN; open-iscsi's default is 32."""

        more_paths: Items[Portal] = ()
        """More portals of the same target: a session through each, joined by the client's device mapper
        (dm-multipath). Such a target is for cases on a mount or a device; none on the wire is run on it."""

        @property
        def target_label(self) -> str:
            """The target as messages name it."""
            return f"iscsi {self.iqn} lun {self.lun} at {self.address}"

    searched: ClassVar[Mapping[str, tuple[object, ...]]] = {"queue_depth": (8, 32, 128)}
    example: ClassVar[Mapping[str, Any]] = {
        "address": "array.example.net",
        "iqn": "iqn.2024-01.net.example:bench",
        "erase": "naa.600140512345678900000000000000aa",
    }

    def capabilities(self, options: Iscsi.Options) -> frozenset[Capability]:
        """Return what the raw LUN, or the file system on it, can do."""
        raw = set() if options.filesystem else {"scsi", "shared"}
        return block_capabilities(options) | {"multipath" if options.more_paths else "iscsi-wire"} | raw

    def needs(self, options: Iscsi.Options) -> ClientRequirements:
        """Return open-iscsi, the modules, and the portal's port; of several paths the first one's."""
        joining = bool(options.more_paths)
        return ClientRequirements(
            tools=("iscsiadm", *(("dmsetup",) if joining else ()), *required_tools(options)),
            # Without udev nobody loads the disks' driver.
            modules=("iscsi_tcp", "sd_mod", *(("dm_multipath", "dm_round_robin") if joining else ())),
            packages="open-iscsi (Debian) or iscsi-initiator-utils" + (", dmsetup" if joining else ""),
            address=options.address,
            port=options.port,
        )

    def discover(self, client: Host, address: str, *, deadline: float) -> Sequence[Mapping[str, Any]]:
        """Ask the portal for its targets (SendTargets, RFC 7143, 3.3); no record is kept."""
        portal = f"[{address}]" if ":" in address else address
        command = ["iscsiadm", "-m", "discovery", "-t", "sendtargets", "-p", portal, "-o", "nonpersistent"]
        return [{"iqn": name} for name in parse_discovery(run_quietly(client, command, deadline=deadline))]

    def connection(self, options: Iscsi.Options) -> Connection:
        """Return how the client logs in, finds the LUN, and logs out."""
        return Connection(
            description=f"iSCSI session and record of {options.iqn} at {options.address}",
            existing=_script(EXISTING, options),
            presence="has a session or node record for it",
            remedy="Log out and delete it",
            connect=partial(_connect, options),
            release=lambda seconds: _script(RELEASE, options, str(seconds - 3), map_name(options)),
        )

    def requested(self, options: Iscsi.Options) -> Mapping[str, object]:
        """Return the digests and the queue depth that were asked for."""
        return {
            "HeaderDigest": _DIGEST_KEYS[options.header_digest],
            "DataDigest": _DIGEST_KEYS[options.data_digest],
            "queue_depth": options.queue_depth,
        }

    def collect_diagnostics(self, client: Host, options: Iscsi.Options) -> Mapping[str, str]:
        """Collect the session's state, its statistics and what the kernel last said."""
        sessions = ["iscsiadm", "-m", "session", "-P", "2"]
        return collect_diagnostics(
            client,
            {
                "session": ["sh", "-c", _HIDING_PASSWORDS, "storagetest-session", *sessions],
                "statistics": ["iscsiadm", "-m", "node", "-T", options.iqn, "--stats"],
            },
        )


_HIDING_PASSWORDS = '"$@" | grep -v -i password'


def map_name(options: Iscsi.Options) -> str:
    """Return what the map of the LUN's paths is called; "" where there is one path."""
    if not options.more_paths:
        return ""
    return f"storagetest-{hashlib.sha256(f'{options.iqn} {options.lun}'.encode()).hexdigest()[:12]}"


def record_settings(options: Iscsi.Options) -> dict[str, str]:
    """Build what the node record must say (iscsid.conf's names).

    One login attempt and short timers, because waiting is the deadline's business; and a session that has
    lost its target fails its I/O when the deadline is over, so that nothing hangs for good. Where there is
    another path it fails at once: the I/O is to be tried there.
    """
    patience, probe = (PATH_LOST_SECONDS, "2") if options.more_paths else (max(1, int(options.deadline)), "5")
    settings = {
        "node.startup": "manual",
        "node.session.scan": "manual",
        "node.session.initial_login_retry_max": "1",
        "node.session.timeo.replacement_timeout": str(patience),
        "node.conn[0].timeo.login_timeout": str(max(2, min(10, int(options.deadline / 3)))),
        "node.conn[0].timeo.logout_timeout": "5",
        "node.conn[0].timeo.noop_out_interval": probe,
        "node.conn[0].timeo.noop_out_timeout": probe,
        "node.conn[0].iscsi.HeaderDigest": _DIGEST_KEYS[options.header_digest],
        "node.conn[0].iscsi.DataDigest": _DIGEST_KEYS[options.data_digest],
        "node.session.auth.authmethod": "CHAP" if options.chap else "None",
    }
    if options.queue_depth is not None:
        settings["node.session.queue_depth"] = str(options.queue_depth)
        settings["node.session.cmds_max"] = str(max(128, 1 << (options.queue_depth - 1).bit_length()))
    if options.chap is not None:
        settings["node.session.auth.username"] = options.chap.username
        settings["node.session.auth.password"] = reject_newlines(
            options.chap.password.reveal(), "the CHAP secret"
        )
        if options.chap.mutual is not None:
            settings["node.session.auth.username_in"] = options.chap.mutual.username
            secret = options.chap.mutual.password.reveal()
            settings["node.session.auth.password_in"] = reject_newlines(secret, "the target's CHAP secret")
    return settings


def completed_record(record: str, settings: Mapping[str, str]) -> str:
    """Return the text of a node record with ``settings`` in place of its own lines of these names.

    Authentication that the client's iscsid.conf sets for everybody is dropped.
    """
    kept = []
    for line in record.splitlines():
        name = line.partition("=")[0].strip()
        if name not in settings and not name.startswith("node.session.auth.") and name != "# END RECORD":
            kept.append(line)
    added = [f"{name} = {value}" for name, value in settings.items()]
    return "\n".join([*kept, *added, "# END RECORD", ""])


def parse_negotiated(seen: Mapping[str, str]) -> dict[str, str]:
    """Say what was negotiated, under the names of RFC 7143."""
    named = {name: seen[key] for key, name in _NEGOTIATED.items() if seen.get(key)}
    return {name: _VALUE_NAMES.get(name, {}).get(value, value) for name, value in named.items()}


def parse_discovery(text: str) -> tuple[str, ...]:
    """Parse SendTargets' answer, lines ``ADDRESS:PORT,TPGT NAME``, into the targets' names."""
    return tuple(sorted({line.split()[1] for line in text.splitlines() if len(line.split()) == 2}))


def error_from_output(
    done: Completed, options: Iscsi.Options, *, offered: tuple[str, ...] | None = None
) -> StoragetestError:
    """Make an error of iscsiadm's exit status (iscsiadm(8), EXIT STATUS).

    ``offered`` are the targets that the portal names, where it was asked and answered.
    """
    target = options.target_label
    said = " ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-2:])
    where = f"(iscsiadm on {done.host} exited {done.status}: {said})"
    if offered is not None and options.iqn not in offered:
        names = ", ".join(offered) or "none"
        return AttachError(
            f"{target}: the portal offers this client no such target; it offers {names} {where}"
        )
    if offered is not None:
        return _login_refused(options, where)
    match done.status:
        case 24:
            who = f"as {options.chap.username!r}" if options.chap else "without CHAP"
            return AttachError(
                f"{target}: the target refuses the login {who}: wrong CHAP name or secret, or this "
                f"initiator is not allowed there {where}"
            )
        case 4 | 8 | 11:
            return TargetDead(f"{target}: no answer to the login {where}")
        case 18 | 20:
            return ClientLacks(
                f"{target}: iscsid does not run on {done.host}: `systemctl start iscsid` there {where}"
            )
        case 13:
            return ClientLacks(f"{target}: logging in wants root on {done.host} {where}")
    return _login_refused(options, where)


def _login_refused(options: Iscsi.Options, where: str) -> AttachError:
    digest = options.header_digest != "none" or options.data_digest != "none"
    return AttachError(
        f"{options.target_label}: the target refuses the login: does it have this IQN, allow this initiator"
        f"{', offer these digests' if digest else ''} and want {'' if options.chap else 'no '}CHAP? {where}"
    )


def parse_query(text: str) -> dict[str, str]:
    """Parse the read-back's lines ``PATH:VALUE``, in which the last part of PATH is the name."""
    seen: dict[str, str] = {}
    for line in text.splitlines():
        # A SCSI path has colons of its own (2:0:0:1/block/sda).
        path, _, value = line.rpartition(":")
        seen.setdefault(path.rpartition("/")[2], value.strip())
    return seen


def parse_disks(text: str) -> tuple[str, ...]:
    """Return the disks that the read-back names, one for each path that has one."""
    return tuple(line.removeprefix("block:") for line in text.splitlines() if line.startswith("block:"))


def _script(script: str, options: Iscsi.Options, *more: str) -> list[str]:
    portals = " ".join(f"{path.address},{path.port}" for path in each_path(options))
    return ["bash", "-c", script, "storagetest-iscsi", options.iqn, portals, *more]


def _connect(options: Iscsi.Options, attaching: Attaching) -> tuple[str, Mapping[str, str]]:
    for path in each_path(options):
        _log_in(attaching, path, record_settings(options))
    seen, disks = _find(attaching, options)
    if not options.more_paths:
        return disks[0], parse_negotiated(seen)
    return _join_paths(attaching, options, disks), {**parse_negotiated(seen), "paths": " ".join(disks)}


def _log_in(attaching: Attaching, options: Iscsi.Options, settings: Mapping[str, str]) -> None:
    bracketed = f"[{options.address}]" if ":" in options.address else options.address
    portal = f"{bracketed}:{options.port}"
    made = attaching.run(_script(NEW_RECORD, options, portal))
    if not made.ok:
        raise error_from_output(made, options)
    path, _, record = made.stdout.partition("\n")
    text = completed_record(record, settings)
    attaching.client.push(text.encode(), path, mode=0o600, deadline=attaching.deadline.remaining())
    login = ["iscsiadm", "-m", "node", "-T", options.iqn, "-p", portal, "--login"]
    done = attaching.run(login)
    if not done.ok:
        raise _login_error(attaching, options, done, portal)


def _login_error(
    attaching: Attaching, options: Iscsi.Options, done: Completed, portal: str
) -> StoragetestError:
    """Ask the portal which targets it has: iscsid tries again whatever the answer, and says "timed out"."""
    if done.status not in _AMBIGUOUS_STATUSES:
        return error_from_output(done, options)
    discovery = ["iscsiadm", "-m", "discovery", "-t", "sendtargets", "-p", portal, "-o", "nonpersistent"]
    seconds = min(10.0, attaching.deadline.remaining())
    asked = attaching.client.run(discovery, deadline=seconds, check=False)
    return error_from_output(done, options, offered=parse_discovery(asked.stdout) if asked.ok else None)


def _find(attaching: Attaching, options: Iscsi.Options) -> tuple[dict[str, str], tuple[str, ...]]:
    """Scan for the LUN; return what sysfs says of the first session, and the disks: one a path."""
    lun, scan, wanted = str(options.lun), "scan", len(each_path(options))
    seen: dict[str, str] = {}
    disks: tuple[str, ...] = ()

    def there() -> bool:
        nonlocal scan, seen, disks
        look = _script(QUERY, options, lun, scan, " ".join(_NEGOTIATED))
        looked = attaching.run(look, check=True)
        scan = ""
        seen, disks = parse_query(looked.stdout), parse_disks(looked.stdout)
        # Writing to `scan` returns when the scan is over; only the disk driver's part is still to come.
        return len(disks) >= wanted or ("session" in seen and "lun" not in seen)

    client = attaching.client.name
    wait_until(there, attaching.deadline.remaining(), f"a disk for LUN {lun} of {options.iqn} on {client}")
    if "block" not in seen:
        msg = f"{options.target_label}: logged in, but the target shows {client} no LUN {lun}"
        raise AttachError(msg)
    return seen, disks


def _join_paths(attaching: Attaching, options: Iscsi.Options, disks: Sequence[str]) -> str:
    """Make one device of the paths; return its name under /dev."""
    argv = ["bash", "-c", JOIN_PATHS, "storagetest-join", map_name(options), *disks]
    made = attaching.run(argv)
    if not made.ok:
        msg = (
            f"{options.target_label}: {', '.join(disks)} could not be joined to one device: {made.describe()}"
        )
        raise AttachError(msg)
    return f"mapper/{map_name(options)}"
