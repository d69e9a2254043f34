"""A case that makes a file of each kind and looks at nothing, for what is judged after every case."""

import os
import socket
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs("filesystem"), pytest.mark.case(level="MUST")]


@pytest.mark.case("LEFT", section="none", no_mutant_reason="it looks at nothing")
def test_files_are_made(client_dir: Path) -> None:
    (client_dir / "below").mkdir()
    for name in ("file", "below/other"):
        descriptor = os.open(client_dir / name, os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, b"data of a file")
        os.setxattr(descriptor, "user.kept", b"value")
        os.close(descriptor)
    os.link(client_dir / "file", client_dir / "below" / "second name")
    (client_dir / "link").symlink_to("file")
    os.mkfifo(client_dir / "fifo")
    os.truncate(client_dir / "below" / "other", 1 << 40)
    with socket.socket(socket.AF_UNIX) as one:
        os.chdir(client_dir)
        one.bind("socket")
        os.chdir("/")
