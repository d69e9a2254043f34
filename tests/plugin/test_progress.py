"""Progress as a user has it: on a terminal, in a log, under xdist, with -q, -v, -s, without colours."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_terminal import FakeTerminal

SLOW = """\
import time
from typing import Any, ClassVar

from storagetest.config.base import WorkloadOptions
from storagetest.measure.run import Sample
from storagetest.plugin.progress import render
from storagetest.workloads.base import Workload, register

render.FIRST = render.AGAIN = 0.5
render._LEAST_DURATION = render._TICK = 0.1

@register
class Slow(Workload["Slow.Options"]):
    "Takes its time."
    name = "slow"
    example: ClassVar[dict[str, Any]] = {}

    class Options(WorkloadOptions):
        "None."

    def measure(self, attachment, options, scale):
        time.sleep(scale.runtime)
        return Sample({"iops": 1000.0, "p99": 0.01}, scale.runtime, 100)
"""

SUITE = """\
import pytest

def test_before(): pass

def test_slow(measure):
    measure("slow")

def test_after(): pass
"""

TARGETS = """\
version: 1
clients: {{here: {{transport: local}}}}
targets:
  disk: {{protocol: local, path: {path}}}
  other: {{protocol: local, path: {path}, client: here}}
profiles: {{tiny: {{size: 1MiB, ramp: 0, runtime: 700ms, repeats: 2, max_repeats: 2, sample_interval: 0}}}}
"""

Run = Callable[..., str]


@pytest.fixture
def project(pytester: pytest.Pytester, tmp_path: Path) -> Path:
    pytester.makepyfile(test_suite=SUITE)
    pytester.path.joinpath("slow_workload.py").write_text(SLOW)
    pytester.path.joinpath("targets.yaml").write_text(TARGETS.format(path=tmp_path))
    return pytester.path


def command(*arguments: str) -> list[str]:
    plugins = ("-p", "slow_workload", "-p", "no:cacheprovider", "-p", "no:allure_pytest")
    return [sys.executable, "-m", "pytest", *plugins, "--st-profile", "tiny", *arguments]


def environment(project: Path, **more: str) -> dict[str, str]:
    gone = {"CI", "BUILD_NUMBER", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "PYTEST_ADDOPTS"}
    kept = {name: value for name, value in os.environ.items() if name not in gone}
    return {**kept, "PYTHONPATH": str(project), "COLUMNS": "80", "TERM": "xterm", **more}


@pytest.fixture
def on_a_terminal(project: Path) -> Run:
    """Run pytest on a pseudo-terminal; return all that it wrote there."""

    def run(*arguments: str, **env: str) -> str:
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            command(*arguments),
            cwd=project,
            env=environment(project, **env),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            chunks = []
            while True:
                try:
                    chunk = os.read(ours, 1 << 16)
                except OSError:  # EIO: nobody has the other end any more
                    break
                if not chunk:
                    break
                chunks.append(chunk)
        os.close(ours)
        text = b"".join(chunks).decode()
        assert process.returncode == 0, text
        return text

    return run


@pytest.fixture
def in_a_log(project: Path) -> Run:
    def run(*arguments: str, **env: str) -> str:
        done = subprocess.run(
            command(*arguments),
            check=False,
            cwd=project,
            env=environment(project, **env),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


STEP = re.compile(r"measure (\d) of 2, \d:\d\d of 0:0\d")
HEAD = re.compile(r"disk on here: slow, 0:0\d of about 0:0\d")


def seen(text: str) -> list[str]:
    terminal = FakeTerminal()
    terminal.write(text.replace("\r\n", "\n"))
    return terminal.shown


@pytest.mark.parametrize("arguments", [(), ("-q",), ("-v",), ("-n", "2")])
def test_a_terminal_shows_it_and_then_is_as_it_would_have_been(on_a_terminal, arguments):
    shown = on_a_terminal(*arguments)
    assert {match[1] for match in STEP.finditer(shown)} == {"1", "2"}
    assert HEAD.search(shown)
    plain = on_a_terminal(*arguments, "--st-progress=off")
    assert not STEP.search(plain)

    def alike(text: str) -> list[str]:
        lines = (re.sub(r"=+|\d+\.\d+s|gw\d|\[ *\d+%\]", "", line) for line in seen(text))
        return sorted(" ".join(line.split()) for line in lines)

    assert alike(shown) == alike(plain)


def test_without_colours_there_are_none(on_a_terminal):
    for said in (on_a_terminal(NO_COLOR="1"), on_a_terminal("--color=no")):
        assert STEP.search(said)
        assert not re.search(r"\x1b\[[\d;]*m", said)


@pytest.mark.parametrize(
    ("arguments", "env"),
    [((), {"TERM": "dumb"}), ((), {"CI": "true"}), (("-s",), {}), (("--st-progress=log",), {})],
)
def test_a_terminal_that_cannot_or_should_not_gets_a_log(on_a_terminal, arguments, env):
    said = on_a_terminal(*arguments, **env)
    assert STEP.search(said)
    assert not re.search(r"\x1b\[\d*[A-LN-Za-l]", said)  # no cursor is moved; colours are another matter


@pytest.mark.parametrize("arguments", [(), ("-v",), ("-n", "2"), ("-s",)])
def test_a_log_has_no_control_characters_and_whole_lines(in_a_log, arguments):
    said = in_a_log(*arguments)
    assert all(letter == "\n" or letter.isprintable() for letter in said)
    lines = said.splitlines()
    assert any(re.fullmatch(r"  (disk|other) on here: slow, 0:\d\d of about 0:\d\d", line) for line in lines)
    assert any(re.fullmatch(r"    measure \d of 2, 0:\d\d of 0:0\d(, last .*)?", line) for line in lines)
    assert max(len(line) for line in lines if line.startswith("  ")) <= 80
    assert "4 passed" in lines[-1]


@pytest.mark.parametrize("arguments", [("-q",), ("-q", "-n", "2"), ("--st-progress=off",)])
def test_a_log_that_is_to_be_short_gets_nothing(in_a_log, arguments):
    assert not STEP.search(in_a_log(*arguments))


def test_no_socket_is_left(on_a_terminal, tmp_path):
    on_a_terminal("-n", "2", TMPDIR=str(tmp_path))
    assert [entry for entry in tmp_path.iterdir() if entry.name.startswith("storagetest-")] == []
