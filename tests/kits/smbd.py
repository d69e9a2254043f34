"""Samba's smbd as a process on loopback, with a configuration, a password database and a share of its own."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from storagetest.lab.subprocess_util import die_with_parent
from storagetest.polling import wait_until

PASSWORD = "wire-Pass-1"
SHARE, SEALED = "files", "sealed"

_CONF = """
[global]
    workgroup = STORAGETEST
    server role = standalone server
    smb ports = {port}
    interfaces = lo
    bind interfaces only = yes
    disable netbios = yes
    load printers = no
    printcap name = /dev/null
    passdb backend = tdbsam:{where}/private/passdb.tdb
    private dir = {where}/private
    lock directory = {where}/lock
    state directory = {where}/state
    cache directory = {where}/cache
    pid directory = {where}/pid
    ncalrpc dir = {where}/ncalrpc
    log file = {where}/log.smbd
    log level = 1
    smbd profiling level = count
    server min protocol = SMB2_02
    server signing = {signing}
    server multi channel support = yes
    map to guest = never
    kernel oplocks = no
    kernel share modes = no
    posix locking = no
    smb2 leases = yes
    ea support = yes
    store dos attributes = yes
    vfs objects = streams_xattr
    usershare path =

[{share}]
    path = {where}/{share}
    read only = no
    durable handles = yes

[{sealed}]
    path = {where}/{sealed}
    read only = no
    smb encrypt = required
"""

_KERBEROS = """
    realm = {realm}
    kerberos method = dedicated keytab
    dedicated keytab file = {keytab}
"""


@dataclass(frozen=True, slots=True)
class Smbd:
    """A server that runs: its address, share and account, the share's directory and the server's log."""

    address: str
    port: int
    username: str
    password: str
    path: Path
    log: Path

    def target(self, **more: object) -> dict[str, object]:
        """Return the server as a target of a targets file."""
        return {
            "protocol": "smb", "address": self.address, "port": self.port, "share": SHARE,
            "username": self.username, "password": self.password, **more,
        }  # fmt: skip


def is_installed() -> bool:
    return shutil.which("smbd", path=_path()) is not None


def version() -> str:
    """Return the version of the installed smbd."""
    shown = subprocess.run(
        ["smbd", "--version"], env=os.environ | {"PATH": _path()}, capture_output=True, text=True, check=True,
        timeout=30,
    )  # fmt: skip
    return shown.stdout.split()[1]


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def account() -> pwd.struct_passwd:
    """The user of this process; for root, that of id 65534, because access checks do not concern root."""
    return pwd.getpwuid(os.getuid() or 65534)


@contextlib.contextmanager
def smbd(
    *,
    signing: str = "auto",
    realm: str = "",
    keytab: Path | None = None,
    guests: bool = False,
    more: str = "",
) -> Iterator[Smbd]:
    """Run smbd until the end of the context, with Kerberos if it has a keytab; remove all its files.

    With ``guests``, unknown accounts are logged on as guests, who may use the share. ``more`` has further
    lines of the section [global].
    """
    user = account()
    with tempfile.TemporaryDirectory(prefix="smbd-") as name:
        where = Path(name)
        where.chmod(0o755)
        for directory in ("private", "lock", "state", "cache", "pid", "ncalrpc", SHARE, SEALED):
            (where / directory).mkdir(mode=0o755)
        for share in (SHARE, SEALED):
            os.chown(where / share, user.pw_uid, user.pw_gid)
        port = _free_port()
        conf = where / "smb.conf"
        text = _CONF.format(where=where, port=port, signing=signing, share=SHARE, sealed=SEALED)
        if keytab is not None:
            text = text.replace("[global]\n", "[global]\n" + _KERBEROS.format(realm=realm, keytab=keytab))
        text = text.replace("[global]\n", f"[global]\n{more}\n")
        if guests:
            text = text.replace(
                "map to guest = never", f"map to guest = bad user\n    guest account = {user.pw_name}"
            )
            text = text.replace("durable handles = yes", "durable handles = yes\n    guest ok = yes")
        conf.write_text(text)
        environment = os.environ | {"PATH": _path(), "RES_OPTIONS": "timeout:1 attempts:1"}
        subprocess.run(
            ["smbpasswd", "-c", str(conf), "-a", "-s", user.pw_name], input=f"{PASSWORD}\n{PASSWORD}\n",
            env=environment, text=True, check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        with (where / "output").open("wb") as output:
            process = subprocess.Popen(
                [*_with_a_known_name(), "smbd", "--foreground", "--no-process-group", "-s", str(conf)],
                env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509  # safe with threads, see there
            )  # fmt: skip
            try:
                wait_until(lambda: process.poll() is not None or _listens(port), 30, "smbd to listen")
                assert process.poll() is None, (where / "log.smbd").read_text()[-2000:]
                yield Smbd("127.0.0.1", port, user.pw_name, PASSWORD, where / SHARE, where / "log.smbd")
            finally:
                process.terminate()  # smbd ends its children
                process.wait(timeout=30)
                _end_services(conf)


def _end_services(conf: Path) -> None:
    """End the services of named pipes: smbd starts them in sessions of their own, and leaves them."""
    mine = f"--configfile={conf}".encode()

    def left() -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mine in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def ended() -> bool:
        for pid in (pids := left()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    wait_until(ended, 10, "the end of smbd's services of named pipes")


def _with_a_known_name() -> list[str]:
    """What runs a command in which the machine is called localhost; without root, nothing.

    Every connection's smbd asks DNS for the machine's name, which takes 10 s where no name server answers.
    """
    if os.getuid():
        return []
    return ["unshare", "--uts", "sh", "-c", 'hostname localhost && exec "$@"', "sh"]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
