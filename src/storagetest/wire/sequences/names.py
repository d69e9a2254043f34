"""Sequences of creations, links, renames and removals in a tree of directories, with a model of the names.

Each name is found where the operations have left it and nowhere else, each listing has every name once, and
an operation that is refused changes nothing (RFC 1813 3.3, RFC 8881 18, MS-FSA 2.1.5). Names are looked up
and listed after each operation. Which of several errors a server chooses is left to the drivers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from storagetest.wire.sequences.dealer import Dealer
from storagetest.wire.sequences.history import History

ROOT = 0
"""The object that is the directory of the sequence."""

Kind = Literal["file", "directory", "symlink"]
Verb = Literal["create", "link", "rename", "remove", "lookup", "links", "text", "list", "parent"]
Outcome = Literal["ok", "exists", "absent", "not empty", "loop"]
Feature = Literal["symlink", "link", "same", "case", "bytes"]
"""Optional properties: symbolic links; hard links; a rename between two names of a file that does nothing;
names that differ by case; names of any bytes."""

FULL = 1
"""The object that is the directory with many files."""

ENTRIES = 46
"""Files in one directory, so that its listing has several pages (chosen)."""

PLAIN = ("a", "ab", "abc", "b", "name-with-several-words", "0", "x" * 100, "long-" + "y" * 195, "dots.in.it")
CASED = ("A", "Ab", "aB", "NAME", "name")
ODD = ("~", "#1", "-rf", "%41", "trailing ", " leading", "dot.", "\u65e5\u672c\u8a9e", "back\\slash")

TEXTS = (
    "x", "/absolute/path", "a//b/./c/../d", "ends/", "sp ace", "t" * 59, "t" * 60, "u" * 255, "v/" * 200,
)  # fmt: skip
"""Texts of symbolic links, which a server returns as they are (chosen)."""


@dataclass(frozen=True, slots=True)
class NameStep:
    """One operation on ``name`` in ``directory``, and how it has to end.

    ``to`` is where a rename leads, or a name that the file has which gets another one.
    """

    verb: Verb
    directory: int
    name: str = ""
    kind: Kind = "file"
    target: int = -1
    """The object that is created, linked, found or asked for."""
    to: tuple[int, str] = (-1, "")
    outcome: Outcome = "ok"
    links: int = 0
    text: str = ""
    names: frozenset[str] = frozenset()

    @property
    def objects(self) -> tuple[str, ...]:
        """What it concerns: names in their directories, and objects."""
        to = [f"{self.to[0]}/{self.to[1]}"] if self.to[0] >= 0 else []
        target = [f"object {self.target}"] if self.target >= 0 else []
        return (f"{self.directory}/{self.name}", *to, *target)

    def __str__(self) -> str:
        name = f"{self.name[:24]!r} in directory {self.directory}"
        wanted = "" if self.outcome == "ok" else f" (which has to fail: {self.outcome})"
        match self.verb:
            case "create":
                return f"{self.kind} {name} made{wanted}"
            case "link":
                return f"object {self.target} linked as {name}{wanted}"
            case "rename":
                return f"{name} renamed to {self.to[1][:24]!r} in directory {self.to[0]}{wanted}"
            case "remove":
                return f"{self.kind} {name} removed{wanted}"
            case "lookup":
                return f"{name} looked up{wanted}"
            case "list":
                return f"directory {self.directory} listed"
        return f"{self.verb} of object {self.target}"


class NameDriver(Protocol):
    """The operations in a protocol; an object is known by its number."""

    def create(self, step: NameStep) -> Outcome:
        """Make a file, directory or symbolic link; remember it as ``step.target`` if it succeeds."""

    def link(self, step: NameStep) -> Outcome:
        """Give ``step.target`` another name."""

    def rename(self, step: NameStep) -> Outcome:
        """Rename, and replace what has the new name."""

    def remove(self, step: NameStep) -> Outcome:
        """Remove a name."""

    def lookup(self, step: NameStep) -> tuple[Outcome, bool]:
        """Look a name up; return also whether it is the object ``step.target``."""

    def links(self, step: NameStep) -> int:
        """Return the number of names of ``step.target``."""

    def text(self, step: NameStep) -> str:
        """Return the text of a symbolic link."""

    def list(self, step: NameStep, pages: int) -> list[str]:
        """Return all names of a directory, those of ``.`` and ``..`` left out; ``pages`` is 0, 1, 2, ..."""

    def parent(self, step: NameStep, /) -> bool:
        """Whether the parent of the directory ``step.target`` is ``step.directory``."""


@dataclass
class NameModel:
    """Directories by number with the objects of their names; kinds, texts and parents of objects."""

    entries: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    kinds: dict[int, Kind] = field(default_factory=lambda: {ROOT: "directory"})
    parents: dict[int, int] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    next: int = 1

    def names_of(self, target: int) -> list[tuple[int, str]]:
        """Return directory and name of each name of an object."""
        return [
            (where, name)
            for where, found in self.entries.items()
            for name, one in found.items()
            if one == target
        ]

    def made(self, directory: int, name: str, kind: Kind, text: str = "") -> int:
        """Make an object; return its number."""
        number, self.next = self.next, self.next + 1
        self.entries[directory][name], self.kinds[number], self.texts[number] = number, kind, text
        if kind == "directory":
            self.entries[number], self.parents[number] = {}, directory
        return number

    def gone(self, directory: int, name: str) -> None:
        """Remove a name, and what has no other."""
        target = self.entries[directory].pop(name)
        if self.kinds[target] == "directory":
            del self.entries[target], self.parents[target]

    def moved(self, directory: int, name: str, to: int, new: str) -> None:
        """Rename."""
        target = self.entries[directory][name]
        if self.entries[to].get(new) == target:
            return  # two names of one file: both stay
        if new in self.entries[to]:
            self.gone(to, new)
        del self.entries[directory][name]
        self.entries[to][new] = target
        if self.kinds[target] == "directory":
            self.parents[target] = to

    def within(self, directory: int, other: int) -> bool:
        """Whether ``directory`` is ``other``, or below it."""
        while directory not in (other, ROOT):
            directory = self.parents[directory]
        return directory == other


VERBS = (
    *("file",) * 4, *("directory made",) * 2, *("remove",) * 2, *("rename",) * 3, *("replace",) * 2,
    "move directory", "exists", "absent", "not empty", "loop",
)  # fmt: skip


class _Plan:
    def __init__(self, seed: int, features: Collection[Feature]) -> None:
        self.dealer, self.model, self.features = Dealer(seed), NameModel(), features
        self.verbs = (
            VERBS
            + ("link", "link") * ("link" in features)
            + ("same file",) * ("same" in features)
            + ("symlink", "symlink") * ("symlink" in features)
        )
        self.pool = PLAIN + CASED * ("case" in features) + ODD * ("bytes" in features)
        self.looked: list[tuple[int, str]] = []
        self.others: list[tuple[int, str]] = []
        """Another name of each file that lost one, or that got one more, in the last operation."""

    def full(self) -> Iterator[NameStep]:
        """Yield the creation of a directory with many files, of two more, and of a link with each text."""
        yield self._create(ROOT, "full", "directory")
        for number in range(ENTRIES):
            yield self._create(FULL, f"entry-{number:03}", "file")
        for name in ("one", "two"):
            yield self._create(ROOT, name, "directory")
        for number, text in enumerate(TEXTS if "symlink" in self.features else ()):
            step = self._create(ROOT, f"symlink-{number}", "symlink", text)
            yield step
            yield NameStep("text", ROOT, step.name, "symlink", step.target, text=text)

    def mutation(self) -> NameStep | None:
        """Return the next operation, done in the model; None if the tree does not allow it now.

        A name that a file has lost is looked up, and so is another one that it has: numlinks goes down once.
        """
        verb: str = self.dealer.deal("verb", self.verbs)
        self.others = []
        step: NameStep | None = getattr(self, f"_{verb.replace(' ', '_')}")()
        if step is not None:
            self.looked = [(step.directory, step.name)] + [step.to] * (step.to[0] >= 0)
            self.looked += self.others
        return step

    def _directory(self) -> int:
        return self.dealer.random.choice(sorted(self.model.entries))

    def _free(self, directory: int) -> str:
        free = self.dealer.deal("name", self.pool)
        return free if free not in self.model.entries[directory] else f"{free[:100]}.{self.model.next}"

    def _some(self, *kinds: Kind) -> tuple[int, str, int] | None:
        found = [
            (where, name, target)
            for where, names in sorted(self.model.entries.items())
            for name, target in sorted(names.items())
            if self.model.kinds[target] in kinds and target != FULL
        ]
        few = [one for one in found if one[0] != FULL]
        return self.dealer.random.choice(few or found) if found else None

    def _create(self, directory: int, name: str, kind: Kind, text: str = "") -> NameStep:
        number = self.model.made(directory, name, kind, text)
        return NameStep("create", directory, name, kind, number, text=text)

    def _file(self) -> NameStep:
        where = self._directory()
        return self._create(where, self._free(where), "file")

    def _directory_made(self) -> NameStep:
        where = self._directory()
        return self._create(where, self._free(where), "directory")

    def _symlink(self) -> NameStep:
        where = self._directory()
        return self._create(where, self._free(where), "symlink", self.dealer.deal("text", TEXTS))

    def _link(self) -> NameStep | None:
        some = self._some("file")
        if some is None:
            return None
        where = self._directory()
        name = self._free(where)
        self.model.entries[where][name] = some[2]
        return NameStep("link", where, name, target=some[2], to=(some[0], some[1]))

    def _same_file(self) -> NameStep | None:
        for _, names in sorted(self.model.entries.items()):
            for target in names.values():
                two = self.model.names_of(target)
                if len(two) > 1:
                    return NameStep("rename", *two[0], target=target, to=two[1])
        return self._link()

    def _remove(self) -> NameStep | None:
        empty = [
            (where, name, target)
            for where, names in sorted(self.model.entries.items())
            for name, target in sorted(names.items())
            if target not in (FULL, 2, 3) and not self.model.entries.get(target)
        ]
        where, name, target = self.dealer.random.choice(empty)
        kind = self.model.kinds[target]
        self.model.gone(where, name)
        self.others = self.model.names_of(target)[:1]
        return NameStep("remove", where, name, kind, target)

    def _rename(self) -> NameStep | None:
        some = self._some("file", "symlink")
        if some is None:
            return None
        return self._moved(some, self._directory())

    def _move_directory(self) -> NameStep | None:
        some = self._some("directory")
        to = self._directory()
        if some is None or self.model.within(to, some[2]):
            return None
        return self._moved(some, to)

    def _moved(self, some: tuple[int, str, int], to: int, new: str = "") -> NameStep:
        where, name, target = some
        name_there = new or self._free(to)
        kind = self.model.kinds[target]
        replaced = self.model.entries[to].get(name_there)
        self.model.moved(where, name, to, name_there)
        if replaced is not None:
            self.others = self.model.names_of(replaced)[:1]
        return NameStep("rename", where, name, kind, target, to=(to, name_there))

    def _replace(self) -> NameStep | None:
        one, two = self._some("file"), self._some("file")
        if one is None or two is None or one[2] == two[2]:
            return None
        return self._moved(one, two[0], two[1])

    def _exists(self) -> NameStep | None:
        some = self._some("file", "directory")
        if some is None:
            return None
        where, name, there = some
        if "link" in self.features and self.dealer.deal("exists by link", (True, False, False)):
            other = self._some("file")
            if other is None or other[2] == there:
                return None
            return NameStep("link", where, name, target=other[2], to=other[:2], outcome="exists")
        kind: Kind = self.dealer.deal("exists", ("file", "directory"))
        return NameStep("create", where, name, kind, outcome="exists")

    def _absent(self) -> NameStep:
        where = self._directory()
        name = self._free(where)
        if self.dealer.deal("absent", (True, False)):
            return NameStep("remove", where, name, outcome="absent")
        return NameStep(
            "rename", where, name, to=(self._directory(), f"to-{self.model.next}"), outcome="absent"
        )

    def _not_empty(self) -> NameStep | None:
        full = [one for one, names in self.model.entries.items() if names and one != ROOT]
        target = self.dealer.random.choice(full)
        where, name = self.model.names_of(target)[0]
        return NameStep("remove", where, name, "directory", target, outcome="not empty")

    def _loop(self) -> NameStep | None:
        below = [one for one, parent in self.model.parents.items() if parent != ROOT]
        if not below:
            return None
        directory = self.dealer.random.choice(below)
        target = self.model.parents[directory]
        where, name = self.model.names_of(target)[0]
        return NameStep("rename", where, name, "directory", target, to=(directory, "loop"), outcome="loop")

    def looks(self, number: int) -> Iterator[NameStep]:
        """Yield looks at what the last operation concerned; now and then at a whole directory."""
        for where, name in self.looked:
            if where not in self.model.entries:
                continue
            yield self._look(where, name)
            target = self.model.entries[where].get(name)
            if target is None:
                continue
            kind = self.model.kinds[target]
            if kind == "file":
                yield NameStep("links", where, name, target=target, links=len(self.model.names_of(target)))
            elif kind == "symlink":
                yield NameStep("text", where, name, kind, target, text=self.model.texts[target])
            else:
                yield NameStep("parent", self.model.parents[target], name, kind, target)
        some = self._some("file", "symlink", "directory")
        if some is not None:
            yield self._look(some[0], some[1])
        if number % 3 == 0:
            where = self.dealer.random.choice(
                [at for at, _ in self.looked if at in self.model.entries] or [ROOT]
            )
            yield self._listed(where)

    def _look(self, where: int, name: str) -> NameStep:
        target = self.model.entries[where].get(name, -1)
        return NameStep("lookup", where, name, target=target, outcome="ok" if target >= 0 else "absent")

    def _listed(self, where: int) -> NameStep:
        return NameStep("list", where, names=frozenset(self.model.entries[where]))

    def listings(self) -> Iterator[NameStep]:
        """Yield a listing of every directory."""
        for where in sorted(self.model.entries):
            yield self._listed(where)


def name_steps(seed: int, mutations: int, features: Collection[Feature] = ()) -> list[NameStep]:
    """Return a sequence of ``mutations`` operations on names, each with looks at what it concerned."""
    plan = _Plan(seed, features)
    steps = [*plan.full()]
    for number in range(mutations):
        step = plan.mutation()
        if step is not None:
            steps += [step, *plan.looks(number)]
    return [*steps, *plan.listings()]


def run_names(driver: NameDriver, steps: list[NameStep], seed: int) -> None:
    """Make the steps, and compare their results with the model."""
    history = History(seed, len(steps))
    for number, step in enumerate(steps):
        with history.step(str(step), *step.objects):
            _make(driver, step, number)


def _make(driver: NameDriver, step: NameStep, number: int) -> None:
    match step.verb:
        case "create" | "link" | "rename" | "remove":
            outcome: Outcome = getattr(driver, step.verb)(step)
            assert outcome == step.outcome, f"the outcome is {outcome!r}, not {step.outcome!r}"
        case "lookup":
            outcome, same = driver.lookup(step)
            assert outcome == step.outcome, f"the outcome is {outcome!r}, not {step.outcome!r}"
            assert same or outcome != "ok", f"the name is that of another object than {step.target}"
        case "links":
            links = driver.links(step)
            assert links == step.links, f"the file has {links} names, not {step.links}"
        case "text":
            text = driver.text(step)
            assert text == step.text, f"the text is {text!r}, not {step.text!r}"
        case "parent":
            assert driver.parent(step), f"its parent is not directory {step.directory}"
        case "list":
            _compare_names(driver.list(step, number), step.names)


def _compare_names(found: list[str], wanted: frozenset[str]) -> None:
    lost, more = sorted(wanted - set(found)), sorted(set(found) - wanted)
    assert not lost, f"the listing of {len(wanted)} names lacks {lost[:3]}"
    assert not more, f"the listing has {more[:3]}, which is no name of the directory"
    twice = sorted(name for name in wanted if found.count(name) > 1)
    assert not twice, f"the listing has {twice[:3]} twice"
