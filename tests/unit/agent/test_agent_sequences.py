"""What the sequences of system calls rest on: the same calls in each run, and what an NFS client may show."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from storagetest.agent.testlib import tree_sequence
from storagetest.agent.testlib.silly_names import SillyNames


def _made(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Record the calls of each turn of the sequences; their number is small."""
    made: list[tuple[str, list[str]]] = []
    make = tree_sequence.Episode.make

    def recorded(self: tree_sequence.Episode, call: str) -> int:
        before = len(self.log)
        count = make(self, call)
        made.append((call, [text for text, _ in self.log[before:]]))
        return count

    monkeypatch.setattr(tree_sequence.Episode, "make", recorded)
    monkeypatch.setattr(tree_sequence, "TURNS", 3)
    monkeypatch.setattr(tree_sequence, "SLOW_TURNS", 1)
    return made


def test_each_run_of_a_sequence_makes_the_same_calls(tmp_path: Path, turns: list[Any]) -> None:
    count = tree_sequence.run_tree(_made(tmp_path / "one"), 1)
    first = list(turns)
    turns.clear()
    assert tree_sequence.run_tree(_made(tmp_path / "other"), 1) == count > 0
    assert len(first) == 3
    assert turns == first


def test_a_slow_target_has_the_first_of_these_calls(
    tmp_path: Path, turns: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree_sequence.run_tree(_made(tmp_path / "fast"), 2)
    fast = list(turns)
    turns.clear()
    monkeypatch.setattr(tree_sequence, "SLOW_SECONDS", 0.0)
    tree_sequence.run_tree(_made(tmp_path / "slow"), 2)
    assert turns == fast[:1]


@dataclass(frozen=True)
class _Entry:
    name: str
    number: int

    def inode(self) -> int:
        return self.number


def _listed(names: SillyNames[str], directory: str, *entries: _Entry) -> set[str]:
    found: list[Any] = list(entries)
    return names.listed(directory, found)


def test_only_a_removed_open_file_has_names_of_the_client() -> None:
    names = SillyNames[str]()
    names.remove("open", 7)
    assert _listed(names, "d", _Entry(".nfs01", 7), _Entry(".nfs02", 8), _Entry("a", 7)) == {".nfs01"}
    assert (names.links("open"), names.links("other")) == (1, 0)
    assert names.touches("open")
    assert names.touches("d")
    assert names.may_hold("d")
    assert not names.touches("other")
    assert not names.may_hold("open")
    assert names.directories("open") == {"d"}


def test_a_name_is_counted_once() -> None:
    names = SillyNames[str]()
    names.remove("open", 7)
    for _ in range(2):
        _listed(names, "d", _Entry(".nfs01", 7))
    assert names.links("open") == 1
    _listed(names, "e", _Entry(".nfs02", 7))
    assert names.links("open") == 2


def test_entries_of_a_real_directory_are_judged(tmp_path: Path) -> None:
    names = SillyNames[str]()
    (tmp_path / ".nfs1").touch()
    names.remove("open", (tmp_path / ".nfs1").stat().st_ino)
    with os.scandir(tmp_path) as entries:
        assert names.listed("d", entries) == {".nfs1"}
