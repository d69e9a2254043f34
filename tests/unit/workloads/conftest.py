from __future__ import annotations

from collections.abc import Callable, Iterator
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
    """Make a PATH with the system's programs less fio, and with scripts of our own."""

    def make(**scripts: str) -> Path:
        place = tmp_path_factory.mktemp("bin")
        for folder in ("/usr/bin", "/bin"):
            for program in Path(folder).iterdir():
                if program.name != "fio" and not (place / program.name).is_symlink():
                    (place / program.name).symlink_to(program)
        for name, text in scripts.items():
            (place / name).write_text(f"#!/bin/sh\n{text}\n")
            (place / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(place))
        return place

    return make
