"""Sound controllers: the NVMe/TCP suite accuses none for a legal choice or for a limit that it announces.

Each is the small controller of tests/controllers with other choices. A case may be skipped there, if what it
needs is beyond a limit, but no case fails.
"""

from pathlib import Path
from typing import Any

import mutation_run
import pytest
from nvme_namespace import ONCS, ControllerConfig
from nvme_tcp_left_out import APART, OF_MANY_AT_ONCE, OF_NO_NAMESPACE, OFFSETS, QUEUES, TWO_ENDS
from nvme_tcp_mutation_run import NAMESPACE, UNANNOUNCED
from nvme_tcp_server import NQN, Server
from suite_runs import run_suite

from storagetest.wire.nvme_tcp.pdu import Fes

RESERVATIONS = 1 << 5
"""ONCS: reservations (Base 5.2.13.2.1)."""

SOUND = {
    "4-kib-blocks": ControllerConfig(
        block_size=4096,
        maxh2cdata=131072,
        r2t_piece=131072,
        msrc=0,
        dlfeat=0,
        unknown_ttag=Fes.SEQUENCE_ERROR,
        pads_term_data=True,
    ),
    "least-limits": ControllerConfig(
        block_size=4096,
        in_capsule=0,
        maxh2cdata=4096,
        r2t_piece=4096,
        mdts=1,
        mqes=1,
        max_qid=1,
        mssrl=1,
        mcl=1,
        msrc=0,
        vsl=1,
        wzsl=1,
        wusl=1,
        dmrl=1,
        dmrsl=1,
    ),
    "large-capsules": ControllerConfig(in_capsule=131072, maxh2cdata=131072, r2t_piece=512),
    "no-options": ControllerConfig(oncs=0, nsids=(3,), cpda=7, disable_flow_control=False),
    "no-digests": ControllerConfig(
        takes_digests=False,
        first_cntlid=0xFFE0,
        kas=10,
        ready_after=0.01,
        acl=0,
        aerl=0,
        elpe=0,
        mqes=7,
    ),
    "other-namespaces": ControllerConfig(
        block_size=4096,
        nsids=(5, 9, 40),
        nn=64,
        formats=3,
        ana=False,
        discovered=40,
        event_at_once=True,
        traffic_keeps_alive=False,
    ),
    "another-order": ControllerConfig(held_for=0.002, read_piece=512, success_flag=False, write_cache=False),
    "few-pages": ControllerConfig(
        block_size=4096,
        nsids=(0xFFFF_FF05,),
        nn=0xFFFF_FFFE,
        cpda=31,
        read_piece=1024,
        success_of_admin=True,
        capsule_offsets=False,
        lpa=0,
        version=0x00010300,
    ),
    "static-model": ControllerConfig(
        static=True,
        nsids=(3, 700),
        nn=1024,
        in_capsule=0,
        cpda=4,
        oncs=ONCS & ~RESERVATIONS,
        several_r2ts=True,
        r2t_piece=512,
        ready_after=0.01,
        timeout=1,
        least_timeout=3000,
        aborts=False,
    ),
}
"""Legal choices by name. The first has those of SPDK."""

TWO_NAMESPACES = (
    "NVB-PROTECT-ONE",
    *(f"NVB-TWO-NS-{name}" for name in ("COPY", "DSM", "MARK", "TOGETHER", "WRITE", "ZEROES")),
    *TWO_ENDS,
)
"""Cases of two namespaces."""

BEYOND_PAGES = (
    *(
        f"NVA-LOG-BEYOND-{page}"
        for page in (
            "ANA",
            "CHANGED-NAMESPACES",
            "EFFECTS",
            "ERROR",
            "RESERVATION-NOTIFICATION",
            "SMART",
            "SUPPORTED",
        )
    ),
    *(
        f"NVA-LOG-PAST-{page}"
        for page in ("CHANGED-NAMESPACES", "EFFECTS", "FEATURES", "FIRMWARE-SLOT", "SUPPORTED")
    ),
)
"""Cases of offsets of log pages."""

