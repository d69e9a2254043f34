"""What is said of a measurement under way: the words, the screen, the log, and who gets which."""

from __future__ import annotations

import argparse
import time
from types import SimpleNamespace

import pytest
from _pytest._io import TerminalWriter
from fake_terminal import FakeTerminal

from storagetest.measure.run import METRICS
from storagetest.plugin.progress import render
from storagetest.plugin.progress.model import ProgressState, clock, message, waiting
from storagetest.plugin.progress.render import ProgressDisplay, how
from storagetest.plugin.progress.terminal_overlay import TerminalOverlay
from storagetest.plugin.progress.xdist_channel import ProgressListener, sender
from storagetest.runner import CaseInfo, MeasurementPhase, ProgressEvent
from storagetest.runner.throughput_watch import Throughput

CASE = CaseInfo("test_x", "sequential", "nas", "nas-v4.2-nconnect4", "nfs", "load1", "standard")
MIB = 1 << 20


def told(phase: MeasurementPhase, elapsed: float, **more) -> dict:
    return message(ProgressEvent(CASE, phase, elapsed, title="sequential read 1MiB", **more))


def test_a_repeat_is_told_with_its_time_its_rate_and_the_whole_case():
    now = ProgressState()
    now.take(told(MeasurementPhase.FILL, 0.0), at=100.0)
    assert now.lines(100, at=112.4) == [
        "  nas-v4.2-nconnect4 on load1: sequential read 1MiB, 0:12",
        "    fill, 0:12",
    ]
    now.take(told(MeasurementPhase.MEASURE, 20.0, repeat=1, of=3, expected=35.0), at=120.0)
    now.take(told(MeasurementPhase.MEASURE, 56.0, repeat=2, of=3, expected=35.0), at=156.0)
    now.take(
        told(
            MeasurementPhase.MEASURE,
            58.0,
            repeat=2,
            of=3,
            expected=35.0,
            throughput=Throughput(50 * MIB, 0, 2, "x"),
        ),
        at=158.0,
    )
    assert now.lines(100, at=159.0) == [
        "  nas-v4.2-nconnect4 on load1: sequential read 1MiB, 0:59 of about 2:08",  # 56 + 2 repeats of 36 s
        "    measure 2 of 3, 0:03 of 0:35, reading 50.0 MiB/s",
    ]


def test_a_rate_that_is_old_is_not_shown_and_one_of_nothing_says_so():
    now = ProgressState()
    now.take(told(MeasurementPhase.MEASURE, 0.0, repeat=1, of=1, expected=35.0), at=0.0)
    now.take(
        told(
            MeasurementPhase.MEASURE, 2.0, repeat=1, of=1, expected=35.0, throughput=Throughput(0, 0, 2, "x")
        ),
        at=2.0,
    )
    assert now.lines(100, at=3.0)[1].endswith(", no data moves")
    assert now.lines(100, at=9.0)[1].endswith("0:09 of 0:35")
    both = Throughput(3 * MIB, 1536, 2, "x")  # 1.5 KiB/s are nothing beside it
    now.take(told(MeasurementPhase.MEASURE, 9.0, repeat=1, of=1, expected=35.0, throughput=both), at=9.0)
    assert now.lines(100, at=9.0)[1].endswith(", reading 3.00 MiB/s")


def test_a_rate_belongs_to_its_phase_only():
    now = ProgressState()
    now.take(told(MeasurementPhase.FILL, 0.0), at=0.0)
    now.take(told(MeasurementPhase.FILL, 2.0, throughput=Throughput(0, 80 * MIB, 2, "x")), at=2.0)
    assert "writing 80.0 MiB/s" in now.lines(100, at=2.5)[1]
    now.take(told(MeasurementPhase.MEASURE, 3.0, repeat=1, of=3, expected=35.0), at=3.0)
    assert "MiB/s" not in now.lines(100, at=3.5)[1]


