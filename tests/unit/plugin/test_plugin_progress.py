"""Progress of a measurement: the lines, the terminal overlay, the log, and messages from workers."""

import argparse
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
from storagetest.polling import wait_until
from storagetest.runner import CaseInfo, MeasurementPhase, ProgressEvent
from storagetest.runner.throughput_watch import Throughput

CASE = CaseInfo("test_x", "sequential", "nas", "nas-v4.2-nconnect4", "nfs", "load1", "standard")
MIB = 1 << 20


def event_message(phase: MeasurementPhase, elapsed: float, **more) -> dict:
    return message(ProgressEvent(CASE, phase, elapsed, title="sequential read 1MiB", **more))


def update(state: ProgressState, phase: MeasurementPhase, elapsed: float, *, at: float, **more) -> None:
    """Give the state the message of an event; a repeat is expected to take 35 s."""
    expected = {"expected": 35.0} if "repeat" in more else {}
    state.update(event_message(phase, elapsed, **{**expected, **more}), at=at)


def test_lines_show_time_and_throughput_of_a_repeat_and_the_estimate_of_the_case():
    state = ProgressState()
    update(state, MeasurementPhase.FILL, 0.0, at=100.0)
    assert state.lines(100, at=112.4) == [
        "  nas-v4.2-nconnect4 on load1: sequential read 1MiB, 0:12",
        "    fill, 0:12",
    ]
    update(state, MeasurementPhase.MEASURE, 20.0, repeat=1, of=3, at=120.0)
    update(state, MeasurementPhase.MEASURE, 56.0, repeat=2, of=3, at=156.0)
    update(
        state,
        MeasurementPhase.MEASURE,
        58.0,
        repeat=2,
        of=3,
        throughput=Throughput(50 * MIB, 0, 2, "x"),
        at=158.0,
    )
    assert state.lines(100, at=159.0) == [
        "  nas-v4.2-nconnect4 on load1: sequential read 1MiB, 0:59 of about 2:08",  # 56 + 2 repeats of 36 s
        "    measure 2 of 3, 0:03 of 0:35, reading 50.0 MiB/s",
    ]


def test_an_old_throughput_is_not_shown_and_zero_throughput_is_named():
    state = ProgressState()
    update(state, MeasurementPhase.MEASURE, 0.0, repeat=1, of=1, at=0.0)
    update(state, MeasurementPhase.MEASURE, 2.0, repeat=1, of=1, throughput=Throughput(0, 0, 2, "x"), at=2.0)
    assert state.lines(100, at=3.0)[1].endswith(", no data is transferred")
    assert state.lines(100, at=9.0)[1].endswith("0:09 of 0:35")
    both = Throughput(3 * MIB, 1536, 2, "x")  # 1.5 KiB/s is below the least rate
    update(state, MeasurementPhase.MEASURE, 9.0, repeat=1, of=1, throughput=both, at=9.0)
    assert state.lines(100, at=9.0)[1].endswith(", reading 3.00 MiB/s")


def test_a_new_phase_clears_the_throughput():
    state = ProgressState()
    update(state, MeasurementPhase.FILL, 0.0, at=0.0)
    update(state, MeasurementPhase.FILL, 2.0, throughput=Throughput(0, 80 * MIB, 2, "x"), at=2.0)
    assert "writing 80.0 MiB/s" in state.lines(100, at=2.5)[1]
    update(state, MeasurementPhase.MEASURE, 3.0, repeat=1, of=3, at=3.0)
    assert "MiB/s" not in state.lines(100, at=3.5)[1]


def test_the_steady_state_phase_shows_its_criterion_and_no_estimate():
    state = ProgressState()
    steady_state = "iops ranges over 23.1% and moves by 4.20%"
    last = ((METRICS["iops"], 13337.0), (METRICS["p99"], 0.00412))
    update(
        state,
        MeasurementPhase.STEADY_STATE,
        70.0,
        repeat=3,
        of=25,
        steady_state=steady_state,
        last=last,
        at=70.0,
    )
    first, second = state.lines(120, at=71.0)
    assert first.endswith("sequential read 1MiB, 1:11")
    assert (
        second == f"    settle 3 of at most 25, 0:01 of 0:35, {steady_state}, last iops 13.3k/s, p99 4.12 ms"
    )


