"""I/O modes: how a program opens a file and submits I/O determines what it waits for.

Direct I/O goes past the client's page cache, buffered I/O through it, as most programs do. O_SYNC and
O_DSYNC have every write on stable storage before it returns. With mmap pages are loaded and stored to: the
kernel reads what faults, and writes back when it likes.
"""

import pytest

MODES = {
    "direct-libaio": {"direct": True, "engine": "libaio", "queue_depth": 8},
    "direct-io_uring": {"direct": True, "engine": "io_uring", "queue_depth": 8},
    "direct-psync": {"direct": True, "engine": "psync", "queue_depth": 1},
    "direct-libaio-dsync": {"direct": True, "engine": "libaio", "queue_depth": 8, "sync": "dsync"},
    "direct-psync-sync": {"direct": True, "engine": "psync", "queue_depth": 1, "sync": "sync"},
    "buffered": {"direct": False, "engine": "psync", "queue_depth": 1},
    "buffered-sync": {"direct": False, "engine": "psync", "queue_depth": 1, "sync": "sync"},
    "buffered-dsync": {"direct": False, "engine": "psync", "queue_depth": 1, "sync": "dsync"},
    "buffered-io_uring": {"direct": False, "engine": "io_uring", "queue_depth": 8},
    "mmap": {"direct": False, "engine": "mmap", "queue_depth": 1},
}


@pytest.mark.parametrize("mode", MODES)
def test_io_mode(measure, mode):
    """Random reads and overwrites meet their gates in each mode; an engine that a client lacks is a skip."""
    measure("random-mixed", **MODES[mode])
