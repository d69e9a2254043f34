"""Old names of :mod:`storagetest.agent.testlib.tmpfiles`, accepted for one release."""

from storagetest.agent.testlib.tmpfiles import make_file as a_file
from storagetest.agent.testlib.tmpfiles import open_fd as opened
from storagetest.agent.testlib.tmpfiles import pattern_bytes as text_of
from storagetest.agent.testlib.tmpfiles import read_at
from storagetest.agent.testlib.tmpfiles import wait_clock_tick as tick

__all__ = ["a_file", "opened", "read_at", "text_of", "tick"]