@pytest.mark.parametrize("width", [20, 39, 79, 99, 160])
def test_no_line_exceeds_the_width(width: int):
    state = ProgressState()
    flow = Throughput(1234 * MIB, 987 * MIB, 2, "x")
    update(
        state,
        MeasurementPhase.MEASURE,
        5000.0,
        repeat=11,
        of=12,
        expected=3500.0,
        throughput=flow,
        steady_state="s" * 60,
        at=5000.0,
    )
    lines = state.lines(width, at=5001.0)
    assert max(map(len, lines)) <= width
    *head, phase = lines
    assert "".join("".join(head).split()) == (
        "nas-v4.2-nconnect4onload1:sequentialread1MiB,1:23:21ofabout3:20:00"
    )
    assert phase.startswith("    measure 11 o")


def test_a_name_that_differs_in_its_middle_is_not_cut():
    def shown(name: str) -> list[str]:
        state = ProgressState()
        state.update({**waiting(f"nas-v4.2-nconnect4 on client1-of-rack-17-in-{name}-row-4", "x")}, at=0.0)
        return state.lines(79, at=1.0)

    assert shown("left") != shown("right")
    assert shown("left")[0].startswith("  nas-v4.2-nconnect4 on")


@pytest.mark.parametrize(("at", "shown"), [(0.4, "0:00 of 0:01"), (2.9, "0:02 of 0:02")])
def test_a_phase_is_not_past_its_plan(at: float, shown: str):
    state = ProgressState()
    update(state, MeasurementPhase.MEASURE, 0.0, repeat=1, of=1, expected=0.6, at=0.0)
    first, second = state.lines(100, at=at)
    assert second == f"    measure 1 of 1, {shown}"
    assert first.endswith(f", 0:0{int(at)} of about 0:0{int(max(at, 0.6))}")


def test_control_characters_in_a_message_are_replaced():
    state = ProgressState()
    state.update({**waiting("nas", "test\x1b[2J\r\nx"), "steady_state": "\x07"}, at=0.0)
    assert all(line.isprintable() for line in state.lines(100, at=1.0))


def test_another_case_resets_the_state():
    state = ProgressState()
    update(state, MeasurementPhase.MEASURE, 50.0, repeat=3, of=3, expected=10.0, at=50.0)
    # The case has the same name; an elapsed time of 0 shows that it is another one.
    update(state, MeasurementPhase.FILL, 0.0, at=60.0)
    assert state.lines(100, at=61.0) == [
        "  nas-v4.2-nconnect4 on load1: sequential read 1MiB, 0:01",
        "    fill, 0:01",
    ]


def test_clock_formats_minutes_and_hours():
    assert [clock(seconds) for seconds in (0, 9.9, 107, 7390)] == ["0:00", "0:09", "1:47", "2:03:10"]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    monkeypatch.setenv("COLUMNS", "80")
    return FakeTerminal()


@pytest.fixture
def reporter(terminal: FakeTerminal) -> SimpleNamespace:
    return SimpleNamespace(_tw=TerminalWriter(terminal), verbosity=0, isatty=True, currentfspath="x")


def test_overlay_lines_are_below_pytests_line_and_its_cursor_is_restored(reporter, terminal):
    overlay, writer = TerminalOverlay(reporter), reporter._tw
    writer.write("test_a.py ..")
    overlay.show(["one", "two"])
    assert terminal.shown == ["test_a.py ..", "one", "two"]
    overlay.show(["three"])
    assert terminal.shown == ["test_a.py ..", "three"]
    writer.write(".")
    assert terminal.shown == ["test_a.py ..."]
    overlay.show(["w" * 200])
    assert terminal.shown == ["test_a.py ...", "w" * 79]
    writer.line()
    writer.write("test_b.py ")
    overlay.show(["four"])
    overlay.close()
    writer.write("F")
    assert terminal.shown == ["test_a.py ...", "test_b.py F"]
    assert writer._file is terminal


