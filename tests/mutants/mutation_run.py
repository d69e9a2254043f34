"""Run all mutants of a protocol in one pytest: the honest proxy, then each mutant with its cases.

A :class:`MutationRun` has the suite, the targets and the mutants. The function ``mutation_run()`` of a module
``PROTOCOL_mutation_run`` returns one. :func:`run` starts one pytest on the suite with this module as a
plugin, which

1. starts a proxy for every kind of target, twice: ``KIND-honest`` with long deadlines and ``KIND-broken``
   with short ones, and writes the targets file with them;
2. runs every case on ``KIND-honest`` as pytest would;
3. runs on ``KIND-broken`` only the cases that claim to kill a mutant: each once for each mutant that it
   names, with the proxy switched to that mutant in between. So nothing is collected or started per mutant.

Rules of the count:

- A mutant is killed by a case that names it (``kills=``), fails, and on whose connections the mutant *acted*:
  changed, added, delayed or dropped a PDU. A case that fails for another reason kills no mutant.
- An attempt that kills no mutant is repeated once, because a busy machine can be the reason: a target that
  is too slow for the short deadline, or that answers in another order. A kill in the second attempt is a
  warning.
- The session-scoped fixtures (properties of the unit) are evaluated through an honest proxy; a look at the
  target is repeated if the short deadline of a mutant was too short for it.
"""

import importlib
import json
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from _pytest.runner import runtestprotocol
from child_pytest import run_pytest
from proxy import Proxy, Rewrite, Splitter

ROOT = Path(__file__).parents[2]
HONEST, BROKEN = "-honest", "-broken"
KILLED = ("failed", "warned")
"""Outcomes of a case that detects a mutant."""
_RECORD = "storagetest_case"
"""Attribute of pytest's report that holds the case's record."""


class MutantInfo(Protocol):
    """A mutant in the tables: the section of its rule, and a description of the fault."""

    @property
    def section(self) -> str: ...

    @property
    def description(self) -> str: ...


class BrokenRule(Protocol):
    """A mutant. ``kind`` names the kind of its target; None: the first kind of the run."""

    name: str
    section: str
    description: str
    kind: str | None

    def rewrites(self) -> Callable[[], Rewrite]:
        """Return the factory of the connections' rewrites, without state of an earlier run."""
        ...


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A kind of target: its options in the targets file, and a factory of real ones.

    ``serve`` yields host and port; ``ports`` are the options that name the port. With ``fresh`` each attempt
    gets a new target, so that attempts do not affect each other; otherwise one target serves all.
    ``controls`` returns the controls of the target at a port, which run on this machine.
    """

    options: Mapping[str, Any]
    serve: Callable[[], AbstractContextManager[tuple[str, int]]]
    fresh: bool = False
    ports: tuple[str, ...] = ("port",)
    controls: Callable[[int], Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class MutationRun:
    """``suite`` under suites/conformance, its ``mutants`` by name and the ``kinds`` of targets by name.

    ``modules`` (globs of file names, separated by blanks) selects by kind the modules that run on the honest
    proxy; by default all. ``timeout`` is the target's deadline on a mutant, in seconds. ``chosen`` returns
    the mutants for a case id; by default those that the case claims to kill.
    """

    suite: str
    mutants: Mapping[str, BrokenRule]
    kinds: Mapping[str, TargetKind]
    splitter: Callable[[bool], Splitter]
    modules: Mapping[str, str] | None = None
    timeout: float = 1.0
    options: tuple[str, ...] = ()
    chosen: Callable[[str], Sequence[str]] | None = None

    def kind_of(self, mutant: BrokenRule) -> str:
        """Return the name of a mutant's kind of target."""
        return mutant.kind or next(iter(self.kinds))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One case on one mutant."""

    mutant: str
    case: str
    outcome: str
    acted: bool
    message: str
    seconds: float = 0.0
    repeated: bool = False
    """Whether this is the second attempt."""

    @property
    def kills(self) -> bool:
        """Whether the mutant acted and the case did not pass."""
        return self.acted and self.outcome in KILLED


@dataclass(frozen=True, slots=True)
class Outcomes:
    """``honest``: every case's record on the honest proxy, as JSON. ``attempts``: by mutant."""

    honest: Sequence[dict[str, Any]]
    attempts: Mapping[str, Sequence[Attempt]]

    def killers(self, mutant: str) -> list[str]:
        """Return the ids of the cases that killed a mutant."""
        return sorted({attempt.case for attempt in self.attempts.get(mutant, ()) if attempt.kills})


