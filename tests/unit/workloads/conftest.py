import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from storagetest.hosts.local import LocalHost
from storagetest.protocols.base import Attachment, AttachmentKind

MIB = 1 << 20


@pytest.fixture
def client() -> Iterator[LocalHost]:
    with LocalHost("here") as host:
        yield host


@pytest.fixture
def directory(client: LocalHost, tmp_path: Path) -> Attachment:
    return Attachment(client, str(tmp_path), AttachmentKind.FILESYSTEM, 1 << 30)


@pytest.fixture
def device(client: LocalHost, tmp_path: Path) -> Attachment:
    """A file stands in for a device: 8 MiB, the last of which we watch."""
    path = tmp_path / "device"
    path.write_bytes(b"x" * 8 * MIB)
    return Attachment(client, str(path), AttachmentKind.BLOCK, 8 * MIB)


@pytest.fixture
def programs(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Make a PATH with the system's programs less one, and with scripts of our own."""

    def make(*, without: str = "fio", **scripts: str) -> Path:
        place = tmp_path_factory.mktemp("bin")
        for folder in ("/usr/bin", "/bin"):
            for program in Path(folder).iterdir():
                if program.name not in {without, *scripts} and not (place / program.name).is_symlink():
                    (place / program.name).symlink_to(program)
        for name, text in scripts.items():
            (place / name).write_text(f"#!/bin/sh\n{text}\n")
            (place / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(place))
        return place

    return make


@pytest.fixture
def small_fs(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Return a function that mounts a tmpfs(5) with the given options and returns its path."""
    with ExitStack() as stack:

        def mount(options: str) -> str:
            place = tmp_path / "small"
            place.mkdir()
            argv = ["mount", "-t", "tmpfs", "-o", options, "storagetest", str(place)]
            if subprocess.run(argv, check=False, capture_output=True).returncode:
                pytest.skip("only root can mount a small file system here")
            stack.callback(subprocess.run, ["umount", str(place)], check=True)
            return str(place)

        yield mount
