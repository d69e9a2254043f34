"""Conformance cases: an id, a section, a level; and what was said on the wire.

``@pytest.mark.case("NVT-ICREQ-03", section="NVMe/TCP 3.1", level="MUST", kills=("mutant",))`` marks a case.
On parameters (``pytest.param(..., marks=pytest.mark.case("…-04"))``) a mark needs only what differs: what it
leaves out is taken from the function's, the class's or the module's mark. Rules:

1. An id names one case. Two cases of one id, or a marked case without id, section or level, end the run
   before it starts (exit code 4).
2. The level decides: a MUST that is not kept fails; a SHOULD warns (and fails under ``--st-strict``); a MAY
   is recorded. ``observe("…")`` records which legal alternative the target chose.
3. In a case, :class:`~storagetest.errors.RemoteProtocolError` is a failure and not an error: the target broke
   its protocol. Every other error of ours stays an error.
4. A case that proves nothing (:class:`~storagetest.plugin.outcomes.Invalid`) is INVALID whatever its level
   is.
5. A wire case (``needs("nvme-tcp-wire")``: any need that ends in ``-wire``) speaks to the target itself, so
   it runs once a target, on its first variant, and nowhere where that need is not met.
6. ``wire_log`` keeps the case's connections; their ladder is shown when the case fails. The ladder and a
   capture (pcap) of every case are in Allure's report. With ``--st-wire DIR`` they are written to
   ``DIR/VARIANT/CASE.txt`` and ``.pcap``; the next run of a case is ``CASE.2``: nothing is overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.plugin.outcomes import Invalid
from storagetest.plugin.parametrize import item_variant
from storagetest.plugin.run_state import KEY
from storagetest.report.allure import reporter as allure
from storagetest.report.coverage import CaseOutcome, CaseRecord, Level, coverage
from storagetest.wire.ladder import Decoder, ladder
from storagetest.wire.pcap import pcap_of
from storagetest.wire.tcp import RecordedConnection

__all__ = [
    "CaseMark",
    "Conformance",
    "WireLog",
    "case_of",
    "downgrade_to_may",
    "record_observation",
    "register",
    "set_duration",
    "wire_log_of",
]

_ATTRIBUTE = "storagetest_case"
_OBSERVED = pytest.StashKey[list[str]]()
_LOG = pytest.StashKey["WireLog"]()
_CASE = pytest.StashKey["CaseMark"]()
_TOOK = pytest.StashKey[float]()
_SHOWN_LINES = 60
_LONGEST_NAME = 200
"""Characters of a file name without its number and ending: file systems allow 255 bytes."""
_WORDS = {"warned": ("w", "WARNED"), "observed": ("o", "OBSERVED")}


@dataclass(frozen=True, slots=True)
class CaseMark:
    """The values of a ``case`` mark. ``no_mutant_reason`` explains why the case kills no mutant."""

    id: str
    section: str
    level: Level
    kills: tuple[str, ...] = ()
    no_mutant_reason: str = ""


@dataclass(frozen=True, slots=True)
class _Logged:
    link: RecordedConnection
    name: str
    decoder: Callable[[], Decoder]
    port: int


class WireLog:
    """The connections of one case. ``port`` is the one that Wireshark's dissector knows."""

    def __init__(self) -> None:
        self._links: list[_Logged] = []

    def add(self, link: RecordedConnection, *, name: str, decoder: Callable[[], Decoder], port: int) -> None:
        """Keep ``link``; ``decoder`` makes a fresh decoder for its ladder."""
        self._links.append(_Logged(link, name, decoder, port))

    def ladders(self) -> str:
        """Return every connection's ladder."""
        return "\n".join(
            ladder(one.link.transcript, one.decoder(), title=f"{one.name} ({one.link.peer}):")
            for one in self._links
        )

    def capture(self) -> bytes:
        """Return a pcap of all connections."""
        port = self._links[0].port if self._links else 0
        return pcap_of([one.link.transcript for one in self._links], server_port=port)

    def __bool__(self) -> bool:
        return bool(self._links)


def register(config: pytest.Config) -> None:
    """Register what watches over the cases."""
    config.pluginmanager.register(Conformance(config), "storagetest-conformance")


