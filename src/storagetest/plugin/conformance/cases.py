"""Conformance cases: id, section and level of each case, its outcome, and its recorded connections.

``@pytest.mark.case("NVT-ICREQ-03", section="NVMe/TCP 3.1", level="MUST", kills=("mutant",))`` marks a case.
A mark on parameters (``pytest.param(..., marks=pytest.mark.case("…-04"))``) inherits missing values from the
mark of the function, the class or the module. Rules:

1. An id names one case. Two cases with the same id, or a marked case without id, section or level, end the
   run before it starts (exit code 4).
2. The level decides about a violation: a MUST fails; a SHOULD warns (and fails under ``--st-strict``); a MAY
   is recorded. ``observe("…")`` records which legal alternative the target chose.
3. In a case, :class:`~storagetest.errors.RemoteProtocolError` is a failure and not an error: the target
   violated its protocol. Any other :class:`~storagetest.errors.StoragetestError` is an error.
4. A case that raises :class:`~storagetest.plugin.outcomes.Invalid` is INVALID at every level.
5. A wire case (a need that ends in ``-wire``, such as ``needs("nvme-tcp-wire")``) connects to the target
   from the controller. It runs once per target, on its first variant, and only if that need is met.
6. A case that ``builds_on`` others is not judged if one of them failed
   (:mod:`storagetest.plugin.conformance.causes`).
7. ``wire_log`` keeps the case's connections; their ladder is shown if the case fails. The ladder and a
   capture (pcap) of every case are in Allure's report. With ``--st-wire DIR`` they are written to
   ``DIR/VARIANT/CASE.txt`` and ``.pcap``; the next run of a case is ``CASE.2``: nothing is overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.plugin.conformance import findings
from storagetest.plugin.conformance.causes import Built, Cause, Causes, NoClaim, bases_first
from storagetest.plugin.items import is_worker, item_variant, once_for_marks, parameters_of, wire_needs
from storagetest.plugin.outcomes import Invalid, mark_failed
from storagetest.plugin.run_state import KEY
from storagetest.report.allure import reporter as allure
from storagetest.report.coverage import (
    CaseOutcome,
    CaseRecord,
    KnownFault,
    Level,
    cause_lines,
    coverage,
)
from storagetest.wire.ladder import Decoder, ladder
from storagetest.wire.pcap import pcap_of
from storagetest.wire.tcp import RecordedConnection

DROPPED = pytest.StashKey[frozenset[str]]()
"""The ids of the wire cases that are deselected because no target has their need."""

_ATTRIBUTE = "storagetest_case"
_OBSERVED = pytest.StashKey[list[str]]()
_LOG = pytest.StashKey["WireLog"]()
_CASE = pytest.StashKey["CaseMark"]()
_DURATION = pytest.StashKey[float]()
_MUST_FAIL = pytest.StashKey[bool]()
_BECAUSE = pytest.StashKey[Cause | None]()
_KNOWN = pytest.StashKey["tuple[str, str]"]()
_KNOWN_FAULTS = pytest.StashKey[list[KnownFault]]()
_SHOWN_LINES = 60
_LONGEST_NAME = 200
"""Characters of a file name without its number and suffix: file systems allow 255 bytes."""
_MARK_KEYS = {"section", "level", "kills", "no_mutant_reason", "builds_on"}
_STATUS_TEXTS = {"warned": ("w", "WARNED"), "observed": ("o", "OBSERVED")}


@dataclass(frozen=True, slots=True)
class CaseMark:
    """The values of a ``case`` mark. ``no_mutant_reason`` explains why the case kills no mutant.

    ``builds_on`` are the ids of the cases without whose claims this one cannot be judged.
    """

    id: str
    section: str
    level: Level
    kills: tuple[str, ...] = ()
    no_mutant_reason: str = ""
    builds_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _LoggedConnection:
    link: RecordedConnection
    name: str
    decoder: Callable[[], Decoder]
    port: int


class WireLog:
    """The connections of one case. ``port`` is the server port that Wireshark's dissector uses."""

    def __init__(self) -> None:
        self._links: list[_LoggedConnection] = []

    def add(self, link: RecordedConnection, *, name: str, decoder: Callable[[], Decoder], port: int) -> None:
        """Add ``link``; ``decoder`` returns a new decoder for its ladder."""
        self._links.append(_LoggedConnection(link, name, decoder, port))

    def ladders(self) -> str:
        """Return every connection's ladder."""
        return "\n".join(
            ladder(logged.link.transcript, logged.decoder(), title=f"{logged.name} ({logged.link.peer}):")
            for logged in self._links
        )

    def capture(self) -> bytes:
        """Return a pcap of all connections."""
        port = self._links[0].port if self._links else 0
        return pcap_of([logged.link.transcript for logged in self._links], server_port=port)

    def has_received(self) -> bool:
        """Whether the target sent anything on one of the connections."""
        return any(not chunk.outgoing for logged in self._links for chunk in logged.link.transcript)

    def __bool__(self) -> bool:
        return bool(self._links)


