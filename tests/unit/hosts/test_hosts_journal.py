"""The undo journal: written before, struck out after, undone for the dead, left alone for the living."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from storagetest.errors import HostError
from storagetest.hosts import (
    Entry,
    Host,
    Journal,
    LocalHost,
    Step,
    UndoStatus,
    UnreadableEntry,
    clean,
)
from storagetest.hosts.base import Completed
from storagetest.hosts.undo_journal import Owner, in_use, parse
from storagetest.polling import wait_until


class Counting(LocalHost):
    """Counts its round trips."""

    def __init__(self) -> None:
        super().__init__("client1")
        self.trips = 0

    def run(self, argv: Sequence[str], **options) -> Completed:
        self.trips += 1
        return super().run(argv, **options)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def journal(host: Host, place: Path) -> Journal:
    return Journal(host, str(place))


def dead() -> Owner:
    """A process of this machine that is no more."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    return replace(Owner.current(), pid=gone.pid, start_time=1)


def write_for(owner: Owner, journal: Journal, undo: Sequence[Step]) -> Entry:
    entry = Entry("2026-01-01T000000-aaaa", "a thing", owner, tuple(undo), "2026-01-01T00:00:00+00:00")
    journal.write(entry)
    return entry


def test_an_entry_lives_from_open_to_strike(journal: Journal, place: Path) -> None:
    opened = journal.open("the mount of nas:/vol on /mnt/x", [["umount", "/mnt/x"]])
    [found] = journal.entries()
    assert found == opened.entry
    assert isinstance(found, Entry)
    assert (found.what, found.undo, found.owner) == (
        "the mount of nas:/vol on /mnt/x",
        (Step(("umount", "/mnt/x")),),
        Owner.current(),
    )
    [file] = place.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["schema"] == 1

    opened.update([{"argv": ["umount", "-l", "/mnt/x\t\n'ü"], "unless": ["false"]}])
    [amended] = journal.entries()
    assert isinstance(amended, Entry)
    assert amended.undo == (Step(("umount", "-l", "/mnt/x\t\n'ü"), ("false",)),)
    assert (amended.id, amended.created) == (found.id, found.created)

    opened.remove()
    opened.remove()
    assert journal.entries() == []
    assert list(place.iterdir()) == []


def test_each_act_is_one_round_trip(place: Path) -> None:
    host = Counting()
    journal = Journal(host, str(place))
    opened = journal.open("a thing", [["true"]])
    assert host.trips == 1
    opened.update([["false"]])
    assert host.trips == 2
    journal.entries()
    assert host.trips == 3
    opened.remove()
    assert host.trips == 4


def test_no_journal_no_entries(journal: Journal) -> None:
    assert journal.entries() == []


def test_a_journal_that_cannot_be_written_is_an_error() -> None:
    with pytest.raises(HostError, match="client1: the undo journal cannot be used: "):
        Journal(LocalHost("client1"), "/dev/null/journal").open("a thing", [["true"]])


def test_a_step_is_no_string(place: Path) -> None:
    with pytest.raises(TypeError, match="argv list"):
        Journal(LocalHost(), str(place)).open("a thing", ["umount /mnt"])
    assert not place.exists()


def test_undo_tries_every_step_in_order_and_strikes_out_on_success(journal: Journal, tmp_path: Path) -> None:
    log = tmp_path / "log"
    say = ["sh", "-c", f'echo "$1" >> {log}', "say"]
    entry = write_for(dead(), journal, [Step((*say, "one")), Step((*say, "two"))])
    assert journal.undo(entry).result is UndoStatus.UNDONE
    assert log.read_text() == "one\ntwo\n"
    assert journal.entries() == []


def test_a_failed_undo_keeps_the_entry_and_still_tries_the_rest(journal: Journal, tmp_path: Path) -> None:
    steps = [
        Step(("sh", "-c", "echo target is busy >&2; exit 32")),
        Step(("no-such-tool",)),
        Step(("touch", str(tmp_path / "reached"))),
    ]
    entry = write_for(dead(), journal, steps)
    outcome = journal.undo(entry)
    assert outcome.result is UndoStatus.FAILED
    assert "exited 32:\ntarget is busy" in outcome.detail
    assert "`no-such-tool` is not installed" in outcome.detail
    assert (tmp_path / "reached").exists()
    assert journal.entries() == [entry]


def test_a_step_that_hangs_ends_by_its_deadline_and_keeps_the_entry(journal: Journal) -> None:
    entry = write_for(dead(), journal, [Step(("sleep", "300"))])
    outcome = journal.undo(entry, deadline=1)
    assert "did not end within 1 s" in outcome.detail
    assert journal.entries() == [entry]