STOPPED = re.compile(r"^!+ .* !+$", re.MULTILINE)
"""pytest's line for a run that was stopped: the cases after it are not judged."""

WITH_HONEST = 2
"""Number of mutants out of five that run together with the honest cases in :func:`run_in_two`."""


def run_in_two(module: str, where: Path, names: Iterable[str], *, honest: bool) -> Outcomes:
    """Run ``module`` in two processes, each with a target of its own, and join the outcomes."""
    every = list(names)
    first = [name for at, name in enumerate(every) if at % 5 < WITH_HONEST]
    second = [name for name in every if name not in first]
    with ThreadPoolExecutor() as pool:
        parts = [
            pool.submit(run, module, where / name, only=only, honest=honest and name == "first")
            for name, only in (("first", first), ("second", second))
            if only
        ]
        done = [part.result() for part in parts]
    return Outcomes(
        [one for part in done for one in part.honest],
        {name: attempts for part in done for name, attempts in part.attempts.items()},
    )


def run(
    module: str,
    where: Path,
    *,
    only: Iterable[str] | None = None,
    honest: bool | None = None,
    timeout: float = 1800,
) -> Outcomes:
    """Run the mutation run of ``module``; with ``only`` these mutants, and no honest cases.

    ``honest`` overrides whether the honest cases run, so that a run with its own targets can be split.
    """
    made: MutationRun = importlib.import_module(module).mutation_run()
    where.mkdir(parents=True, exist_ok=True)
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, [*_paths(), os.environ.get("PYTHONPATH", "")])),
        "MUTATION_RUN": module,
        "MUTANTS_WHERE": str(where),
        "MUTANTS_ONLY": "" if only is None else ",".join(only),
        "MUTANTS_HONEST": "1" if (only is None if honest is None else honest) else "",
    }
    argv = ["-q", "--tb=line", "-p", "mutation_run", "--st-judge-all", "-p", "no:randomly", "-p", "no:xdist"]
    argv += ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    argv += ["--st-cases", str(where / "cases.jsonl"), "--st-results", str(where / "results.jsonl")]
    argv += [*made.options, str(ROOT / "suites" / "conformance" / made.suite)]
    done = run_pytest(argv, ROOT, environment, timeout=timeout)
    (where / "output.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode not in (0, 1):
        output = done.stdout[-4000:] + done.stderr[-2000:]
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{output}")
    if stopped := STOPPED.search(done.stdout):
        raise RuntimeError(f"the run ended before its last case: {stopped[0]}")
    outcomes = Outcomes(_lines(where / "cases.jsonl"), by_mutant(_lines(where / "attempts.jsonl")))
    warn_of_second_attempts(outcomes)
    return outcomes


def warn_of_second_attempts(outcomes: Outcomes) -> None:
    """Warn of the kills that only a second attempt made."""
    if unsteady := kills_of_second_attempts(outcomes):
        with warnings.catch_warnings():
            warnings.simplefilter("always")  # shown, no error
            warnings.warn(f"killed only in a second attempt: {', '.join(unsteady)}", stacklevel=1)


def kills_of_second_attempts(outcomes: Outcomes) -> list[str]:
    """Return ``MUTANT by CASE`` for each kill that only a second attempt made."""
    return [
        f"{attempt.mutant} by {attempt.case}"
        for attempts in outcomes.attempts.values()
        for attempt in attempts
        if attempt.repeated and attempt.kills
    ]


def surviving(mutants: Mapping[str, MutantInfo], outcomes: Outcomes, names: Iterable[str]) -> list[str]:
    """Return a line for each of ``names`` that no case killed, with the outcomes of its attempts.

    Where the mutant did nothing, the line has the case's message: what stood in the way.
    """
    lines = []
    for name in names:
        if outcomes.killers(name):
            continue
        tried = [
            f"{attempt.case} {attempt.outcome}"
            + ("" if attempt.acted else f" (the mutant did nothing: {_first_line(attempt)})")
            for attempt in outcomes.attempts.get(name, ())
        ]
        lines.append(f"{name} ({mutants[name].section}): {', '.join(tried) or 'no case names it'}")
    return lines


def _first_line(attempt: Attempt) -> str:
    return attempt.message.partition("\n")[0] or "no message"


def false_claims(outcomes: Outcomes) -> list[str]:
    """Return a line for each claim to kill a mutant that is not true."""
    return [
        f"{attempt.case} does not kill {attempt.mutant}: "
        f"{attempt.outcome}{'' if attempt.acted else ', it did nothing'}"
        for attempts in outcomes.attempts.values()
        for attempt in attempts
        if not attempt.kills
    ]


def unexplained_cases(outcomes: Outcomes) -> list[str]:
    """Return the cases that kill no mutant and have no ``no_mutant_reason``.

    A MAY allows both outcomes, so it needs no mutant.
    """
    return [
        case["id"]
        for case in outcomes.honest
        if not case["kills"] and not case["no_mutant_reason"] and case["level"] != "MAY"
    ]


def table(mutants: Mapping[str, MutantInfo], killers: Callable[[str], list[str]]) -> str:
    """Return the table of mutants as Markdown; ``killers`` returns the ids of the cases that kill one."""
    lines = ["| mutant | section | what is broken | killed by |", "| --- | --- | --- | --- |"]
    for name, mutant in sorted(mutants.items()):
        cases = killers(name)
        shown = ", ".join(cases[:4]) + (f" and {len(cases) - 4} more" if len(cases) > 4 else "")
        lines.append(f"| {name} | {mutant.section} | {mutant.description} | {shown or '**none**'} |")
    return "\n".join(lines) + "\n"


def check_page(
    page: Path,
    text: str,
    mutants: Mapping[str, MutantInfo],
    *,
    write: bool,
    tried: Container[str] | None,
) -> None:
    """Check that ``page`` is what a run writes, each mutant with a killer; with ``write``, write it first.

    ``tried`` has the mutants of this run (None: all): the page keeps its lines of the others. Which cases
    kill a mutant can differ from run to run, so that column is not compared.
    """
    if write:
        page.write_text(text if tried is None else keep_lines(page, text, tried), encoding="utf-8")
    listed = page.read_text(encoding="utf-8")
    missing = [name for name, mutant in mutants.items() if f"| {name} | {mutant.section} |" not in listed]
    assert not missing, f"docs/{page.name} does not list {', '.join(missing)}"
    assert "**none**" not in listed, f"docs/{page.name} lists a mutant that no case kills"
    others = [line for line in _without_killers(listed) if line not in set(_without_killers(text))]
    assert not others, f"docs/{page.name} has lines that --write-mutants does not write: {others[:3]}"
    assert _without_killers(listed) == _without_killers(text), (
        f"docs/{page.name} is not in the order that --write-mutants writes"
    )


def _without_killers(text: str) -> list[str]:
    """Return the lines of a page, those of the table without their last column."""
    return [
        line.rsplit(" | ", 1)[0] if line.startswith("| ") else line for line in text.rstrip("\n").split("\n")
    ]


def keep_lines(page: Path, text: str, tried: Container[str]) -> str:
    """Return ``text`` with the lines that ``page`` has of mutants that were not tried."""
    kept = {_mutant_in(line): line for line in page.read_text(encoding="utf-8").splitlines()}
    lines = [
        line if _mutant_in(line) in tried else kept.get(_mutant_in(line), line) for line in text.splitlines()
    ]
    return "\n".join(lines) + "\n"


def _mutant_in(line: str) -> str:
    """Return the name of the mutant in a line of a page; other lines are their own name."""
    return line.split(" | ", 1)[0].removeprefix("| ") if line.startswith("| ") else line


def unexpected_outcomes(records: Iterable[Mapping[str, Any]], kept: Sequence[str]) -> list[str]:
    """Return a line for each record whose outcome is not in ``kept``."""
    return [
        f"{record['id']} ({record['target']}) {record['outcome']}: {record['message'][:300]}"
        for record in records
        if record["outcome"] not in kept
    ]


def by_mutant(documents: Iterable[Mapping[str, Any]]) -> dict[str, list[Attempt]]:
    """Return the attempts on each mutant."""
    attempts: dict[str, list[Attempt]] = {}
    for document in documents:
        attempts.setdefault(document["mutant"], []).append(Attempt(**document))
    return attempts


def _paths() -> list[Path]:
    here = Path(__file__).parent
    return [here, here.parent / "controllers", here.parent / "kits", ROOT / "src"]


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# The plugin, which runs inside pytest.


class _MutantProxy:
    """One proxy for one kind of target, with the rewrites of its connections."""

    def __init__(self, mutation: MutationRun, kind: TargetKind) -> None:
        self._kind = kind
        self._stack = ExitStack()
        self._rewrites: list[Rewrite] = []
        self._make: Callable[[], Rewrite] = Rewrite
        host, port = ("127.0.0.1", 0) if kind.fresh else self._stack.enter_context(kind.serve())
        self._proxy = self._stack.enter_context(Proxy(host, port, mutation.splitter, self._rewrite))
        self.port, self.target_port = self._proxy.port, port

    def _rewrite(self) -> Rewrite:
        rewrite = self._make()
        self._rewrites.append(rewrite)
        return rewrite

    @contextmanager
    def before(self, make: Callable[[], Rewrite]) -> Iterator[list[Rewrite]]:
        """Make rewrites with ``make``; yield the list to which each one is added."""
        self._make, self._rewrites = make, []
        with ExitStack() as stack:
            if self._kind.fresh:
                self._proxy.address, self._proxy.target_port = stack.enter_context(self._kind.serve())
            try:
                yield self._rewrites
            finally:
                self._make = Rewrite
                self._proxy.drop()

    def close(self) -> None:
        self._stack.close()


class _Plugin:
    def __init__(self, mutation: MutationRun, where: Path, only: set[str], *, honestly: bool) -> None:
        self.mutation, self.where, self.only, self.honestly = mutation, where, only, honestly
        self.proxies = {
            kind + end: _MutantProxy(mutation, target)
            for kind, target in mutation.kinds.items()
            for end in (HONEST, BROKEN)
        }
        self.primed: set[str] = set()
        self.honest = ExitStack()
        for name, proxy in self.proxies.items():
            if name.endswith(HONEST):
                self.honest.enter_context(proxy.before(Rewrite))

    def targets(self) -> Path:
        """Write the targets file."""
        targets = {}
        for name, proxy in self.proxies.items():
            kind, _, end = name.rpartition("-")
            deadline = 10.0 if f"-{end}" == HONEST else self.mutation.timeout
            target = self.mutation.kinds[kind]
            endpoint = {
                "address": "127.0.0.1",
                "deadline": f"{deadline}s",
                **dict.fromkeys(target.ports, proxy.port),
            }
            if target.controls is not None:
                endpoint |= {"server": "here", "controls": target.controls(proxy.target_port)}
            targets[name] = {**target.options, **endpoint}
        local = {"here": {"transport": "local"}}
        document = {"version": 1, "clients": local, "servers": local, "targets": targets}
        path = self.where / "targets.yaml"
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        selected: list[pytest.Item] = []
        dropped: list[pytest.Item] = []
        for item in items:
            (selected if self._selected(item) else dropped).append(item)
        config.hook.pytest_deselected(items=dropped)
        items[:] = selected

    def _selected(self, item: pytest.Item) -> bool:
        from storagetest.plugin.conformance.cases import (
            case_of,  # not before pytest has rewritten its asserts
        )

        name = _target(item)
        if name is None or case_of(item) is None:
            return False
        if name.endswith(BROKEN):
            return bool(self._mutants(item))
        modules = (self.mutation.modules or {}).get(name.removesuffix(HONEST), "test_*.py")
        return self.honestly and any(item.path.match(each) for each in modules.split())

    def _mutants(self, item: pytest.Item) -> list[BrokenRule]:
        """Return the mutants that the case claims to kill on the target of ``item``."""
        from storagetest.plugin.conformance.cases import case_of

        case, kind = case_of(item), (_target(item) or "").removesuffix(BROKEN)
        if case is None:
            return []
        names = case.kills if self.mutation.chosen is None else self.mutation.chosen(case.id)
        named = [self.mutation.mutants[name] for name in names if name in self.mutation.mutants]
        return [
            mutant
            for mutant in named
            if self.mutation.kind_of(mutant) == kind and (not self.only or mutant.name in self.only)
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        name = _target(item) or ""
        proxy = self.proxies[name]
        if name.endswith(HONEST):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        mutants = self._mutants(item)
        if name not in self.primed:  # session fixtures use the honest target
            self.primed.add(name)
            with proxy.before(Rewrite):
                self._once(item, item.parent)
        for at, mutant in enumerate(mutants):
            last = at == len(mutants) - 1
            following = nextitem if last else item.parent
            began = time.monotonic()
            record, acted = self._attempt(item, following, mutant)
            if repeated := not (acted and record["outcome"] in KILLED):
                record, acted = self._attempt(item, following, mutant)
            seconds = time.monotonic() - began
            self._write(mutant, record, acted=acted, seconds=seconds, repeated=repeated)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _attempt(self, item: Any, following: Any, mutant: BrokenRule) -> tuple[dict[str, Any], bool]:
        """Run the case on the mutant; return its record, and whether the mutant acted."""
        with self.proxies[_target(item) or ""].before(mutant.rewrites()) as rewrites:
            record = self._once(item, following)
            return record, any(rewrite.acted for rewrite in rewrites)

    @staticmethod
    def _once(item: Any, nextitem: Any) -> dict[str, Any]:
        """Run the case with its parent as the next item, so that only its own fixtures end."""
        from storagetest.plugin.conformance import leftovers  # as above

        item._initrequest()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        leftovers.forget_stop(item.config)  # the next attempt has its own way to a target
        records = [getattr(report, _RECORD) for report in reports if hasattr(report, _RECORD)]
        return records[-1] if records else {"id": item.nodeid, "outcome": "error", "message": str(reports)}

    def _write(
        self, mutant: BrokenRule, record: dict[str, Any], *, acted: bool, seconds: float, repeated: bool
    ) -> None:
        attempt = {
            "mutant": mutant.name,
            "case": record["id"],
            "outcome": record["outcome"],
            "acted": acted,
            "message": record["message"][:400],
            "seconds": round(seconds, 3),
            "repeated": repeated,
        }
        with (self.where / "attempts.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(attempt) + "\n")

    def pytest_unconfigure(self) -> None:
        self.honest.close()
        for proxy in self.proxies.values():
            proxy.close()


def _target(item: pytest.Item) -> str | None:
    """Return the target of ``item``: without a matrix, the name of its variant."""
    from storagetest.plugin.parametrize import item_variant

    return item_variant(item)


LOOKS = 20
"""Looks at an honest target until one succeeds within a mutant's deadline, on a busy machine."""


def repeat_looks() -> None:
    """Repeat the suite's looks at a target, which one case makes for all others of the session."""
    from storagetest.plugin.conformance.first_look import Look  # not before pytest has rewritten its asserts

    look_once = Look.__init__

    def look_again(self: Look[Any], *arguments: Any, **options: Any) -> None:
        for _ in range(LOOKS):
            look_once(self, *arguments, **options)
            if self._error is None:
                break

    Look.__init__ = look_again  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start the proxies, and set their targets file before storagetest reads one.

    The targets are this process's own, so its locks are too: a case that waits for a mutant's answer holds
    up no other run.
    """
    from storagetest.runner import locks as lock_files  # as above

    name = os.environ.get("MUTATION_RUN")
    if name is None:
        return
    where = Path(os.environ.get("MUTANTS_WHERE") or tempfile.mkdtemp())
    only = set(filter(None, os.environ.get("MUTANTS_ONLY", "").split(",")))
    honestly = bool(os.environ.get("MUTANTS_HONEST", "1" if not only else ""))
    plugin = _Plugin(importlib.import_module(name).mutation_run(), where, only, honestly=honestly)
    config.option.st_targets = str(plugin.targets())
    config.pluginmanager.register(plugin, "mutants")
    locks = where / "locks"
    locks.mkdir(mode=0o700, exist_ok=True)
    lock_files.lock_directory = lambda: locks  # type: ignore[assignment]
    repeat_looks()
