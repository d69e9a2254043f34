"""NFS-Ganesha (Debian's packages nfs-ganesha and nfs-ganesha-vfs) on loopback: NFS 3 and 4, MOUNT and NLM.

It runs in a mount namespace of its own, in which ``/run`` has three exports, each a tmpfs, and the socket of
a port mapper of ours: without one it does not start. The machine's name there is localhost, because the
server asks DNS for it, which takes 10 s where no name server answers. For the locks of NFSv3 the server needs
a status monitor at localhost: there that is the address of ours, which needs root. It uses no service of the
machine, and leaves nothing. Its file system calls need root; another user needs ``sudo`` without a password.

With a ``grace`` period it can be restarted by a command. A shell, process 1 of a PID namespace, starts it
again after it was killed; the exports remain, and so do the ports.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rpcbind_server import port_mapper

from storagetest.lab.subprocess_util import die_with_parent
from storagetest.polling import wait_until

EXPORT, READ_ONLY, SQUASHED = "/run/export", "/run/readonly", "/run/squashed"
_PLUGINS = "/usr/lib/x86_64-linux-gnu/ganesha"
_STARTED, _STOPPED = 60.0, 5.0
_RESTARTS = """
mkfifo -m 666 {state}/restart {state}/restarted
while :; do
    {server} &
    read line <{state}/restart
    kill -KILL $!
    wait $! || :
    echo killed >{state}/restarted
done
"""
_RESTART = 'echo again >"$0/restart" && read line <"$0/restarted"'
_CONFIGURATION = """
NFS_CORE_PARAM {{
    NFS_Port = {nfs}; MNT_Port = {mount}; NLM_Port = {lock}; Rquota_Port = {quota};
    Bind_addr = 127.0.0.1; Protocols = 3, 4; Enable_NLM = true; Enable_RQUOTA = false; Enable_UDP = false;
    NSM_Use_Caller_Name = false; mount_path_pseudo = false; Plugins_Dir = "{plugins}";
    Nb_Worker = 8;
}}
NFS_KRB5 {{ {kerberos} }}
NFSv4 {{
    RecoveryRoot = "{state}"; Graceless = {graceless}; Lease_Lifetime = {lease}; Grace_Period = {grace};
    Minor_Versions = 0, 1, 2;
}}
EXPORT_DEFAULTS {{ Access_Type = RW; Squash = None; SecType = {flavors}; Transports = TCP; }}
EXPORT {{
    Export_Id = 1; Path = /run/export; Pseudo = /run/export; Filesystem_id = 1.1; Protocols = 3, 4;
    FSAL {{ Name = VFS; }}
}}
EXPORT {{
    Export_Id = 2; Path = /run/readonly; Pseudo = /run/readonly; Filesystem_id = 2.1; Protocols = 3, 4;
    Access_Type = RO; FSAL {{ Name = VFS; }}
}}
EXPORT {{
    Export_Id = 3; Path = /run/squashed; Pseudo = /run/squashed; Filesystem_id = 3.1; Protocols = 3, 4;
    Squash = Root; FSAL {{ Name = VFS; }}
}}
LOG {{ Default_Log_Level = EVENT; }}
"""


@dataclass(frozen=True, slots=True)
class Ganesha:
    """A server that runs: the ports of its programs, all on 127.0.0.1, and its log."""

    nfs: int
    mount: int
    lock: int
    log: Path
    status: tuple[str, int]
    """Address and port of its status monitor (NSM); port 0 if there is none."""
    restart: tuple[str, ...] = ()
    """The command that kills it and starts it again, or () if it was started without a ``grace`` period."""


def is_installed() -> bool:
    """Whether the server and its file system are installed."""
    return shutil.which("ganesha.nfsd") is not None and Path(_PLUGINS, "libfsalvfs.so").exists()


@contextlib.contextmanager
def ganesha(
    *, lease: int = 10, grace: int = 0, keytab: Path | None = None, flavors: str = "sys, none"
) -> Iterator[Ganesha]:
    """Start a server with an empty export, and stop it at the end. ``lease`` is NFSv4's, in seconds.

    ``grace`` is the grace period in seconds, in which the server is at first; 0 for none.

    With a ``keytab`` it has Kerberos, whose realm is that of the environment (:mod:`kdc`).
    """
    with tempfile.TemporaryDirectory(prefix="ganesha-") as name, contextlib.ExitStack() as stack:
        state = Path(name)
        run, ports = state / "run", _free_ports(4)
        for path in (state / "recovery", run, run / "export", run / "readonly", run / "squashed"):
            path.mkdir()
        text = _CONFIGURATION.format(
            nfs=ports[0], mount=ports[1], lock=ports[2], quota=ports[3],
            plugins=_PLUGINS, state=state / "recovery", lease=lease, flavors=flavors,
            graceless=str(not grace).lower(), grace=grace or lease, kerberos=_kerberos(state, keytab),
        )  # fmt: skip
        (state / "ganesha.conf").write_text(text)
        hosts = state / "hosts"
        mapper = stack.enter_context(port_mapper(run / "rpcbind.sock", ports[2]))
        hosts.write_text(f"{mapper.address or '127.0.0.1'} localhost\n")
        restart = ("sh", "-c", _RESTART, name) if grace else ()
        made = Ganesha(
            ports[0], ports[1], ports[2], state / "ganesha.log", (mapper.address, mapper.status), restart
        )
        server = f"ganesha.nfsd -F -f {state}/ganesha.conf -L {made.log} -p {state}/pid"
        mounts = (
            f"mount --bind {hosts} /etc/hosts; mount --bind {run} /run; "
            f"mount -t tmpfs export {EXPORT}; mount -t tmpfs readonly {READ_ONLY}; "
            f"mount -t tmpfs squashed {SQUASHED}"
        )
        run_server = _RESTARTS.format(state=state, server=server) if grace else f"exec {server}"
        script = f"set -e; hostname localhost; {mounts}; {run_server}"
        processes = ["--pid", "--fork", "--kill-child", "--mount-proc"] if grace else []
        as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        process = subprocess.Popen(
            [*as_root, "unshare", "--mount", "--uts", *processes, "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent(),  # noqa: PLW1509  # safe with threads, see there
        )  # fmt: skip
        try:
            wait_until(lambda: _is_ready(process, made), _STARTED, "NFS-Ganesha on loopback", interval=0.05)
            yield made
        finally:
            process.terminate()
            try:
                process.wait(_STOPPED)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_ready(process: subprocess.Popen[bytes], made: Ganesha) -> bool:
    if process.poll() is not None:
        log = made.log.read_text() if made.log.exists() else ""
        raise AssertionError(f"NFS-Ganesha ended with {process.returncode}: {log[-1500:]}")
    with contextlib.suppress(OSError):
        for port in (made.nfs, made.mount, made.lock):
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    return False


def _kerberos(state: Path, keytab: Path | None) -> str:
    if keytab is None:
        return "Active_krb5 = false;"
    return f'Active_krb5 = true; PrincipalName = "nfs"; KeytabPath = "{keytab}"; CCacheDir = "{state}";'


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports
