"""The undo journal: entries are written before and removed after use, and undone if their owner ended."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from storagetest.errors import HostError
from storagetest.hosts import Entry, Host, Journal, LocalHost, Step, UndoStatus, UnreadableEntry, clean
from storagetest.hosts.base import Completed
from storagetest.hosts.owner import Owner, in_use
from storagetest.hosts.undo_journal import parse
from storagetest.polling import wait_until


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def journal(host: Host, directory: Path) -> Journal:
    return Journal(host, str(directory))


def ended_owner() -> Owner:
    """Return a process of this machine that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return replace(Owner.current(), pid=process.pid, start_time=1)


def write_ended(journal: Journal, *undo: Step) -> Entry:
    """Write an entry whose owner has ended."""
    entry = Entry("2026-01-01T000000-aaaa", "a thing", ended_owner(), undo, "2026-01-01T00:00:00+00:00")
    journal.write(entry)
    return entry


class InterruptedHost(LocalHost):
    """A host on which Ctrl-C arrives after the first command has run."""

    interrupted = False

    def run(self, argv: Sequence[str], **options) -> Completed:
        done = super().run(argv, **options)
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        return done


def test_ctrl_c_while_an_entry_is_written_leaves_none(directory: Path) -> None:
    journal = Journal(InterruptedHost("client1"), str(directory))
    with pytest.raises(KeyboardInterrupt):
        journal.open("the mount of nas:/vol on /mnt/x", [["umount", "/mnt/x"]])
    assert directory.is_dir(), "the entry was not written"
    assert journal.entries() == []


def test_an_entry_exists_from_open_to_remove(journal: Journal, directory: Path) -> None:
    opened = journal.open("the mount of nas:/vol on /mnt/x", [["umount", "/mnt/x"]])
    [written] = journal.entries()
    assert written == opened.entry
    assert (written.description, written.owner) == ("the mount of nas:/vol on /mnt/x", Owner.current())
    assert written.undo == (Step(("umount", "/mnt/x")),)
    [file] = directory.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["schema"] == 1

    opened.update([{"argv": ["umount", "-l", "/mnt/x\t\n'ü"], "unless": ["false"]}])
    [amended] = journal.entries()
    assert amended.undo == (Step(("umount", "-l", "/mnt/x\t\n'ü"), ("false",)),)
    assert (amended.id, amended.created) == (written.id, written.created)

    opened.remove()
    opened.remove()
    assert journal.entries() == []
    assert list(directory.iterdir()) == []


def test_each_method_is_one_round_trip(local_host: LocalHost, directory: Path, monkeypatch) -> None:
    run = Mock(wraps=local_host.run)
    monkeypatch.setattr(local_host, "run", run)
    journal = Journal(local_host, str(directory))
    opened = journal.open("a thing", [["true"]])
    assert run.call_count == 1
    opened.update([["false"]])
    assert run.call_count == 2
    journal.entries()
    assert run.call_count == 3
    opened.remove()
    assert run.call_count == 4


def test_a_missing_journal_has_no_entries(journal: Journal) -> None:
    assert journal.entries() == []


def test_a_journal_that_cannot_be_written_is_an_error() -> None:
    with pytest.raises(HostError, match="client1: the undo journal cannot be used: "):
        Journal(LocalHost("client1"), "/dev/null/journal").open("a thing", [["true"]])


def test_a_step_that_is_a_string_is_a_type_error(directory: Path) -> None:
    with pytest.raises(TypeError, match="argv list"):
        Journal(LocalHost(), str(directory)).open("a thing", ["umount /mnt"])
    assert not directory.exists()


def test_undo_runs_each_step_in_order_and_then_removes_the_entry(journal: Journal, tmp_path: Path) -> None:
    log = tmp_path / "log"
    echo = ["sh", "-c", f'echo "$1" >> {log}', "echo"]
    entry = write_ended(journal, Step((*echo, "one")), Step((*echo, "two")))
    assert journal.undo(entry).result is UndoStatus.UNDONE
    assert log.read_text() == "one\ntwo\n"
    assert journal.entries() == []


def test_a_failed_undo_keeps_the_entry_and_runs_the_other_steps(journal: Journal, tmp_path: Path) -> None:
    steps = [
        Step(("sh", "-c", "echo target is busy >&2; exit 32")),
        Step(("no-such-tool",)),
        Step(("touch", str(tmp_path / "reached"))),
    ]
    entry = write_ended(journal, *steps)
    outcome = journal.undo(entry)
    assert outcome.result is UndoStatus.FAILED
    assert "exited 32:\ntarget is busy" in outcome.detail
    assert "`no-such-tool` is not installed" in outcome.detail
    assert (tmp_path / "reached").exists()
    assert journal.entries() == [entry]


def test_a_step_that_hangs_ends_at_its_deadline_and_keeps_the_entry(journal: Journal) -> None:
    entry = write_ended(journal, Step(("sleep", "300"), seconds=1))
    assert "did not end within 1 s" in journal.undo(entry).detail
    assert journal.entries() == [entry]


def test_a_step_that_leaves_something_elsewhere_reports_it_and_is_removed(journal: Journal) -> None:
    leaves = {"3": "a directory is left on the target"}
    entry = write_ended(journal, Step(("sh", "-c", "exit 3"), leaves=leaves), Step(("true",)))
    assert journal.entries() == [entry], "the journal does not keep what a step leaves"
    outcome = journal.undo(entry)
    assert (outcome.result, outcome.detail) == (UndoStatus.PARTLY, "a directory is left on the target")
    assert journal.entries() == []


def test_a_failed_step_outranks_one_that_leaves_something(journal: Journal) -> None:
    left = Step(("sh", "-c", "exit 3"), leaves={"3": "a directory is left on the target"})
    entry = write_ended(journal, left, Step(("false",)))
    outcome = journal.undo(entry)
    assert outcome.result is UndoStatus.FAILED
    assert "a directory" not in outcome.detail
    assert journal.entries() == [entry]


def test_a_step_whose_unless_succeeds_is_done(journal: Journal, tmp_path: Path) -> None:
    """The first file never existed; the second step's command fails although it removes the file."""
    thing = tmp_path / "thing"
    absent = ("test", "!", "-e", str(thing))
    first = Step(("touch", str(tmp_path / "undone")), unless=absent)
    assert journal.undo(write_ended(journal, first)).result is UndoStatus.UNDONE
    assert not (tmp_path / "undone").exists()

    thing.touch()
    second = Step(("sh", "-c", 'rm "$1"; exit 1', "x", str(thing)), unless=absent)
    assert journal.undo(write_ended(journal, second)).result is UndoStatus.UNDONE
    assert journal.entries() == []


OWNER = """
import sys, time
from storagetest.hosts import Journal, LocalHost
Journal(LocalHost(), sys.argv[1]).open("the directory " + sys.argv[2], [["rmdir", sys.argv[2]]])
print("open", flush=True)
time.sleep(300)
"""


def test_entries_of_a_killed_owner_are_undone_and_those_of_a_running_one_are_not(
    host: Host, directory: Path, tmp_path: Path
) -> None:
    thing = tmp_path / "thing"
    thing.mkdir()
    argv = [sys.executable, "-c", OWNER, str(directory), str(thing)]
    with ExitStack() as stack:
        owner = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        stack.callback(owner.kill)
        assert owner.stdout.readline() == "open\n"
        [outcome] = clean(host, directory=str(directory))
        assert outcome.result is UndoStatus.IN_USE
        assert f"process {owner.pid}, is still running" in outcome.detail
        assert thing.exists()

        owner.send_signal(signal.SIGKILL)
        [file] = directory.glob("*.json")
        recorded = Owner(**json.loads(file.read_text())["owner"])
        wait_until(lambda: in_use(recorded, Owner.current()) == "", 10, "the owner's death")
        [outcome] = clean(host, directory=str(directory))
        assert (outcome.result, outcome.description) == (UndoStatus.UNDONE, f"the directory {thing}")
        assert not thing.exists()
        assert clean(host, directory=str(directory)) == []


def test_force_undoes_the_entries_of_a_running_owner(directory: Path, tmp_path: Path) -> None:
    host = LocalHost()
    Journal(host, str(directory)).open("a thing", [["touch", str(tmp_path / "undone")]])
    for force, result in ((False, UndoStatus.IN_USE), (True, UndoStatus.UNDONE)):
        assert [each.result for each in clean(host, force=force, directory=str(directory))] == [result]
    assert (tmp_path / "undone").exists()


def test_which_owners_are_in_use() -> None:
    current = Owner.current()
    assert current.pid == os.getpid()
    assert "still running" in in_use(current, current)
    assert in_use(replace(current, start_time=current.start_time + 1), current) == ""  # the pid was reused
    assert in_use(replace(current, boot_id="of the last boot"), current) == ""
    assert in_use(ended_owner(), current) == ""
    assert "on elsewhere; clean it from there" in in_use(replace(current, host="elsewhere"), current)
    assert "another container; clean it from there" in in_use(replace(current, pid_namespace="1"), current)
    assert "still running" in in_use(replace(current, pid_namespace=""), current)  # of an older version


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "damaged"),
        ("[]", "damaged"),
        ('{"schema": 1}', "damaged"),
        ('{"schema": 1, "owner": {"pid": 1}, "what": "", "undo": [], "created": ""}', "damaged"),
        ('{"schema": 99, "undo": [["rm", "-rf", "/"]]}', "schema 99; this version supports 1"),
    ],
)
def test_an_unreadable_entry_is_reported_and_retained(directory: Path, text: str, reason: str) -> None:
    directory.mkdir()
    (directory / "x.json").write_text(text)
    assert isinstance(parse("x", text), UnreadableEntry)
    [outcome] = clean(LocalHost(), force=True, directory=str(directory))
    assert (outcome.id, outcome.result) == ("x", UndoStatus.UNREADABLE)
    assert reason in outcome.detail
    assert (directory / "x.json").read_text() == text


def test_entries_of_owners_with_processes_are_kept(directory: Path, tmp_path: Path) -> None:
    host, flag = LocalHost(), tmp_path / "undone"
    entry = write_ended(Journal(host, str(directory)), Step(("touch", str(flag))))
    [outcome] = clean(host, directory=str(directory), alive={entry.owner})
    assert outcome.result is UndoStatus.IN_USE
    assert "processes of its run are left" in outcome.detail
    assert not flag.exists()
    [outcome] = clean(host, directory=str(directory), alive={entry.owner}, force=True)
    assert outcome.result is UndoStatus.UNDONE


def test_the_newest_entry_is_undone_first(directory: Path, tmp_path: Path) -> None:
    host = LocalHost()
    journal = Journal(host, str(directory))
    for name in ("b", "c", "a"):
        journal.write(Entry(f"2026-01-0{'bca'.index(name)}", name, ended_owner(), (), ""))
    assert [outcome.description for outcome in clean(host, directory=str(directory))] == ["a", "c", "b"]


def test_a_parsed_entry_equals_the_written_one() -> None:
    entry = Entry("x", "the resource", Owner.current(), (Step(("a",), ("b",)), Step(("c",))), "now")
    assert parse("x", entry.to_json()) == entry
