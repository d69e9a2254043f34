"""Each form of utimensat(), chown() and chmod() marks ctime, of each kind of file."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from storagetest.agent.testlib import CannotRun
from storagetest.agent.testlib.libc import UTIME_NOW, UTIME_OMIT, utimensat
from storagetest.agent.testlib.tmpfiles import fifo, make_file, open_fd, wait_clock_tick

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

SET, OTHER = (1_000_000_007, 0), (1_100_000_007, 0)
"""Two times, in seconds and nanoseconds (chosen)."""
NOW, OMIT = (0, UTIME_NOW), (0, UTIME_OMIT)
FORMS = {
    "atime alone": (SET, OMIT),
    "mtime alone": (OMIT, OTHER),
    "both": (OTHER, SET),
    "atime alone, the current time": (NOW, OMIT),
    "mtime alone, the current time": (OMIT, NOW),
    "both, the current time": (NOW, NOW),
    "both, one the current time": (SET, NOW),
}
"""Forms of utimensat(): atime and mtime."""


@contextmanager
def one_of_each_kind(client_dir):
    """Make a file of each kind; yield a path of each: of the removed one it leads through its descriptor."""
    paths = {"a file": make_file(client_dir / "f", b"data"), "a directory": client_dir / "d"}
    (client_dir / "d").mkdir()
    try:
        fifo(client_dir / "p")
        paths["a FIFO"] = client_dir / "p"
    except (CannotRun, OSError):
        pass  # PSX-MKFIFO-MAKES tests whether that is legal
    held = make_file(client_dir / "held", b"data")
    with open_fd(held, os.O_RDWR) as descriptor:
        os.unlink(held)
        yield {**paths, "an open file without a name": Path(f"/proc/self/fd/{descriptor}")}


def assert_marked(paths, before, what):
    """Assert that ctime of each file is later than it was."""
    for kind, path in paths.items():
        was, now = before[kind].st_ctime_ns, os.stat(path).st_ctime_ns
        assert now > was, f"{what} of {kind} leaves ctime at {now} ns; required: it is marked for update"


@pytest.mark.case(
    "PSX-STAMPED-UTIMENS",
    section="POSIX.1-2024 utimensat(): DESCRIPTION",
    kills=("utimens-atime-alone-keeps-ctime", "utimens-mtime-alone-keeps-ctime", "utimens-now-keeps-ctime"),
)
def test_each_form_of_utimensat_marks_ctime(client_dir):
    """Upon success ctime is marked for update, whichever of the two times is set, and how."""
    with one_of_each_kind(client_dir) as paths:
        for form, given in FORMS.items():
            before = {kind: os.stat(path) for kind, path in paths.items()}
            wait_clock_tick(client_dir)
            for path in paths.values():
                utimensat(path, *given)
            assert_marked(paths, before, f"utimensat() with {form}")


@pytest.mark.case(
    "PSX-STAMPED-OWNER",
    section="POSIX.1-2024 chown(), chmod(): DESCRIPTION",
    kills=("chgrp-alone-keeps-ctime", "chown-of-user-alone-keeps-ctime", "chmod-of-fifo-keeps-ctime"),
)
def test_each_form_of_chown_and_chmod_marks_ctime(client_dir):
    """Upon success ctime is marked for update, if the user, the group, both or the mode are changed."""
    calls = {
        "chown() of the group alone": lambda path: os.chown(path, -1, 4242),
        "chown() of the user alone": lambda path: os.chown(path, 4243, -1),
        "chown() of both": lambda path: os.chown(path, 4244, 4244),
        "chmod()": lambda path: os.chmod(path, 0o700),
        "chmod() to the same mode": lambda path: os.chmod(path, 0o700),
    }
    with one_of_each_kind(client_dir) as paths:
        for what, call in calls.items():
            before = {kind: os.stat(path) for kind, path in paths.items()}
            wait_clock_tick(client_dir)
            for path in paths.values():
                try:
                    call(path)
                except OSError as error:
                    if error.errno in (errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP) and "chown" in what:
                        raise CannotRun(f"a file cannot be given away here: {error.strerror}") from None
                    raise
            assert_marked(paths, before, what)
