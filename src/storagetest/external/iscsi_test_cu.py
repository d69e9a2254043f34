"""libiscsi's iscsi-test-cu: some 230 tests of SCSI and iSCSI, one pytest item each (iscsi-test-cu(1)).

The program prints what it finds and counts in CUnit's summary: a skipped test counts as passed there, and its
XML drops the sense data. So it is run test by test, without XML, and its text is read.
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
from storagetest.wire.scsi.data import decode_designators, decode_inquiry, decode_vpd, wwids
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.tcp import RecordedConnection

__all__ = ["IscsiTestCu"]

_TEST = re.compile(r"^ALL\.(\w+\.\w+)\s*$", re.MULTILINE)
_BANNER = "CUnit - A unit testing framework"
_COUNTS = re.compile(r"^\s+tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", re.MULTILINE)
_SAID = re.compile(r"\[(SKIPPED|FAILED)\]\s*(.*)")
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
        """Return ``Suite.Test`` names; other families only group the same tests."""
        return tuple(dict.fromkeys(_TEST.findall(stdout)))

    def invocation(self, test: str, options: Any, *, may_erase: bool) -> Invocation:  # noqa: ANN401  # Iscsi.Options
        """Return the run of one test; CHAP goes by libiscsi's environment variables."""
        address, port = options.wire_endpoint(options.address, options.port)
        host = f"[{address}]" if ":" in address else address
        url = f"iscsi://{host}:{port}/{options.iqn}/{options.lun}"
        env = {}
        if options.chap is not None:
            env = {
                "LIBISCSI_CHAP_USERNAME": options.chap.username,
                "LIBISCSI_CHAP_PASSWORD": options.chap.password.reveal(),
            }
            if options.chap.mutual is not None:
                env["LIBISCSI_CHAP_TARGET_USERNAME"] = options.chap.mutual.username
                env["LIBISCSI_CHAP_TARGET_PASSWORD"] = options.chap.mutual.password.reveal()
        argv = (self.program, "--normal", *(["--dataloss"] if may_erase else []), f"--test=ALL.{test}", url)
        return Invocation(argv, env, min(_DEADLINE, 2 * options.deadline))

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        """Read what one test printed; what it says before CUnit's banner is about the unit, not the test."""
        before, banner, said = stdout.partition(_BANNER)
        counts = _COUNTS.search(said)
        if not banner or counts is None:
            tail = "\n".join((before + said + stderr).strip().splitlines()[-8:])
            return ItemResult(ItemOutcome.BROKEN, f"{test}: exit status {status} and no summary", tail)
        notes = [(kind, text.strip()) for kind, text in _SAID.findall(said)]
        if int(counts[4]) or status not in (0, 1):
            assertions = _ASSERTION.findall(said) or [f"exit status {status}"]
            return ItemResult(
                ItemOutcome.FAILED, _first(notes, "FAILED") or assertions[0], _details(notes, said)
            )
        skipped = _first(notes, "SKIPPED")
        if skipped or not int(counts[2]):
            return ItemResult(
                ItemOutcome.SKIPPED, skipped or "the program ran nothing", _details(notes, said)
            )
        return ItemResult(ItemOutcome.PASSED)

    def look(self, options: Any) -> TargetInfo:  # noqa: ANN401  # Iscsi.Options
        """Log in; return the unit's vendor (INQUIRY), and whether ``erase`` is among its names (VPD 83h)."""
        address, port = options.wire_endpoint(options.address, options.port)
        known = None
        if options.chap is not None:
            known = Credentials(options.chap.username, options.chap.password.reveal().encode())
        vendor, may_erase = "", False
        with RecordedConnection.connect(address, port, deadline=options.deadline) as link:
            asker = Initiator(
                link,
                name="iqn.2024-01.org.storagetest:identity",
                lun=options.lun,
                deadline=options.deadline,
            )
            try:
                asker.login(target=options.iqn, credentials=known)
                unit = LogicalUnit(asker)
                unit.clear_attentions()
                vendor = decode_inquiry(unit.inquiry().data).vendor.strip()
                names = wwids(decode_designators(decode_vpd(unit.inquiry(0x83).data)))
                may_erase = options.erase is not None and options.erase in names
            except RemoteProtocolError:
                pass  # it answers; what is wrong with it, the tests say one by one
            finally:
                asker.close()
        return TargetInfo(vendor, may_erase)


def _first(notes: list[tuple[str, str]], kind: str) -> str:
    return next((text for said, text in notes if said == kind), "")


def _details(notes: list[tuple[str, str]], said: str) -> str:
    """Each thing said once, with how often; then CUnit's list of assertions."""
    counted = Counter(f"[{kind}] {text}" for kind, text in notes)
    lines = [text if times == 1 else f"{text} ({times} times)" for text, times in counted.items()]
    assertions = Counter(_ASSERTION.findall(said))
    lines += [text if times == 1 else f"{text} ({times} times)" for text, times in assertions.items()]
    return "\n".join(lines)