def test_settling_says_how_far_from_steady_it_is_and_promises_no_end():
    now = ProgressState()
    said = "iops ranges over 23.1% and moves by 4.20%"
    last = ((METRICS["iops"], 13337.0), (METRICS["p99"], 0.00412))
    now.take(
        told(
            MeasurementPhase.STEADY_STATE, 70.0, repeat=3, of=25, expected=35.0, steady_state=said, last=last
        ),
        at=70.0,
    )
    first, second = now.lines(120, at=71.0)
    assert first.endswith("sequential read 1MiB, 1:11")
    assert second == f"    settle 3 of at most 25, 0:01 of 0:35, {said}, last iops 13.3k/s, p99 4.12 ms"


@pytest.mark.parametrize("width", [20, 39, 79, 99, 160])
def test_no_line_is_wider_than_the_screen(width: int):
    now = ProgressState()
    flow = Throughput(1234 * MIB, 987 * MIB, 2, "x")
    now.take(
        told(
            MeasurementPhase.MEASURE,
            5000.0,
            repeat=11,
            of=12,
            expected=3500.0,
            throughput=flow,
            steady_state="s" * 60,
        ),
        at=5000.0,
    )
    lines = now.lines(width, at=5001.0)
    assert max(map(len, lines)) <= width
    assert lines[0].endswith("1:23:21 of about 3:20:00") or width < 60


def test_what_a_case_is_called_moves_no_cursor():
    now = ProgressState()
    now.take({**waiting("nas", "test\x1b[2J\r\nx"), "settled": "\x07"}, at=0.0)
    assert all(line.isprintable() for line in now.lines(100, at=1.0))


def test_another_case_begins_anew():
    now = ProgressState()
    now.take(told(MeasurementPhase.MEASURE, 50.0, repeat=3, of=3, expected=10.0), at=50.0)
    now.take(told(MeasurementPhase.FILL, 0.0), at=60.0)  # of the same name: elapsed says that it is another
    assert now.lines(100, at=61.0) == [
        "  nas-v4.2-nconnect4 on load1: sequential read 1MiB, 0:01",
        "    fill, 0:01",
    ]


def test_times_are_written_as_a_clock_shows_them():
    assert [clock(one) for one in (0, 9.9, 107, 7390)] == ["0:00", "0:09", "1:47", "2:03:10"]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    monkeypatch.setenv("COLUMNS", "80")
    return FakeTerminal()


@pytest.fixture
def reporter(terminal: FakeTerminal) -> SimpleNamespace:
    return SimpleNamespace(_tw=TerminalWriter(terminal), verbosity=0, isatty=True, currentfspath="x")


def test_lines_stand_beneath_what_pytest_writes_and_it_goes_on_where_it_was(reporter, terminal):
    screen, writer = TerminalOverlay(reporter), reporter._tw
    writer.write("test_a.py ..")
    screen.show(["one", "two"])
    assert terminal.shown == ["test_a.py ..", "one", "two"]
    screen.show(["three"])
    assert terminal.shown == ["test_a.py ..", "three"]
    writer.write(".")
    assert terminal.shown == ["test_a.py ..."]
    screen.show(["w" * 200])
    assert terminal.shown == ["test_a.py ...", "w" * 79]
    writer.line()
    writer.write("test_b.py ")
    screen.show(["four"])
    screen.close()
    writer.write("F")
    assert terminal.shown == ["test_a.py ...", "test_b.py F"]
    assert writer._file is terminal


def test_a_full_line_of_pytests_is_left_alone(reporter, terminal):
    screen = TerminalOverlay(reporter)
    reporter._tw.write("n" * 80)
    screen.show(["one"])
    assert terminal.shown == ["n" * 80]


def test_a_terminal_that_has_gone_is_no_error(reporter, terminal):
    screen = TerminalOverlay(reporter)
    terminal.close()
    screen.show(["one"])
    screen.hide()


def options(**more) -> SimpleNamespace:
    return SimpleNamespace(option=argparse.Namespace(**{"st_progress": "auto", "capture": "fd", **more}))


XTERM = {"TERM": "xterm"}