def test_what_is_verifiably_gone_needs_no_undoing(journal: Journal, tmp_path: Path) -> None:
    """The first is gone before; the second's command fails, though it leaves nothing."""
    thing = tmp_path / "thing"
    gone = ("test", "!", "-e", str(thing))
    first = Step(("touch", str(tmp_path / "undone")), unless=gone)
    assert journal.undo(write_for(dead(), journal, [first])).result is UndoStatus.UNDONE
    assert not (tmp_path / "undone").exists()

    thing.touch()
    second = Step(("sh", "-c", 'rm "$1"; exit 1', "x", str(thing)), unless=gone)
    assert journal.undo(write_for(dead(), journal, [second])).result is UndoStatus.UNDONE
    assert journal.entries() == []


OWNER = """
import sys, time
from storagetest.hosts import Journal, LocalHost
Journal(LocalHost(), sys.argv[1]).open("the directory " + sys.argv[2], [["rmdir", sys.argv[2]]])
print("held", flush=True)
time.sleep(300)
"""


def test_what_a_killed_owner_held_is_undone_and_what_a_living_one_holds_is_not(
    host: Host, place: Path, tmp_path: Path
) -> None:
    thing = tmp_path / "thing"
    thing.mkdir()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(place), str(thing)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        [outcome] = clean(host, directory=str(place))
        assert outcome.result is UndoStatus.IN_USE
        assert f"process {owner.pid}, is still running" in outcome.detail
        assert thing.exists()

        owner.send_signal(signal.SIGKILL)
        wait_until(lambda: in_use(Owner(**_owner_of(place)), Owner.current()) == "", 10, "the owner's death")
        [outcome] = clean(host, directory=str(place))
        assert (outcome.result, outcome.what) == (UndoStatus.UNDONE, f"the directory {thing}")
        assert not thing.exists()
        assert clean(host, directory=str(place)) == []
    finally:
        owner.kill()
        owner.wait()
        if owner.stdout:
            owner.stdout.close()


def _owner_of(place: Path) -> dict:
    [file] = place.glob("*.json")
    return json.loads(file.read_text())["owner"]


def test_force_undoes_what_a_living_owner_holds(place: Path, tmp_path: Path) -> None:
    host = LocalHost()
    Journal(host, str(place)).open("a thing", [["touch", str(tmp_path / "undone")]])
    assert [outcome.result for outcome in clean(host, directory=str(place))] == [UndoStatus.IN_USE]
    assert [outcome.result for outcome in clean(host, force=True, directory=str(place))] == [
        UndoStatus.UNDONE
    ]
    assert (tmp_path / "undone").exists()


def test_who_counts_as_living() -> None:
    me = Owner.current()
    assert me.pid == os.getpid()
    assert "still running" in in_use(me, me)
    assert in_use(replace(me, start_time=me.start_time + 1), me) == ""  # another process has the pid now
    assert in_use(replace(me, boot_id="of the last boot"), me) == ""
    assert in_use(dead(), me) == ""
    assert "on elsewhere; clean it from there" in in_use(replace(me, host="elsewhere"), me)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "damaged"),
        ("[]", "damaged"),
        ('{"schema": 1}', "damaged"),
        ('{"schema": 1, "owner": {"pid": 1}, "what": "", "undo": [], "created": ""}', "damaged"),
        ('{"schema": 99, "undo": [["rm", "-rf", "/"]]}', "schema 99; this version supports 1"),
    ],
)
def test_what_is_not_understood_is_reported_and_stays(place: Path, text: str, why: str) -> None:
    place.mkdir()
    (place / "x.json").write_text(text)
    assert isinstance(parse("x", text), UnreadableEntry)
    [outcome] = clean(LocalHost(), force=True, directory=str(place))
    assert (outcome.id, outcome.result) == ("x", UndoStatus.UNREADABLE)
    assert why in outcome.detail
    assert (place / "x.json").read_text() == text


def test_the_newest_is_undone_first(place: Path, tmp_path: Path) -> None:
    host = LocalHost()
    journal = Journal(host, str(place))
    for name in ("b", "c", "a"):
        entry = Entry(f"2026-01-0{'bca'.index(name)}", name, dead(), (), "")
        journal.write(entry)
    assert [outcome.what for outcome in clean(host, directory=str(place))] == ["a", "c", "b"]


def test_an_entry_reads_back_as_it_was() -> None:
    entry = Entry("x", "what", Owner.current(), (Step(("a",), ("b",)), Step(("c",))), "now")
    assert parse("x", json.dumps({"schema": 1, **asdict(entry)})) == entry
