"""iSCSI, logged in by open-iscsi on a client (iscsiadm(8); RFC 7143).

iscsiadm makes the node record; this module completes it and writes it back as a file of mode 0600. Why:
iscsiadm accepts a CHAP secret only as an argument, which every user of the client can read. Existing
sessions and records are not touched: if the client has one for this target, the attach fails.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storagetest.config.base import Address, BlockOptions, Items, Model, Port, Portal, SecretText, Size
from storagetest.errors import AttachError, ClientLacks, StoragetestError, TargetDead
from storagetest.hosts import ATTACHING_ENV, Completed, Host
from storagetest.polling import wait_until
from storagetest.protocols._acquire import WITHIN, reject_newlines
from storagetest.protocols._block_device import block_capabilities, required_tools
from storagetest.protocols._preflight import collect_diagnostics, run_quietly
from storagetest.protocols.base import Capability, ClientRequirements, register
from storagetest.protocols.template import Attaching, Connection, DeviceProtocol, each_path

PATH_LOST_SECONDS = 2
"""Seconds for a lost path to reconnect before its I/O goes to another path (chosen)."""

RECORDS = "/etc/iscsi/nodes /var/lib/iscsi/nodes"
"""Directories of node records; newer versions of open-iscsi use the second."""

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
iscsiadm -m node -o new -T "$iqn" -p "$3" ${4:+-I "$4"} >/dev/null || exit $?
record=$(records | head -n 1)
[ -d "$record" ] && record=$record/${4:-default}
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
    read -r driver <"/sys/class/scsi_host/${host##*/}/proc_name" && echo "transport:$driver"
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
selector, its arguments, paths, arguments per path). It uses another path if one fails."""

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
    "transport": "transport",
}
"""sysfs names (scsi_transport_iscsi.c) to the keys of RFC 7143, section 13."""

_AMBIGUOUS_STATUSES = {4, 5, 8, 11, 19}
"""Exit statuses of iscsiadm for either a dead portal or a refused login."""

_DIGEST_KEYS = {"none": "None", "crc32c": "CRC32C"}
"""Values of the digest options to the values of RFC 7143 (13.1) and open-iscsi."""

_YES_NO = {None: None, False: "No", True: "Yes"}
"""Values of the options of immediate data and R2T to the values of RFC 7143."""

_COMMANDS_KEPT = 15
"""Commands of a session that the kernel keeps for itself (ISCSI_MGMT_CMDS_MAX in libiscsi.h)."""

_FIRST_BURST = 262144
"""FirstBurstLength that open-iscsi offers by default (iscsid.conf)."""

_DIGEST = {"0": "None", "1": "CRC32C"}
_VALUE_NAMES = {
    "HeaderDigest": _DIGEST,
    "DataDigest": _DIGEST,
    "InitialR2T": {"0": "No", "1": "Yes"},
    "ImmediateData": {"0": "No", "1": "Yes"},
    "transport": {"iscsi_tcp": "tcp", "iscsi_iser": "iser"},
}
"""Numbers in sysfs to the values of RFC 7143; names of drivers to those of the option."""


_Length = Annotated[Size, Field(ge=512, le=(1 << 24) - 4, multiple_of=4)]
"""Bytes; RFC 7143 (13.12 to 13.14) has 512 to 2^24 - 1, and open-iscsi rounds down to words."""


class Chap(Model):
    """One direction of CHAP (RFC 7143, 12.1.3)."""

    username: Annotated[str, Field(pattern=r"^[^\s]+$")]
    """The CHAP name."""

    password: SecretText
    """The CHAP secret."""


class Authentication(Chap):
    """CHAP: the initiator's name and secret and, for mutual CHAP, the target's."""

    mutual: Chap | None = None
    """The target's name and secret, if it must authenticate itself too."""