def register(config: pytest.Config) -> None:
    """Register the hooks of conformance cases."""
    config.pluginmanager.register(Conformance(config), "storagetest-conformance")


def case_of(item: pytest.Item) -> CaseMark | None:
    """Merge the case marks of ``item``. Raises :class:`pytest.UsageError` for missing or unknown values."""
    return once_for_marks(item, _merged_marks)


def _merged_marks(item: pytest.Item) -> CaseMark | None:
    callspec = getattr(item, "callspec", None)
    nearest = [mark for mark in callspec.marks if mark.name == "case"] if callspec else []
    marks = nearest + [mark for mark in item.iter_markers("case") if mark not in nearest]
    if not marks:
        return None
    identifier = next((mark.args[0] for mark in marks if mark.args), None)
    values = {
        "no_mutant_reason" if name == "spares" else name: value
        for mark in reversed(marks)
        for name, value in mark.kwargs.items()
    }
    missing = [name for name in ("section", "level") if name not in values]
    if not identifier or missing or set(values) - _MARK_KEYS:
        raise pytest.UsageError(
            f"{item.nodeid}: expected case(id, section=…, level=…, kills=(…), no_mutant_reason=…, "
            f"builds_on=(…)); the marks have the id {identifier!r} and {', '.join(values) or 'nothing else'}"
        )
    try:
        level = Level(values["level"])
    except ValueError:
        raise pytest.UsageError(
            f"{item.nodeid}: unknown level {values['level']!r}; expected MUST, SHOULD or MAY"
        ) from None
    return CaseMark(
        str(identifier),
        str(values["section"]),
        level,
        tuple(values.get("kills", ())),
        str(values.get("no_mutant_reason", "")),
        _builds_on(item, str(identifier), values.get("builds_on", ())),
    )


def _builds_on(item: pytest.Item, identifier: str, value: object) -> tuple[str, ...]:
    """Return the ids in ``value`` without the case's own, which a mark of the whole module may contain."""
    if not isinstance(value, (tuple, list)) or not all(isinstance(each, str) for each in value):
        raise pytest.UsageError(f"{item.nodeid}: builds_on: expected a tuple of case ids, not {value!r}")
    return tuple(each for each in value if each != identifier)


def wire_log_of(item: pytest.Item) -> WireLog:
    """Return the log of the item's connections."""
    return item.stash.setdefault(_LOG, WireLog())


def record_observation(item: pytest.Item, text: str) -> None:
    """Record the observation ``text`` once, as the fixture ``observe`` does."""
    observed: list[str] = item.stash.setdefault(_OBSERVED, [])
    if text not in observed:
        observed.append(text)


def set_duration(item: pytest.Item, seconds: float) -> None:
    """Set the duration of the case, if it differs from the duration that pytest measures."""
    item.stash[_DURATION] = seconds


def downgrade_to_may(item: pytest.Item) -> None:
    """Treat the case as a MAY: the target's protocol does not promise what the case checks."""
    case = item.stash.get(_CASE, None)
    if case is not None:
        item.stash[_CASE] = replace(case, level=Level.MAY)