SKIPPED = {
    "4-kib-blocks": {
        "NVT-OFFSET-COMPARE",
        "NVB-SGL-LONG-WRITE",
        "NVB-COPY-FAILED-RANGE",
        "NVB-COPY-FAILED-RANGE-OF-TWO",
        "NVB-COPY-MCL",
        "NVB-COPY-08",
        "NVB-COPY-PAST-SECOND",
        "NVB-COPY-PAST-SECOND-ENDS",
        "NVB-COPY-PAST-THIRD",
        "NVB-COPY-PAST-TOGETHER",
        "NVB-COPY-RANGES",
        "NVB-COPY-SGL",
        "NVB-ZEROES-02",
        "NVB-ZEROES-DEAC-PARTS",
        "NVT-PIECES-FIRST-R2T",
        "NVT-SGL-06",
    },
    "least-limits": {
        "NVT-CQE-SQHD-LATE",
        *OF_MANY_AT_ONCE,
        *OFFSETS,
        "NVT-R2T-MOST",
        "NVB-SGL-LONG-COPY",
        "NVB-SGL-LONG-DSM",
        "NVB-SGL-LONG-WRITE",
        "NVT-NO-FLOW-TOGETHER",
        "NVB-COPY-FAILED-RANGE",
        "NVB-COPY-FAILED-RANGE-OF-TWO",
        "NVA-LOG-ERROR-QUEUES",
        "NVT-DGST-EACH-CAPSULE",
        "NVT-DGST-EACH-DATA",
        "NVB-UNC-SEVERAL",
        "NVB-WIDE-UNC",
        *(f"NVR-QUEUES-{name}" for name in QUEUES),
        "NVB-WIDE-VERIFY",
        "NVT-TERM-CROSSED",
        "NVT-DGST-PLACE-FIRST",
        "NVT-DGST-PLACE-LAST",
        "NVT-DGST-PLACE-MIDDLE",
        "NVB-CROSSED-QUEUE",
        "NVT-CID-BOTH-QUEUE",
        "NVT-JOINED-CAPSULES",
        "NVT-JOINED-CAPSULES-HD",
        "NVT-JOINED-DATA",
        "NVT-JOINED-DATA-HD",
        "NVT-SPLIT-MANY-CAPSULE",
        "NVT-SPLIT-MANY-CAPSULE-HD",
        "NVT-STEP-COMPARE-CAPSULE",
        "NVT-STEP-CONNECT-CAPSULE",
        "NVT-STEP-KEY-CAPSULE",
        "NVT-STEP-MANY-CAPSULE",
        "NVT-STEP-NSID-CAPSULE",
        "NVT-STEP-OPCODE-CAPSULE",
        "NVT-STEP-RANGES-CAPSULE",
        "NVT-STEP-WRITE-CAPSULE",
        "NVT-TTAG-OF-QUEUE",
        "NVT-SGL-SHORT-CAPSULE",
        "NVT-SPLIT-CAPSULE",
        "NVT-SPLIT-CAPSULE-HD",
        "NVT-SPLIT-NEXT",
        "NVB-TWO-NS-TOGETHER",
        "NVB-COPY-08",
        "NVB-COPY-PAST-ENDS",
        "NVB-COPY-PAST-SECOND",
        "NVB-COPY-PAST-SECOND-ENDS",
        "NVB-COPY-PAST-THIRD",
        "NVB-COPY-PAST-TOGETHER",
        "NVB-COPY-RANGES",
        "NVB-COPY-SGL",
        "NVB-DSM-SGL",
        "NVB-FAILED-ALONE",
        "NVB-NS-TOGETHER",
        "NVB-PENDING-QUEUE",
        "NVB-SEEN-QUEUE",
        "NVB-UNC-AMONG-COPY",
        "NVB-RW-04",
        "NVB-RW-07",
        "NVB-SEQUENCE-QUEUES-1",
        "NVB-SEQUENCE-QUEUES-2",
        "NVB-ZEROES-NLB",
        "NVF-AGAIN-SIZE",
        "NVF-CONNECT-LAST",
        "NVF-DISCONNECT-AGAIN",
        "NVF-DISCONNECT-OTHERS",
        "NVF-DISCONNECT-PENDING",
        "NVF-OWN-FLOW",
        "NVF-OWN-SIZE",
        "NVF-PAIR-CONNECT",
        "NVT-AFTER-END-02",
        "NVT-DEPTH-UNREAD",
        "NVT-DEPTH-UNREAD-DIGESTS",
        "NVT-C2H-08",
        "NVT-CQE-SQHD-EACH",
        "NVT-DGST-CAPSULE",
        "NVT-DGST-CAPSULE-LIVES",
        "NVT-DGST-CAPSULE-NOT-WRITTEN",
        "NVT-DGST-FULL-D",
        "NVT-DGST-FULL-HD",
        "NVT-OWN-HPDA-QUEUE",
        "NVT-OWN-MAXR2T-QUEUE",
        "NVT-PDO-PAD-CAPSULE",
        "NVT-R2T-05",
        "NVT-SGL-01",
        "NVT-SGL-05",
        "NVT-SGL-06",
        "NVT-TTAG-OTHER",
        "NVT-TWO-LARGE",
        "NVT-TWO-QUEUES",
        "NVT-TWO-READS",
        "NVT-TWO-WRITES",
    },
    "large-capsules": set(),
    "no-options": {
        "NVA-FEAT-CAPABLE-NAMESPACE",
        "NVT-NO-FLOW-SIZES-HD",
        "NVB-SGL-LONG-COPY",
        "NVB-SGL-LONG-DSM",
        "NVT-NO-FLOW-COMPARE",
        "NVT-NO-FLOW-MARKED",
        "NVT-NO-FLOW-PAST-END",
        "NVT-NO-FLOW-SIZES",
        "NVT-NO-FLOW-TOGETHER",
        "NVT-R2T-LIMIT-COMPARE-1",
        "NVT-R2T-LIMIT-COMPARE-2",
        "NVA-FEAT-ALL-05H",
        "NVA-FEAT-NAMESPACE-05H",
        "NVA-LOG-EFFECTS-RESERVATIONS",
        "NVB-MDTS-COMPARE-MOST",
        "NVB-MDTS-COMPARE",
        "NVT-STEP-COMPARE-ASKED",
        "NVT-STEP-COMPARE-CAPSULE",
        "NVT-STEP-KEY-ASKED",
        "NVT-STEP-KEY-CAPSULE",
        "NVT-STEP-RANGES-ASKED",
        "NVT-STEP-RANGES-CAPSULE",
        *TWO_NAMESPACES,
        *(f"NVA-ABORT-{name}" for name in ("COMPARE", "COPY", "DSM", "REGISTER")),
        "NVA-FEAT-CAPABLE",
        "NVA-ID-DESC-02",
        "NVB-NS-ALTERNATE",
        "NVB-NS-OWN",
        "NVB-NS-TOGETHER",
        "NVB-WRAP-COMPARE",
        "NVB-WRAP-UNC",
        "NVB-WRAP-VERIFY",
        "NVB-WRAP-ZEROES",
        "NVF-OWN-FLOW",
        "NVT-DGST-COMPARE",
    },
    "no-digests": {
        "NVT-DGST-FEATURE-ASKED",
        "NVT-DGST-CONNECT-IO",
        "NVT-QUEUE-CMD-HDGST",
        "NVT-QUEUE-CMD-HEADER-BIT",
        "NVT-ADMIN-DATA-HDGST",
        "NVF-DISCOVERY-HDGST",
        "NVA-KA-SHORT",
        "NVA-KA-SHORT-DISCOVERY",
        "NVA-KA-SHORT-IO",
        "NVA-KA-SHORT-RESET",
        "NVT-NO-FLOW-SIZES-HD",
        "NVA-ABORT-DIGEST",
        "NVR-EVENT-DIGEST-H",
        "NVR-EVENT-DIGEST-HD",
        "NVT-DGST-EACH-CAPSULE",
        "NVT-DGST-EACH-DATA",
        "NVA-AER-LEFT-FIRST",
        "NVA-AER-LEFT-LAST",
        "NVA-AER-LEFT-MIDDLE",
        "NVR-EVENT-LEFT-FIRST",
        "NVR-EVENT-LEFT-LAST",
        "NVR-EVENT-LEFT-MIDDLE",
        "NVT-DGST-CONNECT",
        "NVT-DGST-FEATURE",
        "NVT-DGST-PLACE-FIRST",
        "NVT-DGST-PLACE-LAST",
        "NVT-DGST-PLACE-MIDDLE",
        "NVF-DISCOVERY-DIGEST-D",
        "NVF-DISCOVERY-DIGEST-H",
        "NVF-DISCOVERY-DIGEST-HD",
        "NVT-JOINED-CAPSULES-HD",
        "NVT-JOINED-DATA-HD",
        "NVT-SPLIT-MANY-CAPSULE-HD",
        "NVT-SPLIT-MANY-DATA-HD",
        "NVA-LOG-ERROR-COUNT-MANY",
        "NVA-LOG-ERROR-FULL",
        "NVA-LOG-ERROR-ORDER",
        "NVA-LOG-ERROR-RESET",
        "NVA-LOG-ERROR-UNIQUE",
        "NVF-AGAIN-SIZE",
        "NVF-OWN-SIZE",
        "NVR-EVENT-ONE",
        *(f"NVT-DGST-{what}-{which}" for what in ("ADMIN", "READ", "WRITE") for which in ("D", "H", "HD")),
        *(
            f"NVT-{what}-{how}"
            for what in ("CMD-HDGST", "CMD-HEADER-BIT", "DATA-HDGST")
            for how in ("END", "TERM")
        ),
        "NVT-CMD-HDGSTF-END",
        "NVT-CMD-HDGSTF-TERM",
        "NVT-DGST-CAPSULE",
        "NVT-DGST-CAPSULE-LIVES",
        "NVT-DGST-CAPSULE-NOT-WRITTEN",
        "NVT-DGST-COMPARE",
        "NVT-DGST-OTHERS-COPY",
        "NVT-DGST-OTHERS-DSM",
        "NVT-DGST-OTHERS-REGISTER",
        "NVT-SPLIT-CAPSULE-HD",
        "NVT-SPLIT-DATA-HD",
        "NVT-DGST-DATA",
        "NVT-DGST-DATA-LATER",
        "NVT-DGST-DATA-LIVES",
        "NVT-DGST-DATA-NEXT",
        "NVT-DGST-DATA-NOT-WRITTEN",
        "NVT-DGST-FULL-D",
        "NVT-DGST-FULL-HD",
        "NVT-DGST-PER-QUEUE",
        "NVT-DGST-PIECES",
        "NVT-DGST-R2T-H",
        "NVT-DGST-R2T-HD",
        "NVT-DGST-SHORT",
        "NVT-HPDA-IO-15-H",
        "NVT-HPDA-IO-3-D",
        "NVT-HPDA-IO-31-HD",
        "NVT-PIECES-DIGEST",
    },
    "other-namespaces": {
        "NVT-OFFSET-COMPARE",
        "NVB-SGL-LONG-WRITE",
        "NVA-LOG-ANA-MEMBERS",
        "NVA-LOG-ANA-FIELDS",
        "NVA-FEAT-ALL-05H",
        "NVR-PTPL-ALL",
        "NVA-LOG-BEYOND-ANA",
        "NVA-LOG-PARTS-0CH",
        "NVA-ID-ANA-GROUP",
        "NVA-KA-TRAFFIC",
        "NVA-KA-TRAFFIC-IO",
        "NVA-LOG-ANA",
        "NVA-LOG-ANA-GROUPS",
        "NVA-LOG-RSVD-ANA",
        "NVT-SGL-06",
    },
    "another-order": set(),
    "few-pages": {
        "NVA-LOG-INDEX-STATED",
        "NVA-LOG-WRAP",
        "NVA-LOG-NUMDU",
        "NVA-LOG-EFFECTS-CHANGES",
        "NVA-LOG-EFFECTS-QUEUES",
        "NVA-LOG-EFFECTS-OACS",
        *APART,
        *OF_NO_NAMESPACE,
        *OFFSETS,
        "NVB-SGL-LONG-WRITE",
        "NVA-LOG-UNALIGNED-1",
        "NVA-LOG-UNALIGNED-2",
        "NVA-LOG-UNALIGNED-3",
        "NVR-QUEUES-HOSTID-0",
        "NVA-LOG-AGAIN-00H",
        "NVA-LOG-AGAIN-03H",
        "NVA-LOG-AGAIN-05H",
        "NVA-LOG-AGAIN-12H",
        "NVA-FEAT-ALL-05H",
        "NVA-FEAT-NAMESPACE-05H",
        "NVA-LOG-EFFECTS-RESERVATIONS",
        "NVR-PTPL-ALL",
        "NVR-PTPL-NAMESPACE",
        "NVB-NSID-BIT-16",
        "NVB-NSID-BIT-24",
        "NVB-NSID-BIT-31",
        "NVB-NSID-BIT-8",
        *BEYOND_PAGES,
        "NVA-LOG-PARTS-0CH",
        "NVB-NS-MARK-READ",
        "NVB-NS-MARK-VERIFY",
        *TWO_NAMESPACES,
        *(f"NVA-FEAT-NSID-{fid}H" for fid in ("01", "04", "05", "0B", "0F", "82", "83")),
        "NVA-LOG-PARTS-12H",
        "NVF-PROP-CRTO",
        "NVF-PROP-CRTO-TO",
        "NVR-NOTICE-BEYOND",
        "NVR-NOTICE-OFFSET",
        "NVR-NOTICE-OFFSET-NSID",
        "NVA-FEAT-SCOPE-01H",
        "NVA-FEAT-SCOPE-04H",
        "NVA-FEAT-SCOPE-0BH",
        "NVA-FEAT-SCOPE-0FH",
        "NVA-ID-CNS-05H-NSID-FFFFFFFE",
        "NVA-ID-CNS-08H-NSID-FFFFFFFE",
        "NVA-ID-CNTRLTYPE",
        "NVA-ID-DESC-02",
        "NVA-ID-DESC-03",
        "NVA-ID-NSID-FFFFFFFE",
        "NVA-KA-DISABLED",
        "NVA-KA-SHUTDOWN",
        "NVA-LOG-BEYOND",
        "NVA-LOG-EFFECTS",
        "NVA-LOG-EFFECTS-FIELDS",
        "NVA-LOG-EFFECTS-MANDATORY",
        "NVA-LOG-EFFECTS-OPTIONAL",
        "NVA-LOG-RSVD-EFFECTS",
        "NVA-LOG-INDEX",
        "NVA-LOG-OFFSET",
        "NVA-LOG-OFFSET-EFFECTS",
        "NVA-LOG-PART-EFFECTS",
        "NVA-LOG-PARTS-00H",
        "NVA-LOG-PARTS-01H",
        "NVA-LOG-PARTS-02H",
        "NVA-LOG-PARTS-05H",
        "NVB-FLUSH-03",
        "NVB-NS-ALTERNATE",
        "NVB-NS-COMPARE",
        "NVB-NS-OWN",
        "NVB-NS-TOGETHER",
        "NVB-NSID-COMPARE",
        "NVB-NSID-DSM",
        "NVB-NSID-FFFFFFFE",
        "NVB-NSID-VERIFY",
        "NVB-NSID-WRITE",
        "NVB-NSID-ZEROES",
        "NVF-CONNECT-HOSTID-0",
        "NVR-NOTICE-MASK-OTHER",
        "NVR-OWN-READ",
        "NVR-OWN-REPORT",
        "NVR-REPORT-GONE",
        "NVT-SGL-06",
    },
    "static-model": {
        "NVT-CQE-SQHD-EVENT",
        "NVA-KA-SHORT",
        "NVA-KA-SHORT-DISCOVERY",
        "NVA-KA-SHORT-IO",
        "NVA-KA-SHORT-RESET",
        *OFFSETS,
        "NVT-SGL-NONE-REGISTER",
        "NVB-SGL-LONG-COPY",
        "NVB-SGL-LONG-DSM",
        "NVB-SGL-LONG-WRITE",
        "NVA-ABORT-DIGEST",
        "NVT-DGST-EACH-CAPSULE",
        "NVA-LOG-EFFECTS-RESERVATIONS",
        "NVA-AER-ABORTED-ONE",
        "NVA-AER-LEFT-FIRST",
        "NVA-AER-LEFT-LAST",
        "NVA-AER-LEFT-MIDDLE",
        "NVB-NSID-BIT-8",
        "NVT-JOINED-CAPSULES",
        "NVT-JOINED-CAPSULES-HD",
        "NVT-SPLIT-MANY-CAPSULE",
        "NVT-SPLIT-MANY-CAPSULE-HD",
        "NVT-STEP-COMPARE-CAPSULE",
        "NVT-STEP-CONNECT-CAPSULE",
        "NVT-STEP-KEY-ASKED",
        "NVT-STEP-KEY-CAPSULE",
        "NVT-STEP-MANY-CAPSULE",
        "NVT-STEP-NSID-CAPSULE",
        "NVT-STEP-OPCODE-CAPSULE",
        "NVT-STEP-RANGES-CAPSULE",
        "NVT-STEP-WRITE-CAPSULE",
        "NVA-ABORT-REGISTER",
        "NVT-ASKED-RESERVE",
        "NVT-DGST-OTHERS-REGISTER",
        "NVT-SGL-SHORT-CAPSULE",
        "NVT-SGL-SHORT-ACQUIRE",
        "NVT-SGL-SHORT-REGISTER",
        "NVT-SGL-SHORT-RELEASE",
        "NVT-SGL-SHORT-REPORT",
        "NVT-SPLIT-CAPSULE",
        "NVT-SPLIT-CAPSULE-HD",
        "NVA-ABORT-TWICE",
        "NVA-AER-04",
        "NVF-CONNECT-05",
        "NVF-IPO-ADMIN-CNTLID",
        "NVF-PAIR-CONNECT",
        "NVT-AFTER-END-02",
        "NVT-DGST-CAPSULE",
        "NVT-DGST-CAPSULE-LIVES",
        "NVT-DGST-CAPSULE-NOT-WRITTEN",
        "NVT-DGST-FULL-D",
        "NVT-DGST-FULL-HD",
        "NVT-PDO-PAD-CAPSULE",
        "NVT-SGL-01",
        "NVT-SGL-05",
        "NVT-SGL-06",
    },
}
"""The cases that a sound controller cannot be asked, because they need more than it announces."""

ABSENT = ("NVB-FUSED-", *UNANNOUNCED)
"""Starts of the cases that ask for what none of these controllers has; the first by FUSES."""

OPTIONAL = (
    "NVA-FEAT-CAPABILITIES",
    "NVA-FEAT-DEFAULT",
    "NVA-FEAT-REFUSED-",
    "NVA-FEAT-SAVE",
    "NVA-FEAT-SELECT-",
    "NVA-FEAT-STAYS",
    "NVA-FEAT-UNKNOWN-SELECT-",
    "NVA-ID-NS-LIMITS",
    "NVA-SMART-MARKED",
    "NVB-COMPARE-",
    "NVB-COPY-",
    "NVB-CROSS-",
    "NVB-DSM-",
    "NVB-EVERY-",
    "NVB-FLAGS-",
    "NVB-HIGH-",
    "NVB-HOSTS-",
    "NVB-INACTIVE-",
    "NVB-LAST-",
    "NVB-MOST-",
    "NVB-NS-COMPARE",
    "NVB-NS-MARK-",
    "NVB-NSID-",
    *(f"NVB-PROTECT-{name}" for name in ("COMPARE", "COPY", "DSM", "MARK", "VERIFY", "ZEROES")),
    "NVB-SEEN-COPY",
    "NVB-SEEN-ZEROES",
    "NVB-TOGETHER-",
    "NVB-UNC-",
    "NVB-VERIFY-",
    "NVB-WIDE-",
    "NVB-ZEROES-",
    "NVR-",
    "NVT-ASKED-",
    "NVT-DGST-OTHERS-",
    "NVT-OFFSET-",
    "NVT-SGL-NONE-",
    "NVT-SGL-SHORT-",
)
"""Starts of the cases that ask for what ONCS announces."""