@register
class Iscsi(DeviceProtocol["Iscsi.Options"]):
    """A LUN of an iSCSI target, logged in to by open-iscsi on a client."""

    name = "iscsi"
    title = "iSCSI"
    ports = (3260,)

    class Options(BlockOptions):
        """A portal, a target and a LUN."""

        short: ClassVar[Mapping[str, str]] = {
            "header_digest": "hdgst",
            "data_digest": "ddgst",
            "max_recv_data_segment_length": "maxrecv",
            "max_burst_length": "maxburst",
            "first_burst_length": "firstburst",
        }

        address: Address
        """The portal's address."""

        iqn: Annotated[str, Field(pattern=r"^(iqn|eui|naa)\.[A-Za-z0-9.:_-]+$")]
        """The target's name."""

        transport: Literal["tcp", "iser"] = "tcp"
        """The transport. With ``iser`` (RFC 7145) the client needs an RDMA device; wire cases do not run."""

        lun: Annotated[int, Field(ge=0, le=16383)] = 0
        """The logical unit's number."""

        port: Port = 3260
        """The portal's TCP port."""

        chap: Authentication | None = None
        """CHAP names and secrets; without it the client offers no authentication."""

        header_digest: Literal["none", "crc32c"] = "none"
        """Digest of every PDU's header; the client offers no other value."""

        data_digest: Literal["none", "crc32c"] = "none"
        """Digest of every data segment; the client offers no other value."""

        queue_depth: Annotated[int, Field(ge=1, le=1024)] | None = None
        """Commands in flight for the LUN; open-iscsi's default is 32."""

        max_recv_data_segment_length: _Length | None = None
        """MaxRecvDataSegmentLength that the client declares: the most data of a PDU to it."""

        max_burst_length: _Length | None = None
        """MaxBurstLength that the client offers: the most data of a sequence that an R2T requests. The
        smaller offer of client and target applies."""

        first_burst_length: _Length | None = None
        """FirstBurstLength that the client offers: the most data sent for a command without an R2T."""

        immediate_data: bool | None = None
        """Whether the client offers to send data with the command (ImmediateData)."""

        initial_r2t: bool | None = None
        """Whether the client requires an R2T before data that are not immediate (InitialR2T)."""

        more_paths: Items[Portal] = ()
        """More portals of the same target: one session through each, joined by the client's device mapper
        (dm-multipath). Wire cases do not run on such a target."""

        @model_validator(mode="after")
        def _bursts_fit(self) -> Self:
            first, most = self.first_burst_length, self.max_burst_length
            if first is not None and most is not None and first > most:
                raise ValueError("first_burst_length exceeds max_burst_length (RFC 7143, 13.14)")
            if first is not None and self.immediate_data is False and self.initial_r2t:
                raise ValueError(
                    "first_burst_length: without immediate data and with initial_r2t there is none"
                )
            return self

        @property
        def target_label(self) -> str:
            """Label of the target in messages."""
            return f"iscsi {self.iqn} lun {self.lun} at {self.address}"

    searched: ClassVar[Mapping[str, tuple[object, ...]]] = {"queue_depth": (8, 32, 128)}
    example: ClassVar[Mapping[str, Any]] = {
        "address": "array.example.net",
        "iqn": "iqn.2024-01.net.example:bench",
        "erase": "naa.600140512345678900000000000000aa",
    }

    capability_names = frozenset({"filesystem", "block", "scsi", "shared", "multipath", "iscsi-wire"})

    def capabilities(self, options: Iscsi.Options) -> frozenset[Capability]:
        """Return the capabilities of the raw LUN, or of the file system on it."""
        raw = set() if options.filesystem else {"scsi", "shared"}
        wire = set() if options.transport == "iser" else {"iscsi-wire"}
        return block_capabilities(options) | ({"multipath"} if options.more_paths else wire) | raw

    def needs(self, options: Iscsi.Options) -> ClientRequirements:
        """Return open-iscsi, the modules, and the portal's port (the first path's)."""
        joining, iser = bool(options.more_paths), options.transport == "iser"
        return ClientRequirements(
            tools=("iscsiadm", *(("dmsetup",) if joining else ()), *required_tools(options)),
            # Without udev nothing loads the disks' driver.
            modules=(
                *("ib_iser" if iser else "iscsi_tcp", "sd_mod"),
                *(("dm_multipath", "dm_round_robin") if joining else ()),
            ),
            packages="open-iscsi (Debian) or iscsi-initiator-utils" + (", dmsetup" if joining else ""),
            address=options.address,
            port=0 if iser else options.port,
            rdma=iser,
        )

    def discover(self, client: Host, address: str, *, deadline: float) -> Sequence[Mapping[str, Any]]:
        """Query the portal for its targets (SendTargets, RFC 7143, 3.3); keeps no record."""
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
        """Return the requested digests, lengths and queue depth."""
        return {
            "HeaderDigest": _DIGEST_KEYS[options.header_digest],
            "DataDigest": _DIGEST_KEYS[options.data_digest],
            **_offer(options),
            "queue_depth": options.queue_depth,
            "transport": options.transport if options.transport == "iser" else None,
        }

    def collect_diagnostics(self, client: Host, options: Iscsi.Options) -> Mapping[str, str]:
        """Collect the session's state, its statistics and the kernel's last messages."""
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
    """Return the name of the map of the LUN's paths; "" if there is one path."""
    if not options.more_paths:
        return ""
    return f"storagetest-{hashlib.sha256(f'{options.iqn} {options.lun}'.encode()).hexdigest()[:12]}"