def note_known_issue(item: pytest.Item, reason: str, reference: str) -> None:
    """Note the entry that expects the case to fail, for the record of a known issue."""
    item.stash[_KNOWN] = (reason, reference)


def note_known_fault(item: pytest.Item, known: KnownFault) -> None:
    """Note a known fault of a reply for the record of the case, whatever its outcome."""
    item.stash.setdefault(_KNOWN_FAULTS, []).append(known)


def fail_at_every_level(item: pytest.Item) -> None:
    """Report the failure of the case as that of a MUST: an entry about it is wrong, or the target died."""
    item.stash[_MUST_FAIL] = True


class Conformance:
    """The hooks. xdist's controller writes the records that the workers' reports contain."""

    def __init__(self, config: pytest.Config) -> None:
        self._strict: bool = config.option.st_strict
        self._wire: str | None = config.option.st_wire
        self._allure = bool(config.getoption("allure_report_dir", None))
        self._cases = Path(config.option.st_cases)
        self._writes = not is_worker(config)
        self._records: list[CaseRecord] = []
        self._causes = None if config.option.st_judge_all else Causes()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Read the marks, refuse duplicate ids, and deselect wire cases if no target has the capability."""
        state = config.stash[KEY]
        owners: dict[str, tuple[object, ...]] = {}
        for item in items:
            case = case_of(item)
            if case is None:
                continue
            item.stash[_CASE] = case
            owner = _owner(item)
            if owners.setdefault(case.id, owner) != owner:
                raise pytest.UsageError(
                    f"two cases have the id {case.id}: {owners[case.id][0]} and {item.nodeid}"
                )
        dropped = {
            item
            for item in items
            if (variant := state.variant_of(item)) is not None and state.lacking(variant, wire_needs(item))
        }
        config.stash[DROPPED] = frozenset(item.stash[_CASE].id for item in dropped if _CASE in item.stash)
        if dropped:
            config.hook.pytest_deselected(items=list(dropped))
        kept = [_built(item) for item in items if item not in dropped]
        items[:] = [each.item for each in bases_first(kept)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Reset the log and the observations, because a case can run several times; skip it for a cause."""
        item.stash[_LOG] = WireLog()
        item.stash[_OBSERVED] = []
        item.stash[_BECAUSE] = None
        item.stash[_MUST_FAIL] = False
        item.stash[_KNOWN_FAULTS] = []
        case = case_of(item)
        if case is None:
            return
        item.stash[_CASE] = case
        variant = item_variant(item) or ""
        cause = self._causes.find(variant, case.builds_on) if self._causes is not None else None
        if cause is not None and not item.get_closest_marker("skip"):
            item.stash[_BECAUSE] = cause
            raise pytest.skip.Exception(cause.reason(variant), _use_item_location=True)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Determine the outcome by the level, and add the case's record and ladder to the report."""
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
        broken = broken or (report.failed and call.excinfo is None)  # a strict known issue that passes
        if isinstance(error, RemoteProtocolError) and report.when == "call":
            mark_failed(report)  # a claim about the target, not an error
        # A failure of the setup is no claim of the case, so the level of the case does not excuse it.
        must_fail = item.stash.get(_MUST_FAIL, False) or report.when != "call"
        level = Level.MUST if must_fail else case.level
        outcome = _outcome(report, level, broken=broken, strict=self._strict)
        if isinstance(error, Invalid) and report.failed:
            outcome = CaseOutcome.INVALID
        if outcome in (CaseOutcome.WARNED, CaseOutcome.OBSERVED):
            report.outcome = "passed"
        if report.when == "setup" and outcome is CaseOutcome.FAILED:
            mark_failed(report)  # pytest shows it as an error
        variant = item.config.stash[KEY].variant_of(item)
        observed: list[str] = item.stash.get(_OBSERVED, [])
        seconds: float = item.stash.get(_DURATION, call.duration)
        message = "" if error is None else str(error) or type(error).__name__
        if error is None and report.failed:
            message = str(report.longrepr)  # a known issue that passes
        if (
            outcome in (CaseOutcome.FAILED, CaseOutcome.WARNED)
            and report.when == "call"
            and error is not None
        ):
            message = findings.message_of(item, case.section, call)
            findings.show(report, message)
        because = item.stash.get(_BECAUSE, None)
        known = outcome is CaseOutcome.KNOWN
        reason, reference = item.stash.get(_KNOWN, ("", "")) if known else ("", "")
        known_faults: list[KnownFault] = item.stash.get(_KNOWN_FAULTS, [])
        values = asdict(case)
        del values["builds_on"]
        record = CaseRecord(
            **values,
            because=because.id if because is not None else "",
            outcome=outcome,
            target=variant.target if variant else "",
            observed=tuple(observed),
            message=message,
            seconds=round(seconds, 4),
            nodeid=item.nodeid,
            required=findings.requirement_of(item),
            reason=reason,
            reference=reference,
            known_faults=tuple(known_faults),
        )
        if self._causes is not None:
            is_claim = error is not None and not isinstance(error, NoClaim)
            self._causes.note(variant.id if variant else "", record, because, is_claim=is_claim)
        setattr(report, _ATTRIBUTE, record.to_json())
        report.user_properties.append(
            ("case", f"{case.id} {case.section} {case.level.value} {outcome.value}")
        )
        self._show(record, variant.id if variant else "", item.stash.get(_LOG, WireLog()), report)

    def _show(self, record: CaseRecord, variant: str, log: WireLog, report: pytest.TestReport) -> None:
        """Write the ladder and the capture to each output that is enabled; render nothing else."""
        shown = record.outcome in (CaseOutcome.FAILED, CaseOutcome.WARNED, CaseOutcome.ERROR)
        written = self._allure or self._wire is not None
        ladders = log.ladders() if log and (shown or written) else ""
        capture = log.capture() if log and written else b""
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
        """Report a violated SHOULD as WARNED, a MAY as OBSERVED, a case with a cause as NOT JUDGED."""
        document = getattr(report, _ATTRIBUTE, {})
        if document.get("because"):
            return "not judged", "n", "NOT JUDGED"
        outcome = document.get("outcome")
        return (outcome, *_STATUS_TEXTS[outcome]) if outcome in _STATUS_TEXTS else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a case's record to the file of cases; only the controller writes."""
        document = getattr(report, _ATTRIBUTE, None)
        if document is None or not self._writes:
            return
        self._records.append(CaseRecord.from_json(document))
        with self._cases.open("a", encoding="utf-8") as file:
            file.write(json.dumps(document, ensure_ascii=False) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the outcomes of each section."""
        if not self._records:
            return
        terminalreporter.section("conformance")
        counted = coverage(self._records)
        for section, counts in counted.by_section.items():
            text = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items())
            terminalreporter.write_line(f"{section:32} {text}")
        for record in self._records:
            if record.outcome in (CaseOutcome.WARNED, CaseOutcome.KNOWN, CaseOutcome.INVALID):
                text = record.message.partition("\n")[0]
                terminalreporter.write_line(f"{record.outcome.value}: {record.id} ({record.section}): {text}")
        for line in cause_lines(self._records):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"cases: {self._cases}")


def _built(item: pytest.Item) -> Built:
    variant, case = item_variant(item) or "", item.stash.get(_CASE, None)
    return Built(item, variant) if case is None else Built(item, variant, case.id, case.builds_on)


def _owner(item: pytest.Item) -> tuple[object, ...]:
    """Return the identity of a case: its function and its parameters without the variant."""
    values = parameters_of(item).items()  # the indices of a callspec count over all variants
    return (
        item.nodeid.partition("[")[0],
        *sorted((name, repr(value)) for name, value in values if name != "variant"),
    )


def _file_name(text: str) -> str:
    """Return ``text`` as a file name: percent-encoded except letters, digits and ``_.-~``."""
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
    if report.failed and not broken:
        return CaseOutcome.ERROR
    if level is Level.MAY:
        return CaseOutcome.OBSERVED
    if report.passed:
        return CaseOutcome.PASSED
    if level is Level.SHOULD and not strict:
        return CaseOutcome.WARNED
    return CaseOutcome.FAILED
