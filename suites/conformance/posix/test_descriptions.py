"""Locks of open file descriptions: flock(2) and F_OFD_SETLK with several opens, dup(), fork() and close()."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import struct

import pytest

from storagetest.agent.testlib import call_in_subprocess, skip
from storagetest.agent.testlib.lock_sequence import FREE, LAST, READ, WRITE, put
from storagetest.agent.testlib.tmpfiles import make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem", "locks"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE", "PSX-FLOCK-EX-EX")),
]

STEPS = 100
"""Steps of a sequence (chosen)."""
F_OFD_GETLK, F_OFD_SETLK = 36, 37
"""<linux/fcntl.h>"""
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid (fcntl(2))."""


class Description:
    """An open file description: its descriptors, and what it holds in the model."""

    def __init__(self, path):
        self.descriptors = [os.open(path, os.O_RDWR)]
        self.kind = 0
        self.ranges = []

    def close(self):
        """Close every descriptor."""
        while self.descriptors:
            os.close(self.descriptors.pop())


class Descriptions:
    """Three open file descriptions of one file, and a seeded sequence of steps on them."""

    def __init__(self, path, seed, steps):
        self.path, self.steps = path, [*steps, self.dup, self.close, self.fork, self.reopen, self.bystander]
        self.random = random.Random(seed)  # noqa: S311  # a sequence, no secret
        self.opened = [Description(path) for _ in range(3)]
        self.log, self.forks = [], 0

    def run(self):
        """Make the steps, and close all descriptors."""
        for _ in range(STEPS):
            one = self.random.choice(self.opened)
            step = self.random.choice(self.steps)
            self.log.append(f"open {self.opened.index(one)}: {step.__name__}")
            step(one)
        for one in self.opened:
            one.close()

    def others(self, one):
        """Return the other descriptions."""
        return [other for other in self.opened if other is not one]

    def check(self, granted, expected, request):
        """Assert that a request has the result of the model."""
        assert granted == expected, (
            f"{request} is {'granted' if granted else 'refused'}; held are "
            f"{[one.kind or one.ranges for one in self.opened]}, after {self.log[-7:]}"
        )

    # Steps that leave the locks of every description as they are, but for the last close.

    def dup(self, one):
        """Duplicate a descriptor."""
        if len(one.descriptors) < 3:
            one.descriptors.append(os.dup(one.descriptors[0]))

    def close(self, one):
        """Close one of several duplicates."""
        if len(one.descriptors) > 1:
            os.close(one.descriptors.pop(self.random.randrange(len(one.descriptors))))

    def fork(self, one):
        """Fork a child, which closes its copy of a descriptor and ends: twice, because it takes long."""
        if self.forks < 2:
            self.forks += 1
            call_in_subprocess(os.close, one.descriptors[0])

    def reopen(self, one):
        """Close the last descriptor, and open the file again."""
        one.close()
        self.opened[self.opened.index(one)] = Description(self.path)

    def bystander(self, _):
        """Open, read and close the file."""
        with open_fd(self.path) as descriptor:
            os.pread(descriptor, 1, 0)


def flock(descriptor, kind):
    """Request a lock; return whether it is granted at once."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):  # PSX-FLOCK-EX-EX tests which
            raise
        return False
    return True


@pytest.mark.case(
    "PSX-FLOCK-DESCRIPTIONS",
    section="flock(2): DESCRIPTION",
    kills=("flock-unlock-frees-shared", "flock-lost-at-dup-close"),
)
def test_flock_is_of_the_open_file_description(client_dir):
    """A lock is shared by duplicates, refused to other opens, and ends with LOCK_UN or the last close."""

    def lock(one):
        kind = sequence.random.choice((fcntl.LOCK_SH, fcntl.LOCK_EX))
        held = [other.kind for other in sequence.others(one)]
        expected = fcntl.LOCK_EX not in held and (kind == fcntl.LOCK_SH or not any(held))
        granted = flock(sequence.random.choice(one.descriptors), kind)
        sequence.check(granted, expected, "LOCK_SH" if kind == fcntl.LOCK_SH else "LOCK_EX")
        if granted:
            one.kind = kind
        else:
            unlock(one)  # flock(2): a refused conversion may lose the lock

    def unlock(one):
        fcntl.flock(sequence.random.choice(one.descriptors), fcntl.LOCK_UN)
        one.kind = 0

    sequence = Descriptions(make_file(client_dir / "f", b"data"), 5, [lock, lock, lock, unlock])
    sequence.run()


def ofd(descriptor, command, kind, start, length):
    """Make a request of open file description locks; return the answer's type, or None if it is refused."""
    try:
        answer = fcntl.fcntl(descriptor, command, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        if error.errno == errno.EINVAL:
            skip("no open file description locks (fcntl(2): Linux 3.15)")
        raise
    return _FLOCK.unpack(answer)[0]


@pytest.mark.case(
    "PSX-LOCK-OFD-DESCRIPTIONS",
    section="POSIX.1-2024 fcntl(): F_OFD_SETLK, F_OFD_GETLK",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-OFD"),
    kills=("ofd-converts-one-way", "getlk-far-free"),
)
def test_locks_of_open_file_descriptions(client_dir):
    """Ranges are locked, converted and unlocked in part for the description, until its last close."""

    def range_of():
        start = sequence.random.choice((0, 5, 10, 50, 1 << 31, (1 << 32) + 5))
        length = sequence.random.choice((1, 5, 10, 40, 0))
        return start, length, start + length - 1 if length else LAST

    def conflicts(one, kind, start, end):
        held = [held for other in sequence.others(one) for held in other.ranges]
        return any(
            first <= end and last >= start and WRITE in (kind, old)
            for first, last, old in held
            if kind != FREE
        )

    def lock(one, kind=None):
        (start, length, end), kind = (
            range_of(),
            sequence.random.choice((READ, WRITE)) if kind is None else kind,
        )
        granted = ofd(sequence.random.choice(one.descriptors), F_OFD_SETLK, kind, start, length) is not None
        expected = not conflicts(one, kind, start, end)
        sequence.check(granted, expected, f"a lock of type {kind} of {length} bytes at {start}")
        if granted:
            one.ranges = put(one.ranges, start, end, kind)

    def unlock(one):
        lock(one, FREE)

    def query(one):
        (start, length, end), kind = range_of(), sequence.random.choice((READ, WRITE))
        found = ofd(sequence.random.choice(one.descriptors), F_OFD_GETLK, kind, start, length)
        expected = not conflicts(one, kind, start, end)
        sequence.check(found == FREE, expected, f"F_OFD_GETLK of type {kind} of {length} bytes at {start}")

    steps = [lock, lock, lock, unlock, query, query]
    sequence = Descriptions(make_file(client_dir / "f", bytes(200)), 6, steps)
    sequence.run()
