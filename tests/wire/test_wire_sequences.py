"""Sequences of operations on files: their models are right, and they have every shape for each seed."""

from __future__ import annotations

import pytest

from storagetest.wire.sequences import data, names, shares
from storagetest.wire.sequences.attributes import AttributeStep, attribute_steps, run_attributes
from storagetest.wire.sequences.data import DataModel, DataStep, data_steps, run_data
from storagetest.wire.sequences.history import History
from storagetest.wire.sequences.names import NameModel, NameStep, name_steps, run_names
from storagetest.wire.sequences.ranges import (
    END,
    Denial,
    Held,
    LockStep,
    PosixLocks,
    SmbLocks,
    posix_lock_steps,
    run_locks,
    smb_lock_steps,
)
from storagetest.wire.sequences.shares import ShareStep, run_shares, share_steps

SEEDS = range(1, 9)
FEATURES = ("symlink", "link", "same", "case", "bytes")


class Files:
    """A right server of data; ``lose`` changes what a write keeps."""

    def __init__(self, lose: int = 0) -> None:
        self.held = [bytearray() for _ in range(data.FILES)]
        self.lose = lose

    def write(self, file: int, offset: int, piece: bytes, _stability: str) -> None:
        held, kept = self.held[file], piece[: len(piece) - self.lose]
        held.extend(bytes(max(0, offset + len(kept) - len(held))))
        held[offset : offset + len(kept)] = kept

    def read(self, file: int, offset: int, count: int) -> tuple[bytes, bool]:
        held = self.held[file]
        return bytes(held[offset : offset + count]), offset + count >= len(held)

    def resize(self, file: int, size: int) -> None:
        self.held[file] = bytearray(self.held[file][:size].ljust(size, b"\0"))

    def flush(self, file: int) -> None:
        pass

    def copy(self, source: int, source_offset: int, file: int, offset: int, count: int) -> None:
        self.write(file, offset, bytes(self.held[source][source_offset : source_offset + count]), "file")

    def zero(self, file: int, offset: int, count: int) -> None:
        end = min(len(self.held[file]), offset + count)
        self.held[file][offset:end] = bytes(end - offset)

    def size(self, file: int) -> int:
        return len(self.held[file])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_server_of_data_passes(seed: int) -> None:
    run_data(Files(), data_steps(seed, 40, ("copy", "zero")), seed)


def test_a_lost_byte_names_step_operation_and_what_was_before() -> None:
    with pytest.raises(AssertionError, match=r"step \d+ of \d+ \(seed 3\), .* of file \d.*not"):
        run_data(Files(lose=1), data_steps(3, 32), 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_size_and_place_of_a_write_occurs_whatever_the_seed(seed: int) -> None:
    writes = [step for step in data_steps(seed, 32) if step.verb == "write"]
    assert {len(step.data) for step in writes} == set(data.SIZES)
    assert {step.stability for step in writes} == {"unstable", "data", "file"}


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ([DataStep("write", 0, 2, data=b"ab")], b"\0\0ab"),
        ([DataStep("write", 0, 0, data=b"abcd"), DataStep("resize", 0, size=2)], b"ab"),
        ([DataStep("write", 0, 0, data=b"ab"), DataStep("resize", 0, size=3)], b"ab\0"),
        ([DataStep("write", 0, 0, data=b"abcd"), DataStep("zero", 0, 1, 2)], b"a\0\0d"),
        (
            [DataStep("write", 1, 0, data=b"abcd"), DataStep("copy", 0, 1, 2, source=1, source_offset=1)],
            b"\0bc",
        ),
    ],
)
def test_the_model_of_data(steps: list[DataStep], wanted: bytes) -> None:
    model = DataModel()
    for step in steps:
        model.apply(step)
    assert bytes(model.files[0]) == wanted


class Tree:
    """A right server of names, by the model itself; ``keeps`` is whether a rename keeps the old name."""

    def __init__(self, *, keeps: bool = False) -> None:
        self.model, self.numbers, self.keeps = NameModel(), {names.ROOT: names.ROOT}, keeps

    def _there(self, directory: int, name: str) -> int | None:
        return self.model.entries[self.numbers[directory]].get(name)

    def create(self, step: NameStep) -> str:
        if self._there(step.directory, step.name) is not None:
            return "exists"
        where = self.numbers[step.directory]
        self.numbers[step.target] = self.model.made(where, step.name, step.kind, step.text)
        return "ok"

    def link(self, step: NameStep) -> str:
        if self._there(step.directory, step.name) is not None:
            return "exists"
        self.model.entries[self.numbers[step.directory]][step.name] = self.numbers[step.target]
        return "ok"

    def rename(self, step: NameStep) -> str:
        target, to = self._there(step.directory, step.name), self.numbers.get(step.to[0], -1)
        if target is None:
            return "absent"
        if self.model.kinds[target] == "directory" and self.model.within(to, target):
            return "loop"
        where = self.numbers[step.directory]
        self.model.moved(where, step.name, to, step.to[1])
        if self.keeps:
            self.model.entries[where].setdefault(step.name, target)
        return "ok"

    def remove(self, step: NameStep) -> str:
        target = self._there(step.directory, step.name)
        if target is None:
            return "absent"
        if self.model.entries.get(target):
            return "not empty"
        self.model.gone(self.numbers[step.directory], step.name)
        return "ok"

    def lookup(self, step: NameStep) -> tuple[str, bool]:
        target = self._there(step.directory, step.name)
        if target is None:
            return "absent", False
        return "ok", target == self.numbers.get(step.target)

    def links(self, step: NameStep) -> int:
        return len(self.model.names_of(self.numbers[step.target]))

    def text(self, step: NameStep) -> str:
        return self.model.texts[self.numbers[step.target]]

    def list(self, step: NameStep, _pages: int) -> list[str]:
        return list(self.model.entries[self.numbers[step.directory]])

    def parent(self, step: NameStep) -> bool:
        return self.model.parents[self.numbers[step.target]] == self.numbers[step.directory]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("features", [(), ("link",), FEATURES])
def test_a_right_server_of_names_passes(seed: int, features: tuple[names.Feature, ...]) -> None:
    run_names(Tree(), name_steps(seed, 60, features), seed)  # type: ignore[arg-type]


def test_a_name_that_stays_after_a_rename_is_named() -> None:
    with pytest.raises(AssertionError, match=r"(?s)seed 2.*on the same objects before: .*renamed to"):
        run_names(Tree(keeps=True), name_steps(2, 60), 2)  # type: ignore[arg-type]


class Locks:
    """A right lock manager, by a model."""

    def __init__(self, model: PosixLocks | SmbLocks, *, states: bool = True) -> None:
        self.model, self.states = model, states

    def test(self, step: LockStep) -> Denial | bool:
        found = self.model.holders(step.owner, step.start, step.end, exclusive=step.exclusive)
        if found and self.states:
            return Denial(found[0].owner, found[0].start, found[0].end, found[0].exclusive)
        return not found

    def lock(self, step: LockStep) -> Denial | bool:
        found = self.test(step)
        if found is True:
            self.model.lock(step.owner, step.start, step.end, exclusive=step.exclusive)
        return found

    def unlock(self, step: LockStep) -> bool:
        return self.model.unlock(step.owner, step.start, step.end) is not False

    def close(self, step: LockStep) -> None:
        self.model.held = [one for one in self.model.held if one.owner != step.owner]