def test_the_overlay_is_not_shown_below_a_full_line(reporter, terminal):
    overlay = TerminalOverlay(reporter)
    reporter._tw.write("n" * 80)
    overlay.show(["one"])
    assert terminal.shown == ["n" * 80]


def test_a_closed_terminal_is_no_error(reporter, terminal):
    overlay = TerminalOverlay(reporter)
    terminal.close()
    overlay.show(["one"])
    overlay.hide()


def options(**values) -> SimpleNamespace:
    return SimpleNamespace(option=argparse.Namespace(**{"st_progress": "auto", "capture": "fd", **values}))


XTERM = {"TERM": "xterm"}


@pytest.mark.parametrize(
    ("env", "values", "tty", "verbosity", "expected"),
    [
        (XTERM, {}, True, 0, "line"),
        (XTERM, {}, True, 2, "line"),
        (XTERM, {}, True, -1, "line"),
        (XTERM, {}, True, -2, "off"),
        ({**XTERM, "NO_COLOR": "1"}, {}, True, 0, "line"),  # the display has no colours
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
def test_the_kind_of_display_depends_on_pytests_output(env, values, tty, verbosity, expected):
    assert how(options(**values), SimpleNamespace(isatty=tty, verbosity=verbosity), env) == expected


def test_without_a_terminal_reporter_the_display_is_off():
    assert how(options(), None, XTERM) == "off"


def test_a_log_gets_lines_after_half_a_minute_and_then_every_minute(reporter, terminal):
    ticks = SimpleNamespace(now=1000.0)
    log = render._LogRenderer(reporter, midline=False, clock=lambda: ticks.now)
    state = ProgressState()
    update(state, MeasurementPhase.MEASURE, 0.0, repeat=1, of=3, expected=300.0, at=ticks.now)
    reporter._tw.write("test_a.py ")
    shown = []
    for _ in range(200):
        ticks.now += 1
        log.show({"": state})
        shown.append(len(terminal.shown))
    assert shown[28] == 1
    assert shown[29] == 3  # after half a minute
    assert (shown[-1] - 1) / 2 == 3  # and every minute after that
    assert terminal.shown[:3] == [
        "test_a.py",
        "  nas-v4.2-nconnect4 on load1: sequential read 1MiB, 0:30 of about 15:00",
        "    measure 1 of 3, 0:30 of 5:00",
    ]
    assert reporter.currentfspath == "x"  # pytest continues its dots on a new line
    assert reporter._tw.width_of_current_line == 0


def test_the_display_updates_and_clears_at_the_end(reporter, terminal, monkeypatch):
    monkeypatch.setattr(render, "_TICK", 0.02)
    monkeypatch.setattr(render, "_LEAST_DURATION", 0.0)
    display = ProgressDisplay(options(st_progress="line"), reporter)
    display.update("gw0", event_message(MeasurementPhase.FILL, 0.0))
    wait_until(lambda: "    fill, 0:00" in terminal.shown, 20, "the display")
    display.update("gw1", event_message(MeasurementPhase.MEASURE, 3.0, repeat=1, of=3, expected=5.0))
    wait_until(lambda: len(terminal.shown) == 4, 20, "the display")
    display.update("gw0", None)
    wait_until(lambda: len(terminal.shown) == 2, 20, "the display")
    display.update("gw1", event_message(MeasurementPhase.DONE, 8.0))
    wait_until(lambda: terminal.shown == [], 20, "the display")
    display.close()
    display.update("gw0", event_message(MeasurementPhase.FILL, 0.0))
    assert terminal.shown == []


def test_a_worker_sends_messages_and_never_blocks():
    received = []
    listener = ProgressListener(lambda worker, message: received.append((worker, message)))
    send = sender(listener.path, "gw3")
    send(event_message(MeasurementPhase.FILL, 1.5))
    send(None)
    wait_until(lambda: len(received) == 2, 20, "two messages")
    (worker, first), second = received
    assert (worker, first["phase"]) == ("gw3", "fill")
    assert second == ("gw3", None)
    listener.close()
    for _ in range(1000):
        send(event_message(MeasurementPhase.FILL, 1.5))  # the socket is closed