def _offer(options: Iscsi.Options) -> dict[str, str | None]:
    """Return the keys of RFC 7143 that the options name, with their values; None: not named."""
    lengths = {
        "MaxRecvDataSegmentLength": options.max_recv_data_segment_length,
        "MaxBurstLength": options.max_burst_length,
        "FirstBurstLength": options.first_burst_length,
    }
    return {
        **{key: None if value is None else str(value) for key, value in lengths.items()},
        "ImmediateData": _YES_NO[options.immediate_data],
        "InitialR2T": _YES_NO[options.initial_r2t],
    }


def record_settings(options: Iscsi.Options) -> dict[str, str]:
    """Build the settings of the node record (iscsid.conf's names).

    One login attempt and short timers, because the deadline limits the wait. A session that has lost its
    target fails its I/O after the deadline, so that nothing hangs forever. With more paths it fails after
    :data:`PATH_LOST_SECONDS`, so that the I/O continues on another path.
    """
    if options.more_paths:
        replacement_timeout, noop_seconds = PATH_LOST_SECONDS, "2"
    else:
        replacement_timeout, noop_seconds = max(1, int(options.deadline)), "5"
    settings = {
        "node.startup": "manual",
        "node.session.scan": "manual",
        "node.session.initial_login_retry_max": "1",
        "node.session.timeo.replacement_timeout": str(replacement_timeout),
        "node.conn[0].timeo.login_timeout": str(max(2, min(10, int(options.deadline / 3)))),
        "node.conn[0].timeo.logout_timeout": "5",
        "node.conn[0].timeo.noop_out_interval": noop_seconds,
        "node.conn[0].timeo.noop_out_timeout": noop_seconds,
        "node.conn[0].iscsi.HeaderDigest": _DIGEST_KEYS[options.header_digest],
        "node.conn[0].iscsi.DataDigest": _DIGEST_KEYS[options.data_digest],
        "node.session.auth.authmethod": "CHAP" if options.chap else "None",
    }
    for key, value in _offer(options).items():
        if value is not None:
            of = "conn[0]" if key == "MaxRecvDataSegmentLength" else "session"
            settings[f"node.{of}.iscsi.{key}"] = value
    if options.max_burst_length is not None and options.first_burst_length is None:
        settings["node.session.iscsi.FirstBurstLength"] = str(min(_FIRST_BURST, options.max_burst_length))
    if options.queue_depth is not None:
        settings["node.session.queue_depth"] = str(options.queue_depth)
        commands = options.queue_depth + _COMMANDS_KEPT
        settings["node.session.cmds_max"] = str(max(128, 1 << (commands - 1).bit_length()))
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
    """Return the text of a node record in which ``settings`` replace the lines of the same names.

    Default authentication settings from the client's iscsid.conf are removed.
    """
    retained = []
    for line in record.splitlines():
        name = line.partition("=")[0].strip()
        if name not in settings and not name.startswith("node.session.auth.") and name != "# END RECORD":
            retained.append(line)
    added = [f"{name} = {value}" for name, value in settings.items()]
    return "\n".join([*retained, *added, "# END RECORD", ""])


