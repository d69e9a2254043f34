"""Sound NVMe/TCP controllers, each with one legal choice that many cases meet: none accuses it.

A whole run on each is in test_sound_nvme_tcp.py; here only the cases run that a choice concerns.
"""

from pathlib import Path
from typing import Any

import mutation_run
import pytest
from nvme_namespace import ControllerConfig
from nvme_tcp_mutation_run import NAMESPACE
from test_sound_nvme_tcp import run, with_outcome

from storagetest.wire.nvme.codes import Rtype, StatusCode

HOST = "nqn.2014-08.org.nvmexpress:uuid:99999999-2222-4333-8444-555555555555"

ONE_SESSION = "test_fabrics or test_controller_states or test_resets or test_left_alone or test_admin"
"""Cases of queues and controllers, most of which need one session (an expression of -k)."""

PAIRS = "test_two_controllers or test_two_hosts or test_own_parameters or test_reservation_state"
"""Cases of two sessions, or more."""


def accused_by_no_case(
    config: ControllerConfig, where: Path, cases: str, **named: Any
) -> list[dict[str, Any]]:
    """Run ``cases`` (an expression of ``-k``) on a new controller; return their records."""
    done = run(config, where, "-k", cases, named=named)
    bad = mutation_run.unexpected_outcomes(done, ("passed", "observed", "skipped"))
    assert not bad, "\n".join(bad)
    return done


def _skipped(cases: list[dict[str, Any]], reason: str) -> set[str]:
    return {case["id"] for case in cases if case["outcome"] == "skipped" and reason in case["message"]}


@pytest.mark.parametrize("types", [(1, 2), (5, 6)])
def test_a_reservation_type_that_is_not_announced_is_not_acquired(
    types: tuple[int, ...], tmp_path: Path
) -> None:
    """RESCAP bits 1 to 6 (NVM 4.1.5.1)."""
    these = "reserv or registrant or preempt or many_hosts or two_hosts or event or notif or left_alone"
    config = ControllerConfig(rescap_bits=0b1000_0001 | sum(1 << one for one in types))
    cases = accused_by_no_case(config, tmp_path, these)
    short = dict(zip(Rtype, ("WE", "EA", "WERO", "EARO", "WEAR", "EAAR"), strict=True))
    by_type = {f"NVR-{short[one]}-HOLDER": one for one in Rtype}
    assert {by_type[case] for case in with_outcome("passed", cases) & set(by_type)} == set(types)
    lacking = _skipped(cases, "RESCAP")
    assert {by_type[case] for case in lacking & set(by_type)} == set(Rtype) - set(types)


def test_a_namespace_that_is_write_protected_is_not_written(tmp_path: Path) -> None:
    """NSATTR bit 0 (NVM 4.1.5.1)."""
    these = "test_blocks or test_block_options or test_transfers"
    cases = accused_by_no_case(ControllerConfig(write_protected=True), tmp_path, these)
    assert len(_skipped(cases, "NSATTR")) > 40


@pytest.mark.parametrize("most", [2, 6])
def test_a_subsystem_of_few_controllers_is_not_accused(most: int, tmp_path: Path) -> None:
    """One more is Connect Controller Busy (Base 6.3); reservations are undone within this number."""
    config = ControllerConfig(most_controllers=most)
    cases = accused_by_no_case(config, tmp_path, f"{PAIRS} or many_hosts or NVF-RESET or preempts")
    lacking = _skipped(cases, "no controller is left")
    assert ("NVR-HOST-RELEASE" in lacking) == (most < 3)
    assert {"NVR-PREEMPT-KEEPS", "NVF-PAIR-CNTLID"} & with_outcome("passed", cases)


def test_a_subsystem_that_lets_one_host_in_is_not_accused(tmp_path: Path) -> None:
    """Another one is Connect Invalid Host (Base 6.3); the targets file names the one."""
    config = ControllerConfig(only_host=HOST)
    cases = accused_by_no_case(config, tmp_path, f"{ONE_SESSION} or {PAIRS}", host_nqn=HOST)
    passed = with_outcome("passed", cases)
    assert {"NVF-CONNECT-01", "NVF-PAIR-CNTLID", "NVF-RESET-03"} <= passed
    assert "NVR-HOST-RELEASE" in _skipped(cases, "host_nqn")


def test_cc_has_a_page_size_that_the_controller_supports(tmp_path: Path) -> None:
    """CAP.MPSMIN and MPSMAX (Base 3.1.4.1): a controller that is enabled with another one is not ready."""
    these = "test_controller_states or test_resets or test_left_connections or test_other_sides or limits"
    cases = accused_by_no_case(ControllerConfig(mpsmin=4, mdts=1), tmp_path, these)
    assert {"NVF-SHUTDOWN-02", "NVT-C2H-ADMIN"} <= with_outcome("passed", cases)