@pytest.mark.parametrize(
    ("env", "given", "tty", "verbosity", "wanted"),
    [
        (XTERM, {}, True, 0, "line"),
        (XTERM, {}, True, 2, "line"),
        (XTERM, {}, True, -1, "line"),
        (XTERM, {}, True, -2, "off"),
        ({**XTERM, "NO_COLOR": "1"}, {}, True, 0, "line"),  # about colours, and there are none
        ({"TERM": "dumb"}, {}, True, 0, "log"),
        ({}, {}, True, 0, "log"),
        ({**XTERM, "CI": "true"}, {}, True, 0, "log"),
        ({**XTERM, "BUILD_NUMBER": "7"}, {}, True, 0, "log"),
        (XTERM, {"capture": "no"}, True, 0, "log"),
        (XTERM, {"capture": "tee-sys"}, True, 0, "log"),
        (XTERM, {}, False, 0, "log"),
        (XTERM, {}, False, -1, "off"),
        (XTERM, {"st_progress": "off"}, True, 0, "off"),
        (XTERM, {"st_progress": "log"}, True, -1, "log"),
        ({}, {"st_progress": "line"}, False, 0, "line"),
    ],
)
def test_where_pytest_writes_decides_what_is_shown(env, given, tty, verbosity, wanted):
    assert how(options(**given), SimpleNamespace(isatty=tty, verbosity=verbosity), env) == wanted


def test_without_a_reporter_nothing_is_shown():
    assert how(options(), None, XTERM) == "off"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_a_line_now_and_then_and_nothing_for_what_is_short(reporter, terminal):
    ticks = Clock()
    log = render._LogRenderer(reporter, midline=False, clock=ticks)
    now = ProgressState()
    now.take(told(MeasurementPhase.MEASURE, 0.0, repeat=1, of=3, expected=300.0), at=ticks.now)
    reporter._tw.write("test_a.py ")
    shown = []
    for _ in range(200):
        ticks.now += 1
        log.show({"": now})
        shown.append(len(terminal.shown))
    assert shown[28] == 1
    assert shown[29] == 3  # after half a minute
    assert (shown[-1] - 1) / 2 == 3  # and every minute from there
    assert terminal.shown[:3] == [
        "test_a.py",
        "  nas-v4.2-nconnect4 on load1: sequential read 1MiB, 0:30 of about 15:00",
        "    measure 1 of 3, 0:30 of 5:00",
    ]
    assert reporter.currentfspath == "x"  # the dots go on by themselves
    assert reporter._tw.width_of_current_line == 0


def test_the_display_renews_itself_and_ends_at_once(reporter, terminal, monkeypatch):
    monkeypatch.setattr(render, "_TICK", 0.02)
    monkeypatch.setattr(render, "_CALM", 0.0)
    shows = ProgressDisplay(options(st_progress="line"), reporter)
    shows.take("gw0", told(MeasurementPhase.FILL, 0.0))
    _until(lambda: "    fill, 0:00" in terminal.shown)
    shows.take("gw1", told(MeasurementPhase.MEASURE, 3.0, repeat=1, of=3, expected=5.0))
    _until(lambda: len(terminal.shown) == 4)
    shows.take("gw0", None)
    _until(lambda: len(terminal.shown) == 2)
    shows.take("gw1", told(MeasurementPhase.DONE, 8.0))
    _until(lambda: terminal.shown == [])
    shows.close()
    shows.take("gw0", told(MeasurementPhase.FILL, 0.0))
    assert terminal.shown == []


def test_a_worker_tells_the_controller_and_never_waits_for_it():
    heard = []
    listener = ProgressListener(lambda worker, said: heard.append((worker, said)))
    tell = sender(listener.path, "gw3")
    tell(told(MeasurementPhase.FILL, 1.5))
    tell(None)
    _until(lambda: len(heard) == 2)
    assert heard[0][0] == "gw3"
    assert heard[0][1]["phase"] == "fill"
    assert heard[1] == ("gw3", None)
    listener.close()
    for _ in range(1000):
        tell(told(MeasurementPhase.FILL, 1.5))  # to nobody


def _until(true) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