def case_of(item: pytest.Item) -> CaseMark | None:
    """Return what the marks of ``item`` say together; :class:`pytest.UsageError` if they say too little."""
    callspec = getattr(item, "callspec", None)
    nearest = [mark for mark in callspec.marks if mark.name == "case"] if callspec else []
    marks = nearest + [mark for mark in item.iter_markers("case") if mark not in nearest]
    if not marks:
        return None
    identifier = next((mark.args[0] for mark in marks if mark.args), None)
    said = {
        "no_mutant_reason" if name == "spares" else name: value
        for mark in reversed(marks)
        for name, value in mark.kwargs.items()
    }
    lacking = [name for name in ("section", "level") if name not in said]
    if not identifier or lacking or set(said) - {"section", "level", "kills", "no_mutant_reason"}:
        raise pytest.UsageError(
            f"{item.nodeid}: a case mark is case(id, section=…, level=…, kills=(…), no_mutant_reason=…); "
            f"it says {identifier!r} and {', '.join(said) or 'nothing else'}"
        )
    try:
        level = Level(said["level"])
    except ValueError:
        raise pytest.UsageError(
            f"{item.nodeid}: {said['level']!r} is no level: MUST, SHOULD or MAY"
        ) from None
    return CaseMark(
        str(identifier),
        str(said["section"]),
        level,
        tuple(said.get("kills", ())),
        str(said.get("no_mutant_reason", "")),
    )


def wire_log_of(item: pytest.Item) -> WireLog:
    """Return the log that the item's connections are to be added to."""
    return item.stash.setdefault(_LOG, WireLog())


def record_observation(item: pytest.Item, what: str) -> None:
    """Record ``what`` was observed: what the fixture ``observe`` does."""
    seen: list[str] = item.stash.setdefault(_OBSERVED, [])
    if what not in seen:
        seen.append(what)


def set_duration(item: pytest.Item, seconds: float) -> None:
    """Say how long the case itself took, where pytest's own time is not that."""
    item.stash[_TOOK] = seconds


def downgrade_to_may(item: pytest.Item) -> None:
    """Take the case for a MAY from here on: the target's protocol does not promise what it checks."""
    case = item.stash.get(_CASE, None)
    if case is not None:
        item.stash[_CASE] = replace(case, level=Level.MAY)