def _identity(nsid: int) -> str:
    return f"{NAMESPACE}{nsid % 100:02d}"


def run(
    config: ControllerConfig, where: Path, *options: str, named: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Run the suite on a new controller; return the records of the cases.

    ``named`` replaces options of the target.
    """
    with Server(personality=config) as server:
        target: dict[str, Any] = {
            "protocol": "nvme-tcp",
            "nqn": NQN,
            "address": "127.0.0.1",
            "port": server.port,
            "deadline": "180s",  # a bound on a hang: many transfers at once take a minute on a busy machine
        }
        nsid = config.nsids[0]
        target |= {"namespace": nsid, "erase": _identity(nsid)}
        target |= {
            "more_namespaces": [{"namespace": one, "erase": _identity(one)} for one in config.nsids[1:]]
        }
        target |= named or {}
        return run_suite({"sound": target}, where, "nvme_tcp", options=options)


def with_outcome(outcome: str, cases: list[dict[str, Any]]) -> set[str]:
    return {case["id"] for case in cases if case["outcome"] == outcome}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_controller_is_accused_by_no_case(name: str, tmp_path: Path) -> None:
    cases = run(SOUND[name], tmp_path)
    assert len(cases) > 350
    bad = mutation_run.unexpected_outcomes(cases, ("passed", "observed", "skipped"))
    assert not bad, "\n".join(bad)
    skipped = {case for case in with_outcome("skipped", cases) if not case.startswith(ABSENT)}
    if not SOUND[name].oncs:
        skipped = {case for case in skipped if not case.startswith(OPTIONAL)}
    if not SOUND[name].oncs & RESERVATIONS:
        skipped = {case for case in skipped if not case.startswith("NVR-")}
    wrong = skipped ^ SKIPPED[name]
    assert not wrong, f"a case is skipped exactly if it needs more: {sorted(wrong)}"


def test_a_connect_that_was_not_refused_is_reported_once(tmp_path: Path) -> None:
    """A controller that lets another host in is accused by the cases of that rule, not by CONNECT-17."""
    cases = run(ControllerConfig(joins_any_host=True), tmp_path, "-k", "test_fabrics")
    assert with_outcome("failed", cases) == {"NVF-CONNECT-13", "NVF-CONNECT-14"}


def test_a_case_leaves_no_mask_on_a_namespace(tmp_path: Path) -> None:
    """A mask that outlives resets, and is every host's, is a SHOULD; later cases have their notifications."""
    these = "mask_ends_with_a_reset or when_the_holder_unregisters"
    cases = run(ControllerConfig(namespace_masks=True), tmp_path, "-k", these)
    assert with_outcome("warned", cases) == {"NVR-MASK-RESET"}
    assert not with_outcome("failed", cases)
