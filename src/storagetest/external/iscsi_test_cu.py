"""libiscsi's iscsi-test-cu: about 230 tests of SCSI and iSCSI, one pytest item each (iscsi-test-cu(1)).

CUnit's summary counts a skipped test as passed, and its XML omits the sense data. Therefore the program runs
once per test, without XML, and its text output is parsed.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, ClassVar

from storagetest.errors import RemoteProtocolError
from storagetest.external.base import (
    ControllerSuite,
    Invocation,
    ItemOutcome,
    ItemResult,
    TargetInfo,
    register,
)
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.login import Credentials
from storagetest.wire.scsi.data import decode_designators, decode_inquiry, decode_vpd, implementation, wwids
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.tcp import RecordedConnection

_TEST = re.compile(r"^ALL\.(\w+\.\w+)\s*$", re.MULTILINE)
_BANNER = "CUnit - A unit testing framework"
_COUNTS = re.compile(r"^\s+tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", re.MULTILINE)
_NOTE = re.compile(r"\[(SKIPPED|FAILED)\]\s*(.*)")
_ASSERTION = re.compile(r"^\s+\d+\. (\S+:\d+\s+- .*)$", re.MULTILINE)
_DEADLINE = 120.0


@register
class IscsiTestCu(ControllerSuite):
    """libiscsi's iscsi-test-cu, run on this machine."""

    name: ClassVar[str] = "iscsi-test-cu"
    needs: ClassVar[frozenset[str]] = frozenset({"iscsi-wire"})
    program: ClassVar[str] = "iscsi-test-cu"
    package: ClassVar[str] = "libiscsi-bin (Debian) or libiscsi-utils"

    def listing(self) -> Invocation:
        """Return ``iscsi-test-cu --list``."""
        return Invocation((self.program, "--list"), deadline=15.0)

    def tests(self, stdout: str) -> tuple[str, ...]:
        """Return the names ``Suite.Test``. The other families contain the same tests."""
        return tuple(dict.fromkeys(_TEST.findall(stdout)))

    def invocation(self, test: str, options: Any, info: TargetInfo) -> Invocation:  # noqa: ANN401  # Iscsi.Options
        """Return the command that runs one test. libiscsi reads CHAP from environment variables."""
        address, port = options.wire_endpoint(options.address, options.port)
        host = f"[{address}]" if ":" in address else address
        url = f"iscsi://{host}:{port}/{options.iqn}/{options.lun}"
        env = {}
        for prefix, login in (("", options.chap), ("TARGET_", options.chap and options.chap.mutual)):
            if login is not None:
                env[f"LIBISCSI_CHAP_{prefix}USERNAME"] = login.username
                env[f"LIBISCSI_CHAP_{prefix}PASSWORD"] = login.password.reveal()
        argv = (
            self.program,
            "--normal",
            *(["--dataloss"] if info.may_erase else []),
            f"--test=ALL.{test}",
            url,
        )
        return Invocation(argv, env, min(_DEADLINE, 2 * options.deadline))

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        """Parse the output of one test. Text before CUnit's banner describes the unit, not the test."""
        before, banner, output = stdout.partition(_BANNER)
        counts = _COUNTS.search(output)
        if not banner or counts is None:
            tail = "\n".join((before + output + stderr).strip().splitlines()[-8:])
            return ItemResult(ItemOutcome.BROKEN, f"{test}: exit status {status} and no summary", tail)
        notes = [(kind, text.strip()) for kind, text in _NOTE.findall(output)]
        if int(counts[4]) or status not in (0, 1):
            assertions = _ASSERTION.findall(output) or [f"exit status {status}"]
            return ItemResult(
                ItemOutcome.FAILED, _first(notes, "FAILED") or assertions[0], _details(notes, output)
            )
        skipped = _first(notes, "SKIPPED")
        if skipped or not int(counts[2]):
            return ItemResult(
                ItemOutcome.SKIPPED, skipped or "the program ran no test", _details(notes, output)
            )
        return ItemResult(ItemOutcome.PASSED)

    def look(self, options: Any) -> TargetInfo:  # noqa: ANN401  # Iscsi.Options
        """Log in; return its implementation (INQUIRY) and whether its names (VPD 83h) include ``erase``."""
        address, port = options.wire_endpoint(options.address, options.port)
        credentials = None
        if options.chap is not None:
            credentials = Credentials(options.chap.username, options.chap.password.reveal().encode())
        name, may_erase = "", False
        with RecordedConnection.connect(address, port, deadline=options.deadline) as connection:
            initiator = Initiator(
                connection,
                name="iqn.2024-01.org.storagetest:identity",
                lun=options.lun,
                deadline=options.deadline,
            )
            try:
                initiator.login(target=options.iqn, credentials=credentials)
                unit = LogicalUnit(initiator)
                unit.clear_attentions()
                name = implementation(decode_inquiry(unit.inquiry().data))
                names = wwids(decode_designators(decode_vpd(unit.inquiry(0x83).data)))
                may_erase = options.erase is not None and options.erase in names
            except RemoteProtocolError:
                pass  # the target responds; the tests report what is wrong
            finally:
                initiator.close()
        return TargetInfo(name, may_erase=may_erase)


def _first(notes: list[tuple[str, str]], kind: str) -> str:
    return next((text for note, text in notes if note == kind), "")


def _details(notes: list[tuple[str, str]], output: str) -> str:
    """Return each distinct note with its count, then CUnit's list of assertions."""
    counted = Counter([*(f"[{kind}] {text}" for kind, text in notes), *_ASSERTION.findall(output)])
    return "\n".join(text if times == 1 else f"{text} ({times} times)" for text, times in counted.items())