class Conformance:
    """The hooks. In xdist's controller it writes what the workers' reports carry."""

    def __init__(self, config: pytest.Config) -> None:
        self._strict: bool = config.option.st_strict
        self._wire: str | None = config.option.st_wire
        self._allure = bool(config.getoption("allure_report_dir", None))
        self._cases = Path(config.option.st_cases)
        self._writes = not hasattr(config, "workerinput")
        self._records: list[CaseRecord] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Read the marks, refuse doubled ids, and leave out what a wire case has no business with."""
        owners: dict[str, tuple[object, ...]] = {}
        for item in items:
            case = case_of(item)
            if case is None:
                continue
            item.stash[_CASE] = case
            owner = _owner(item)
            if owners.setdefault(case.id, owner) != owner:
                raise pytest.UsageError(
                    f"case {case.id} is there twice: {owners[case.id][0]} and {item.nodeid}"
                )
        dropped = {item for item in items if self._out_of_place(config, item)}
        if dropped:
            config.hook.pytest_deselected(items=list(dropped))
            items[:] = [item for item in items if item not in dropped]

    @staticmethod
    def _out_of_place(config: pytest.Config, item: pytest.Item) -> bool:
        identifier = item_variant(item)
        needs = {str(need) for mark in item.iter_markers("needs") for need in mark.args}
        wire = {need for need in needs if need.endswith("-wire")}
        if identifier is None or not wire:
            return False
        state = config.stash[KEY]
        variant = state.variants[identifier]
        first = next(one.id for one in state.variants.values() if one.target == variant.target)
        return identifier != first or not wire <= state.protocol(variant).capabilities(variant.options)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Start afresh: a case that is run again has a conversation of its own."""
        item.stash[_LOG] = WireLog()
        item.stash[_OBSERVED] = []
        case = case_of(item)
        if case is not None:
            item.stash[_CASE] = case

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let the level decide, and put the case's record and its ladder on the report."""
        report = yield
        case = item.stash.get(_CASE, None)
        if case is not None and (report.when == "call" or (report.when == "setup" and not report.passed)):
            self._judge(item, case, report, call)
        return report

    def _judge(
        self, item: pytest.Item, case: CaseMark, report: pytest.TestReport, call: pytest.CallInfo[None]
    ) -> None:
        error = call.excinfo.value if call.excinfo else None
        broken = isinstance(error, (AssertionError, RemoteProtocolError, pytest.fail.Exception))
        broken = broken or (report.failed and call.excinfo is None)  # known to fail, strictly, and it passes
        if isinstance(error, RemoteProtocolError) and report.when == "call":
            setattr(report, "storagetest_outcome", None)  # noqa: B010  # a claim about the target, not our error
        # What breaks before the case has begun is not the case's own claim: its level does not excuse it.
        level = case.level if report.when == "call" else Level.MUST
        invalid = isinstance(error, Invalid)
        outcome = (
            CaseOutcome.INVALID
            if invalid and report.failed
            else _outcome(report, level, broken=broken, strict=self._strict)
        )
        if outcome in (CaseOutcome.WARNED, CaseOutcome.OBSERVED):
            report.outcome = "passed"
        variant = item_variant(item)
        seen: list[str] = item.stash.get(_OBSERVED, [])
        seconds: float = item.stash.get(_TOOK, call.duration)
        record = CaseRecord(
            id=case.id,
            section=case.section,
            level=case.level,
            outcome=outcome,
            target=item.config.stash[KEY].variants[variant].target if variant else "",
            observed=tuple(seen),
            message="" if error is None else str(error) or type(error).__name__,
            seconds=round(seconds, 4),
            nodeid=item.nodeid,
            kills=case.kills,
            no_mutant_reason=case.no_mutant_reason,
        )
        setattr(report, _ATTRIBUTE, record.to_json())
        report.user_properties.append(
            ("case", f"{case.id} {case.section} {case.level.value} {outcome.value}")
        )
        self._show(record, variant or "", item.stash.get(_LOG, WireLog()), report)

    def _show(self, record: CaseRecord, variant: str, log: WireLog, report: pytest.TestReport) -> None:
        """Put the conversation where somebody will look for it; what nobody will see is not rendered."""
        shown = record.outcome in (CaseOutcome.FAILED, CaseOutcome.WARNED, CaseOutcome.ERROR)
        wanted = self._allure or self._wire is not None
        ladders = log.ladders() if log and (shown or wanted) else ""
        capture = log.capture() if log and wanted else b""
        if self._allure:
            allure.on_conformance(record, ladders=ladders, capture=capture)
        if self._wire is not None and log:
            path = _write_new(Path(self._wire) / _file_name(variant), _file_name(record.id), capture)
            path.with_name(f"{path.stem}.txt").write_text(ladders, encoding="utf-8")
        if shown and log:
            lines = ladders.splitlines()
            cut = [f"({len(lines) - _SHOWN_LINES} lines before)"] if len(lines) > _SHOWN_LINES else []
            report.sections.append(("wire", "\n".join(cut + lines[-_SHOWN_LINES:])))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Show a SHOULD that was not kept, and a MAY that is not done, as what they are."""
        outcome = getattr(report, _ATTRIBUTE, {}).get("outcome")
        return (outcome, *_WORDS[outcome]) if outcome in _WORDS else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in a case's outcome and write it down; one process writes."""
        document = getattr(report, _ATTRIBUTE, None)
        if document is None or not self._writes:
            return
        self._records.append(CaseRecord.from_json(document))
        with self._cases.open("a", encoding="utf-8") as file:
            file.write(json.dumps(document, ensure_ascii=False) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print sections against outcomes."""
        if not self._records:
            return
        terminalreporter.section("conformance")
        counted = coverage(self._records)
        for section, counts in counted.by_section.items():
            text = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items())
            terminalreporter.write_line(f"{section:32} {text}")
        for record in self._records:
            if record.outcome in (CaseOutcome.WARNED, CaseOutcome.KNOWN, CaseOutcome.INVALID):
                said = record.message.partition("\n")[0]
                terminalreporter.write_line(f"{record.outcome.value}: {record.id} ({record.section}): {said}")
        terminalreporter.write_line(f"cases: {self._cases}")


def _owner(item: pytest.Item) -> tuple[object, ...]:
    """Return what tells one case from another: its function and its parameters, the variant aside."""
    callspec = getattr(item, "callspec", None)
    params = callspec.params if callspec else {}  # its indices count over all variants
    return (
        item.nodeid.partition("[")[0],
        *sorted((name, repr(value)) for name, value in params.items() if name != "variant"),
    )


def _file_name(text: str) -> str:
    """Return ``text`` as a file name: percent-encoded but for letters, digits and ``_.-~``."""
    return quote(text, safe="").lstrip(".")[:_LONGEST_NAME]


def _write_new(directory: Path, name: str, capture: bytes) -> Path:
    """Write ``capture`` to ``NAME.pcap`` or, if that exists, ``NAME.2.pcap`` and so on; return the path."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = directory / f"{name}{f'.{number}' if number > 1 else ''}.pcap"
        with suppress(FileExistsError), path.open("xb") as file:
            file.write(capture)
            return path
    raise AssertionError("unreachable")


def _outcome(report: pytest.TestReport, level: Level, *, broken: bool, strict: bool) -> CaseOutcome:
    if hasattr(report, "wasxfail"):
        return CaseOutcome.KNOWN if report.skipped else CaseOutcome.PASSED  # a strict one is marked failed
    if report.skipped:
        return CaseOutcome.SKIPPED
    if report.passed:
        return CaseOutcome.OBSERVED if level is Level.MAY else CaseOutcome.PASSED
    if not broken:
        return CaseOutcome.ERROR
    if level is Level.MAY:
        return CaseOutcome.OBSERVED
    if level is Level.SHOULD and not strict:
        return CaseOutcome.WARNED
    return CaseOutcome.FAILED