@pytest.mark.parametrize(
    "status",
    [StatusCode.ANA_INACCESSIBLE, StatusCode.UNRECOVERED_READ_ERROR],
)
def test_a_namespace_that_is_out_of_reach_is_left_out(status: StatusCode, tmp_path: Path) -> None:
    """The first namespace is one that the targets file does not name."""
    config = ControllerConfig(nsids=(1, 2, 3), out_of_reach={1: status})
    named = {
        "namespace": 2,
        "erase": f"{NAMESPACE}02",
        "more_namespaces": [{"namespace": 3, "erase": f"{NAMESPACE}03"}],
    }
    cases = accused_by_no_case(
        config, tmp_path, f"{ONE_SESSION} or {PAIRS} or namespace or families", **named
    )
    passed = with_outcome("passed", cases)
    assert {"NVB-NS-READ", "NVB-NS-ALTERNATE", "NVB-NS-TOGETHER", "NVF-RESET-03", "NVA-ABORT-03"} <= passed


def test_entries_of_no_command_and_registrants_of_no_controller_are_left_out(tmp_path: Path) -> None:
    """SQID and CID FFFFh in the error log (Base 5.2.12.1.2), CNTLID FFFFh in the report (7.8)."""
    config = ControllerConfig(hides_cntlid=True, logs_own_errors=True)
    these = "test_log_pages or test_other_sides or test_error_entries or test_many_hosts or upper_halves"
    cases = accused_by_no_case(config, tmp_path, these)
    assert {"NVA-LOG-ERROR-COMMAND", "NVA-LOG-ERROR-EACH", "NVR-MANY"} <= with_outcome("passed", cases)


def test_a_discovery_subsystem_may_list_itself_and_counters_may_stay_0(tmp_path: Path) -> None:
    """SUBTYPE 3 of the discovery log (Base 5.2.12.3.3); a SMART counter of 0 is not reported (5.2.12.1.3)."""
    config = ControllerConfig(lists_itself=True, counts_media=False)
    cases = accused_by_no_case(config, tmp_path, "discovery or smart or test_fabrics or test_log_pages")
    assert "NVF-DISCOVERY-05" in with_outcome("passed", cases)
    assert "NVA-SMART-UNITS" not in with_outcome("passed", cases)


def test_a_second_r2t_may_be_longer_than_the_first(tmp_path: Path) -> None:
    """R2TO and R2TL are the controller's choice (NVMe/TCP 3.6.2.9)."""
    config = ControllerConfig(first_r2t=512)
    cases = accused_by_no_case(config, tmp_path, "pieces or r2t or crossed or segments or test_transfers")
    assert {"NVT-PIECES-FIRST-R2T", "NVT-R2T-01"} <= with_outcome("passed", cases)


def test_what_a_controller_measures_is_another_at_each_reading(tmp_path: Path) -> None:
    """Temperature, spare, use and counts of the SMART log (Base 5.2.12.1.3)."""
    these = "test_log_pages or test_features or test_smart_counts or test_seldom_fields or agreement"
    cases = accused_by_no_case(ControllerConfig(measures=True), tmp_path, these)
    assert {"NVA-LOG-PARTS-02H", "NVA-LOG-PART-SMART"} <= with_outcome("passed", cases)


def test_an_event_of_the_vendor_may_come_before_one_that_waits(tmp_path: Path) -> None:
    """Events of other types have no order (Base 5.2.2)."""
    these = "test_registrant_keys or test_event_requests or test_event_masks"
    cases = accused_by_no_case(ControllerConfig(event_at_once=True), tmp_path, these)
    assert {"NVR-EVENT-KEPT", "NVR-EVENT-WAITED-ONCE"} <= with_outcome("passed", cases)


def test_admin_commands_are_completed_in_any_order(tmp_path: Path) -> None:
    """Those that are outstanding together have no order (Base 3.3.1)."""
    these = "test_event or test_admin or test_resets or test_abort or test_pending or test_two_controllers"
    cases = accused_by_no_case(ControllerConfig(admin_held_for=0.003), tmp_path, these)
    assert {"NVA-AER-ABORTED-ONE", "NVR-EVENT-WAITED-ONCE"} <= with_outcome("passed", cases)


def test_more_namespaces_than_one_list_has(tmp_path: Path) -> None:
    """A list has 1,024 NSIDs at most; the next one begins after the last of them (Base 5.2.13.2.2)."""
    config = ControllerConfig(nsids=tuple(range(1, 1101)), nn=4096, blocks=64)
    these = "test_admin or test_namespace_lists or test_namespaces or test_scopes or test_supported_lists"
    cases = accused_by_no_case(config, tmp_path, these)
    passed = with_outcome("passed", cases)
    assert {"NVA-ID-LIST-02", "NVA-ID-NS-03", "NVB-NS-INACTIVE", "NVA-ID-SET-LIST", "NVA-LOG-ANA"} <= passed


def test_metadata_may_be_at_the_end_of_the_data_of_each_block(tmp_path: Path) -> None:
    """FLBAS bit 4 and MS: an extended LBA of 512 and 8 bytes (NVM 2.1.4, 4.1.5.1)."""
    these = "test_block or test_namespace or test_transfers or test_admin or test_limits_taken or test_fused"
    cases = accused_by_no_case(ControllerConfig(block_size=520, metadata=8), tmp_path, these)
    assert {"NVB-RW-01", "NVB-NS-READ", "NVT-R2T-01", "NVA-ID-NS-02"} <= with_outcome("passed", cases)
