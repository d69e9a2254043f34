"""Progress on a terminal and in a log: with xdist, -q, -v, -s, without colours.

pytest runs in this process; its stdout is a pseudo-terminal or a file.
"""

import os
import pty
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import TextIO

import pytest
from fake_terminal import FakeTerminal

from storagetest.plugin.progress import render

SUITE = """\
def test_before(): pass

def test_slow(measure): measure("fake-metrics")

def test_after(): pass
"""
PROFILES = """\
profiles:
  tiny: {size: 1MiB, ramp: 0, runtime: 400ms, repeats: 2, max_repeats: 2, sample_interval: 0}
"""
UNSET = ("CI", "BUILD_NUMBER", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "PYTEST_ADDOPTS")

Run = Callable[..., str]


@pytest.fixture
def run_with_output(run_with_fake_metrics, pytester, tmp_path) -> Callable[..., None]:
    """Return a function that runs pytest with ``output`` as stdout and stderr. It leaves no socket."""

    def run(output: TextIO, *arguments: str, **env: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name in UNSET:
                patch.delenv(name, raising=False)
            for name, value in {"COLUMNS": "80", "TERM": "xterm", **env}.items():
                patch.setenv(name, value)
            for name, seconds in (("FIRST", 0.3), ("AGAIN", 0.3), ("_LEAST_DURATION", 0.05), ("_TICK", 0.05)):
                patch.setattr(render, name, seconds)
            patch.setattr(sys, "stdout", output)
            patch.setattr(sys, "stderr", output)
            patch.setattr(tempfile, "tempdir", str(tmp_path))  # of the socket for workers
            patch.setattr(pytester, "runpytest_inprocess", pytester.inline_run)  # it does not capture stdout
            assert run_with_fake_metrics(*arguments, suite=SUITE, profiles=PROFILES).ret == 0
        assert not list(tmp_path.glob("storagetest-*")), "a socket is left"

    return run


@pytest.fixture
def run_on_terminal(run_with_output) -> Run:
    """Return a function that runs pytest on a pseudo-terminal and returns what it wrote there."""

    def run(*arguments: str, **env: str) -> str:
        controller, terminal = pty.openpty()
        chunks: list[bytes] = []

        def read() -> None:
            try:
                while chunk := os.read(controller, 1 << 16):
                    chunks.append(chunk)
            except OSError:  # EIO: the other end is closed
                pass

        reader = threading.Thread(target=read)
        reader.start()
        try:
            with os.fdopen(terminal, "w", buffering=1) as output:
                run_with_output(output, *arguments, **env)
        finally:
            reader.join(60)
            os.close(controller)
        return b"".join(chunks).decode()

    return run


@pytest.fixture
def run_in_log(run_with_output, tmp_path) -> Run:
    """Return a function that runs pytest with its output in a file, and returns that."""

    def run(*arguments: str) -> str:
        with (tmp_path / "log").open("w") as output:
            run_with_output(output, *arguments)
        return (tmp_path / "log").read_text()

    return run


STEP = re.compile(r"measure (\d) of 2, \d:\d\d of 0:0\d")
HEAD = re.compile(r"disk on here: fake-metrics, 0:0\d of about 0:0\d")


def shown_on_terminal(text: str) -> list[str]:
    """Return the lines that a terminal shows after ``text``."""
    terminal = FakeTerminal()
    terminal.write(text.replace("\r\n", "\n"))
    return terminal.shown


@pytest.mark.parametrize("arguments", [(), ("-q",), ("-v",), ("-n", "2")])
def test_a_terminal_shows_progress_and_at_the_end_none(run_on_terminal, arguments):
    output = run_on_terminal(*arguments)
    assert {match[1] for match in STEP.finditer(output)} == {"1", "2"}
    assert HEAD.search(output)
    without_progress = run_on_terminal(*arguments, "--st-progress=off")
    assert not STEP.search(without_progress)

    def sorted_lines(text: str) -> list[str]:
        lines = (
            re.sub(r"=+|\d+\.\d+s( \(\d:\d\d:\d\d\))?|gw\d|\[ *\d+%\]", "", line)
            for line in shown_on_terminal(text)
        )
        return sorted(" ".join(line.split()) for line in lines)

    assert sorted_lines(output) == sorted_lines(without_progress)


def test_without_colours_the_output_contains_none(run_on_terminal):
    for output in (run_on_terminal(NO_COLOR="1"), run_on_terminal("--color=no")):
        assert STEP.search(output)
        assert not re.search(r"\x1b\[[\d;]*m", output)


@pytest.mark.parametrize(
    ("arguments", "env"),
    [((), {"TERM": "dumb"}), ((), {"CI": "true"}), (("-s",), {}), (("--st-progress=log",), {})],
)
def test_a_terminal_without_cursor_control_gets_a_log(run_on_terminal, arguments, env):
    output = run_on_terminal(*arguments, **env)
    assert STEP.search(output)
    assert not re.search(r"\x1b\[\d*[A-LN-Za-l]", output)  # cursor movements, not colours


@pytest.mark.parametrize("arguments", [(), ("-v",), ("-n", "2"), ("-s",)])
def test_a_log_has_whole_lines_and_no_control_characters(run_in_log, arguments):
    output = run_in_log(*arguments)
    assert all(letter == "\n" or letter.isprintable() for letter in output)
    lines = output.splitlines()
    assert any(
        re.fullmatch(r"  (disk|other) on here: fake-metrics, 0:\d\d of about 0:\d\d", line) for line in lines
    )
    assert any(re.fullmatch(r"    measure \d of 2, 0:\d\d of 0:0\d(, last .*)?", line) for line in lines)
    progress = [line for line in lines if re.match(r" +(disk|other|measure)\b", line)]
    assert [line for line in progress if len(line) > 80] == []
    assert "4 passed" in lines[-1]


@pytest.mark.parametrize("arguments", [("-q",), ("-q", "-n", "2"), ("--st-progress=off",)])
def test_a_short_log_contains_no_progress(run_in_log, arguments):
    assert not STEP.search(run_in_log(*arguments))