def parse_negotiated(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the negotiated values of sysfs's ``attributes`` under the keys of RFC 7143."""
    named = {name: attributes[key] for key, name in _NEGOTIATED.items() if attributes.get(key)}
    return {name: _VALUE_NAMES.get(name, {}).get(value, value) for name, value in named.items()}


def parse_discovery(text: str) -> tuple[str, ...]:
    """Return the targets' names in SendTargets' output, lines ``ADDRESS:PORT,TPGT NAME``."""
    return tuple(sorted({line.split()[1] for line in text.splitlines() if len(line.split()) == 2}))


def error_from_output(
    done: Completed, options: Iscsi.Options, *, offered: tuple[str, ...] | None = None
) -> StoragetestError:
    """Return the error for iscsiadm's exit status (iscsiadm(8), EXIT STATUS).

    ``offered`` are the targets that a discovery on the portal returned (None: no successful discovery).
    """
    target = options.target_label
    output = " ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-2:])
    where = f"(iscsiadm on {done.host} exited {done.status}: {output})"
    if offered is not None and options.iqn not in offered:
        names = ", ".join(offered) or "none"
        return AttachError(f"{target}: the portal does not offer this target; it offers {names} {where}")
    if offered is not None:
        return _login_refused(options, where)
    match done.status:
        case 24:
            account = f"as {options.chap.username!r}" if options.chap else "without CHAP"
            return AttachError(
                f"{target}: the target refuses the login {account}: wrong CHAP name or secret, or the target "
                f"does not permit this initiator {where}"
            )
        case 4 | 8 | 11:
            return TargetDead(f"{target}: no response to the login {where}")
        case 18 | 20:
            return ClientLacks(
                f"{target}: iscsid is not running on {done.host}. Run `systemctl start iscsid` there {where}"
            )
        case 13:
            return ClientLacks(f"{target}: logging in requires root on {done.host} {where}")
    return _login_refused(options, where)


def _login_refused(options: Iscsi.Options, where: str) -> AttachError:
    digest = options.header_digest != "none" or options.data_digest != "none"
    return AttachError(
        f"{options.target_label}: the target refuses the login. Check that it has this IQN, permits this "
        f"initiator{', offers these digests' if digest else ''} and requires "
        f"{'' if options.chap else 'no '}CHAP {where}"
    )


def parse_query(text: str) -> dict[str, str]:
    """Parse the query's lines ``PATH:VALUE``; the name is the last part of PATH."""
    attributes: dict[str, str] = {}
    for line in text.splitlines():
        # A SCSI path contains colons (2:0:0:1/block/sda).
        path, _, value = line.rpartition(":")
        attributes.setdefault(path.rpartition("/")[2], value.strip())
    return attributes


def parse_disks(text: str) -> tuple[str, ...]:
    """Return the disks in the query's output, one for each path that has one."""
    return tuple(line.removeprefix("block:") for line in text.splitlines() if line.startswith("block:"))


def _script(script: str, options: Iscsi.Options, *more: str) -> list[str]:
    portals = " ".join(f"{path.address},{path.port}" for path in each_path(options))
    return ["bash", "-c", script, "storagetest-iscsi", options.iqn, portals, *more]


def _connect(options: Iscsi.Options, attaching: Attaching) -> tuple[str, Mapping[str, str]]:
    for path in each_path(options):
        _log_in(attaching, path, record_settings(options))
    attributes, disks = _find(attaching, options)
    if not options.more_paths:
        return disks[0], parse_negotiated(attributes)
    return _join_paths(attaching, options, disks), {**parse_negotiated(attributes), "paths": " ".join(disks)}


def _log_in(attaching: Attaching, options: Iscsi.Options, settings: Mapping[str, str]) -> None:
    bracketed = f"[{options.address}]" if ":" in options.address else options.address
    portal = f"{bracketed}:{options.port}"
    interface = ["iser"] if options.transport == "iser" else []  # open-iscsi's own (iscsiadm(8), iface)
    created = attaching.run(_script(NEW_RECORD, options, portal, *interface))
    if not created.ok:
        raise error_from_output(created, options)
    path, _, record = created.stdout.partition("\n")
    text = completed_record(record, settings)
    attaching.client.push(text.encode(), path, mode=0o600, deadline=attaching.deadline.remaining())
    bound = ["-I", *interface] if interface else []
    login = ["iscsiadm", "-m", "node", "-T", options.iqn, "-p", portal, *bound, "--login"]
    done = attaching.run(login)
    if not done.ok:
        raise _login_error(attaching, options, done, portal)


def _login_error(
    attaching: Attaching, options: Iscsi.Options, done: Completed, portal: str
) -> StoragetestError:
    """Return the login's error, after a discovery: iscsid retries refused logins and reports "timed out"."""
    if done.status not in _AMBIGUOUS_STATUSES:
        return error_from_output(done, options)
    discovery = ["iscsiadm", "-m", "discovery", "-t", "sendtargets", "-p", portal, "-o", "nonpersistent"]
    seconds = min(10.0, attaching.deadline.remaining())
    result = attaching.client.run(discovery, deadline=seconds, check=False, env=ATTACHING_ENV)
    return error_from_output(done, options, offered=parse_discovery(result.stdout) if result.ok else None)


def _find(attaching: Attaching, options: Iscsi.Options) -> tuple[dict[str, str], tuple[str, ...]]:
    """Scan for the LUN; return sysfs's attributes of the first session, and one disk per path."""
    lun, scan, paths = str(options.lun), "scan", len(each_path(options))
    attributes: dict[str, str] = {}
    disks: tuple[str, ...] = ()

    def ready() -> bool:
        nonlocal scan, attributes, disks
        query = _script(QUERY, options, lun, scan, " ".join(_NEGOTIATED))
        output = attaching.run(query, check=True).stdout
        scan = ""
        attributes, disks = parse_query(output), parse_disks(output)
        # A write to `scan` returns after the scan; the disk driver may still be attaching the disk.
        return len(disks) >= paths or ("session" in attributes and "lun" not in attributes)

    client = attaching.client.name
    wait_until(ready, attaching.deadline.remaining(), f"a disk for LUN {lun} of {options.iqn} on {client}")
    if "block" not in attributes:
        raise AttachError(f"{options.target_label}: logged in, but the target has no LUN {lun} for {client}")
    return attributes, disks


def _join_paths(attaching: Attaching, options: Iscsi.Options, disks: Sequence[str]) -> str:
    """Join the paths to one device; return its name under /dev."""
    argv = ["bash", "-c", JOIN_PATHS, "storagetest-join", map_name(options), *disks]
    done = attaching.run(argv)
    if not done.ok:
        paths = ", ".join(disks)
        raise AttachError(f"{options.target_label}: joining {paths} to one device failed: {done.describe()}")
    return f"mapper/{map_name(options)}"