@pytest.mark.parametrize("seed", SEEDS)
def test_right_lock_managers_pass(seed: int) -> None:
    run_locks(Locks(PosixLocks()), posix_lock_steps(seed, 40), seed)
    run_locks(Locks(SmbLocks(), states=False), smb_lock_steps(seed, 110), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lock_manager_of_the_other_kind_fails(seed: int) -> None:
    with pytest.raises(AssertionError, match=f"seed {seed}"):
        run_locks(Locks(SmbLocks()), posix_lock_steps(seed, 40), seed)


def test_an_unlock_of_the_middle_leaves_both_ends() -> None:
    locks = PosixLocks()
    locks.lock(0, 0, 10, exclusive=True)
    locks.unlock(0, 4, 6)
    assert locks.held == [Held(0, 0, 4, exclusive=True), Held(0, 6, 10, exclusive=True)]
    locks.lock(0, 4, 6, exclusive=True)
    assert locks.held == [Held(0, 0, 10, exclusive=True)]


def test_a_denial_states_no_byte_that_its_owner_has_not_locked() -> None:
    held = Held(1, 0, 10, exclusive=True)
    step = LockStep("test", 0, 5, 6, True, (held,), granted=False, others=(held,))

    class Wrong(Locks):
        def test(self, step: LockStep) -> Denial:
            return Denial(1, 0, 11, exclusive=True)

    with pytest.raises(AssertionError, match="is stated as the lock in the way"):
        run_locks(Wrong(PosixLocks()), [step], 1)
    assert step.length == 1
    assert LockStep("lock", 0, 5, END).length is None


class Opens:
    """A right server of opens; ``forgets`` is whether denials are."""

    def __init__(self, *, forgets: bool = False) -> None:
        self.model, self.forgets = shares.ShareModel(), forgets

    def open(self, step: ShareStep) -> bool:
        if not self.forgets and not self.model.allows(step.owner, step.access, step.deny):
            return False
        self.model.opens.setdefault(step.owner, []).append((step.access, step.deny))
        return True

    def again(self, step: ShareStep) -> bool:
        return self.open(step)

    def downgrade(self, step: ShareStep) -> bool:
        self.model.opens[step.owner] = [(step.access, step.deny)]
        return True

    def close(self, step: ShareStep) -> bool:
        del self.model.opens[step.owner]
        return True

    def read(self, step: ShareStep) -> bool:
        return bool(self.model.of(step.owner)[0] & shares.READ)

    def write(self, step: ShareStep) -> bool:
        return bool(self.model.of(step.owner)[0] & shares.WRITE)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_server_of_opens_passes_and_one_that_forgets_denials_fails(seed: int) -> None:
    steps = share_steps(seed, 60, (1, 2, 3), (0, 0, 1, 2, 3), joins=True)
    run_shares(Opens(), steps, seed)
    with pytest.raises(AssertionError, match="it succeeds"):
        run_shares(Opens(forgets=True), steps, seed)


class Values:
    """A right server of attributes."""

    def __init__(self) -> None:
        self.held = [{"mode": 0, "size": 0, "mtime": 0} for _ in range(2)]

    def set(self, file: int, values: dict[str, int]) -> None:
        self.held[file] |= values
        if "size" in values:
            self.held[file]["mtime"] = -1

    def get(self, file: int) -> dict[str, int]:
        return self.held[file]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_value_that_another_change_disturbs_is_not_compared(seed: int) -> None:
    domains = {"mode": (1, 2), "size": (3, 4), "mtime": (5, 6)}
    steps = attribute_steps(seed, 40, domains, {"size": ("mtime",)})
    run_attributes(Values(), steps, seed)  # type: ignore[arg-type]
    assert {tuple(step.values) for step in steps} >= {("mode",), ("mode", "size"), ("mode", "size", "mtime")}
    with pytest.raises(AssertionError, match="mode of file 0 is 0o0, and 0o1 was set last"):
        wrong = [AttributeStep(0, {"size": 3}, ({"mode": 1}, {}))]
        run_attributes(Values(), wrong, seed)  # type: ignore[arg-type]


def test_a_message_has_the_last_operations_on_the_same_object() -> None:
    history = History(1, 3)
    for text, name in (("one", "a"), ("two", "b")):
        with history.step(text, name):
            pass
    with pytest.raises(AssertionError) as caught, history.step("three", "a"):
        raise AssertionError("wrong")
    assert str(caught.value) == "step 3 of 3 (seed 1), three: wrong; on the same objects before: one"
