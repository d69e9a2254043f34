"""Sound targets: the iSCSI suite accuses none for a legal choice (RFC 7143).

Each is the small target of tests/controllers with other choices. The cases are those of the modules that need
little of a logical unit; those of SCSI run on a unit that has nearly every command.
"""

from pathlib import Path
from typing import Any

import mutation_run
import pytest
from iscsi_choices import Choices
from iscsi_full_unit import FullConnection, FullServer, FullUnit, UnitChoices
from iscsi_rare_unit import RareConnection, RareUnit
from iscsi_seldom_choices import (
    Asking,
    BecomingReady,
    FewRegistrants,
    FewTypes,
    Grains,
    Hexadecimal,
    Irrelevant,
    LaterStandards,
    LongWrites,
    OneNexus,
    Pieces,
    RegistrantsTypes,
    ShortCommands,
    Shutting,
    SimpleTasks,
    StartingUnit,
    TwoSessions,
    VendorConnection,
    VendorUnit,
)
from iscsi_strict_login import OneLogin, StrictLogin
from iscsi_target import IQN, NAA, Server
from suite_runs import run_suite

from storagetest.wire.iscsi.codes import AsyncEvent
from storagetest.wire.scsi import cdb as c

EVENTS = (AsyncEvent.SCSI, AsyncEvent.RENEGOTIATE, AsyncEvent.TASK_TERMINATION)
"""The other events end the connection, or are the vendor's (tests/wire/test_wire_iscsi_faults.py)."""

LEGAL = {
    "plain": Choices(),
    "nops": Choices(nops=True),
    "one-write-at-a-time": Choices(one_write=True),
    "serial": Choices(serial=True),
    "small-bursts": Choices(burst=512),
    "closes-last": Choices(closes_last=True),
    "mirrors": Choices(mirrors=True),
    "digests": Choices(digests=True),
    "one-command": Choices(window=1),
    "small-segments": Choices(segment=512, burst=512, unsolicited=True),
    "busy": Choices(busy=True),
    "moved": Choices(moved=True),
    "longest-segments": Choices(segment=(1 << 24) - 1),
    "any-order": Choices(disordered=True, r2ts=3, segment=512),
    **{f"async-{event.name.lower()}": Choices(event=event) for event in EVENTS},
}
OPTIONAL = (
    c.MODE_SENSE_6, c.MODE_SENSE_10, c.MODE_SELECT_6, c.MODE_SELECT_10, c.LOG_SENSE, c.START_STOP_UNIT,
    c.READ_6, c.WRITE_6, c.READ_12, c.WRITE_12, c.VERIFY_10, c.VERIFY_12, c.VERIFY_16,
    c.WRITE_AND_VERIFY_10, c.WRITE_AND_VERIFY_12, c.WRITE_AND_VERIFY_16, c.WRITE_SAME_10, c.WRITE_SAME_16,
    c.PRE_FETCH_10, c.PRE_FETCH_16, c.SYNCHRONIZE_CACHE_10, c.SYNCHRONIZE_CACHE_16,
    c.COMPARE_AND_WRITE, c.ORWRITE_16, c.UNMAP, c.GET_LBA_STATUS,
    c.PERSISTENT_RESERVE_IN, c.PERSISTENT_RESERVE_OUT, c.RESERVE_6, c.RELEASE_6,
    c.REPORT_SUPPORTED_OPERATION_CODES, c.REPORT_TASK_MANAGEMENT, c.SEND_DIAGNOSTIC,
    c.PREVENT_ALLOW_MEDIUM_REMOVAL,
)  # fmt: skip
"""Commands that a direct-access block device need not have (SBC-4 5.1)."""
UNITS = {
    "write-protected": UnitChoices(read_only=True),
    "very-large": UnitChoices(blocks=1 << 33),
    "silent-releases": UnitChoices(silent_releases=True),
    "one-block": UnitChoices(max_transfer=1),
    "eight-blocks": UnitChoices(max_transfer=8),
    "one-command": UnitChoices(depth=1),
    "removable": UnitChoices(removable=True),
    "520-bytes": UnitChoices(block_size=520, blocks=100003),
    "few-commands": UnitChoices(without=OPTIONAL, pages=(0x00, 0x83), thin=False),
}
"""Units of tests/controllers/iscsi_full_unit.py that once were accused."""
UNIT_CASES = (
    "test_lun_forms.py",
    "test_data_paths.py",
    "test_many_sessions.py",
    "test_third_nexus.py",
    "test_far_data.py",
    "test_waiting_tasks.py",
    "test_outside_window.py",
    "test_cleared_tasks.py",
    "test_target_reset.py",
    "test_scsi_short_data.py",
    "test_scsi_subpages.py",
    "test_reservation_many.py",
    "test_scsi_allocation.py",
    "test_whole_lists.py",
    "test_scsi_agreement.py",
    "test_scsi_blocks.py",
    "test_scsi_data.py",
    "test_scsi_flags.py",
    "test_scsi_inquiry.py",
    "test_scsi_neighbours.py",
    "test_nexus_sequences.py",
    "test_scsi_seldom.py",
    "test_scsi_each_form.py",
    "test_scsi_reported_lengths.py",
    "test_scsi_refused.py",
    "test_scsi_usage_data.py",
    "test_scsi_diagnostic.py",
    "test_scsi_removal.py",
    "test_scsi_mode_descriptors.py",
    "test_no_data.py",
    "test_task.py",
    "test_task_sets.py",
    "test_reservations.py",
    "test_reservation_allowed.py",
    "test_reservation_losses.py",
    "test_reservation_ports.py",
    "test_reservation_removals.py",
    "test_reservation_each_type.py",
    "test_scsi_write_protect.py",
    "test_scsi_start_stop.py",
    "test_scsi_copy.py",
    "test_scsi_buffers.py",
    "test_scsi_diagnostic_pages.py",
    "test_scsi_reports.py",
    "test_scsi_port_groups.py",
    "test_scsi_fresh_reads.py",
    "test_scsi_wrapped_ranges.py",
    "test_scsi_second_forms.py",
    "test_scsi_seldom_pages.py",
    "test_reservation_fields.py",
    "test_scsi_other_forms.py",
    "test_reservation_ignored.py",
    "test_scsi_queue_errors.py",
    "test_scsi_exact_limits.py",
    "test_scsi_saved_pages.py",
    "test_scsi_log_parameters.py",
    "test_reservation_gone.py",
    "test_reservation_refused.py",
    "test_reservation_nexuses.py",
    "test_scsi_pending_attention.py",
    "test_scsi_most_compared.py",
    "test_scsi_mode_controls.py",
)
CASES = (
    "test_whole_lists.py",
    "test_logout.py",
    "test_nop.py",
    "test_task.py",
    "test_data.py::test_no_more_r2ts_are_outstanding_than_max_outstanding_r2t",
    "test_data.py::test_two_writes_whose_data_are_interleaved_are_both_right",
    "test_steps.py",
    "test_data.py::test_a_write_that_is_all_immediate_needs_no_r2t",
    "test_data.py::test_small_data_out_pdus_make_one_write",
    "test_agreed.py",
    "test_apart.py",
    "test_longest.py",
    "test_waiting_tasks.py",
    "test_outside_window.py",
    "test_cleared_tasks.py",
    "test_ignored_bits.py",
    "test_task_tags.py",
    "test_text_pieces.py",
    "test_own_limits.py",
    "test_left_open.py",
    "test_login_defaults.py::test_immediate_data_are_taken_if_the_login_does_not_name_them",
    "test_login_defaults.py::test_a_session_is_normal_if_its_login_names_no_type",
    "test_login_defaults.py::test_a_response_that_changes_the_stage_proposes_nothing",
    "test_login_defaults.py::test_the_cmd_sn_of_a_login_is_the_first_one_of_its_session",
    "test_pdu.py::test_a_command_with_each_task_attribute_is_executed",
    "test_pdu.py::test_a_data_segment_over_the_targets_max_recv_is_refused",
    "test_data_in.py::test_a_read_with_expected_length_zero_sends_no_data",
    "test_long.py::test_many_reads_at_once_each_get_their_own_data",
    "test_numbering.py::test_cmd_sn_passes_each_limit",
    "test_numbering.py::test_the_answer_to_a_nop_out_uses_a_stat_sn",
    "test_numbering.py::test_a_text_response_uses_a_stat_sn",
    "test_numbering.py::test_a_reject_uses_a_stat_sn",
    "test_numbering.py::test_the_logout_response_has_the_next_stat_sn",
    "test_sessions.py::test_unsolicited_data_of_two_writes_at_once_are_both_written",
    "test_task_sets.py::test_abort_task_ends_one_of_several_writes",
    "test_sessions.py::test_a_session_works_after_a_write_that_failed_while_its_data_came",
    "test_numbering.py::test_the_last_command_of_the_window_is_answered",
    "test_long.py::test_reads_and_pings_during_a_write_disturb_nothing",
    "test_data_in.py::test_data_in_comes_in_order_and_is_what_was_written",
    "test_full_feature.py::test_data_in_keep_to_a_segment_length_that_was_declared_later",
    "test_full_feature.py::test_ping_data_keep_to_a_segment_length_that_was_declared_later",
    "test_depth.py",
    "test_scsi_blocks.py::test_what_is_written_is_read",
    "test_unsafe.py::test_zero_blocks_leave_no_residual",
    "test_scsi_forms.py",
    "test_offers.py",
    "test_login_identity.py",
    "test_login_stages.py",
    "test_digest.py",
    "test_digest_headers.py",
    "test_digest_pieces.py",
    "test_digest_requests.py",
    "test_partial_data.py",
    "test_unsafe.py::test_immediate_data_beyond_the_expected_length_change_no_other_block",
    "test_login.py::test_no_request_is_served_before_the_login",
    "test_gaps.py::test_reads_may_have_the_task_tag_of_the_read_before",
    "test_gaps.py::test_writes_may_have_the_task_tag_of_the_write_before",
    "test_gaps.py::test_pings_may_have_the_task_tag_of_the_ping_before",
    "test_between.py",
    "test_key_ranges.py",
    "test_gaps.py::test_abort_of_a_cmd_sn_beyond_the_window_reports_no_task",
    "test_gaps.py::test_a_function_for_an_absent_unit_ends_no_task",
    "test_gaps.py::test_data_out_of_another_session_are_not_those_of_a_write",
    "test_gaps.py::test_a_segment_length_that_was_declared_later_is_that_of_its_session_alone",
    "test_login_repeated.py::test_a_key_behind_one_that_is_rejected_is_answered",
    "test_login_repeated.py::test_data_in_keep_to_a_segment_length_that_stands_behind_an_unknown_key",
    "test_login_repeated.py::test_none_is_found_in_a_list_of_authentication_methods",
    "test_login_repeated.py::test_a_login_succeeds_after_many_sessions_whose_connection_was_lost",
    "test_recovery.py::test_a_status_that_was_not_acknowledged_is_sent_again",
    "test_recovery.py::test_a_write_whose_data_were_discarded_goes_on_or_ends",
    "test_recovery.py::test_immediate_data_begin_behind_additional_headers",
    "test_recovery.py::test_a_residual_may_have_its_highest_bit",
)
INCOMPLETE = {
    "ISC-LOGOUT-08",  # the sessions of this target have no TSIH of their own
    "ISC-SNACK-01",
    "ISC-SNACK-02",
    "ISC-SNACK-03",
    "ISC-SNACK-04",
    "ISC-TMF-01",
    "ISC-TMF-03",
    "ISC-TMF-06",
    "ISC-TMF-08",
    "ISC-TMF-12",
}
"""Cases of what this target does not have."""


LOOSENED = ("ISC-LOGOUT-01", "ISC-LOGOUT-02", "ISC-DATAOUT-10", "ISC-R2T-04", "ISC-TMF-02")
"""Cases that once accused a sound target, and that of the abort which ISC-TMF-25 builds on."""


def run(
    choices: Choices,
    where: Path,
    *,
    made: Server | None = None,
    what: tuple[str, ...] = CASES,
    erase: str = f"naa.{NAA.hex()}",
) -> list[dict[str, Any]]:
    with made or Server(choices) as server:
        target = {
            "protocol": "iscsi",
            "iqn": IQN,
            "lun": choices.lun,
            "erase": erase,
            "deadline": "10s",
        }
        target |= {"address": "127.0.0.1", "port": server.port}
        cases = run_suite({"sound": target}, where, *(f"iscsi/{case}" for case in what))
    return [case for case in cases if case["id"] not in INCOMPLETE]


@pytest.mark.parametrize("name", LEGAL)
def test_a_sound_target_is_accused_by_no_case(name: str, tmp_path: Path) -> None:
    cases = run(LEGAL[name], tmp_path)
    assert len(cases) > 40
    bad = mutation_run.unexpected_outcomes(cases, ("passed", "observed", "skipped"))
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("name", UNITS)
def test_a_sound_unit_is_accused_by_no_case(name: str, tmp_path: Path) -> None:
    cases = run(Choices(), tmp_path, made=FullServer(FullUnit(UNITS[name])), what=UNIT_CASES)
    assert len(cases) > 150
    bad = mutation_run.unexpected_outcomes(cases, ("passed", "observed", "skipped"))
    assert not bad, "\n".join(bad)


RESERVATION_CASES = (
    "test_reservations.py",
    "test_reservation_allowed.py",
    "test_reservation_events.py",
    "test_reservation_limits.py",
    "test_reservation_ports.py",
    "test_reservation_removals.py",
    "test_reservation_each_type.py",
    "test_reservation_fields.py",
    "test_scsi_stated.py",
    "test_scsi_neighbours.py",
    "test_third_nexus.py",
    "test_nexus_sequences.py",
)
SELDOM: dict[str, tuple[type[FullUnit], type[FullConnection], tuple[str, ...], tuple[str, ...]]] = {
    "two-types": (FewTypes, FullConnection, RESERVATION_CASES, ("SCS-PR-WRITE-7", "SCS-PR-12", "SCS-PR-33")),
    "two-other-types": (RegistrantsTypes, FullConnection, RESERVATION_CASES, ("SCS-PR-WRITE-1", "SCS-PR-37")),
    "vendor": (
        VendorUnit,
        VendorConnection,
        ("test_scsi_inquiry.py", "test_scsi_optional.py", "test_scsi_refused.py", "test_scsi_families.py"),
        (),
    ),
    "later-standards": (
        LaterStandards,
        SimpleTasks,
        (
            "test_pdu.py::test_a_command_with_each_task_attribute_is_executed",
            "test_scsi_inquiry.py",
            "test_scsi_blocks.py",
            "test_scsi_provisioning.py",
            "test_scsi_seldom.py",
            "test_scsi_optional.py",
            "test_scsi_other_forms.py",
            "test_scsi_allocation.py",
            "test_scsi_stated.py",
            "test_scsi_families.py",
            "test_scsi_fresh_reads.py",
            "test_scsi_second_forms.py",
            "test_scsi_wrapped_ranges.py",
            "test_sense_formats.py",
        ),
        ("SCS-OPS-TIMEOUTS-ONE", "ISC-PDU-18", "ISC-PDU-19"),
    ),
    "three-registrants": (
        FewRegistrants,
        FullConnection,
        (
            "test_third_nexus.py",
            "test_reservation_many.py",
            "test_reservation_nexuses.py",
            "test_reservation_events.py",
        ),
        ("SCS-PR-TYPE-1",),
    ),
    "becoming-ready": (
        StartingUnit,
        BecomingReady,
        (
            "test_task.py",
            "test_sessions.py::test_a_logical_unit_reset_ends_reserve_6",
            "test_task_sets.py",
            "test_lun_forms.py",
            "test_nexus_sequences.py",
            "test_target_reset.py",
            "test_sense_formats.py",
            "test_third_nexus.py",
            "test_scsi_neighbours.py",
            "test_scsi_stated.py",
            "test_scsi_second_forms.py",
            "test_scsi_optional.py",
        ),
        (),
    ),
    "grains": (
        Grains,
        FullConnection,
        (
            "test_scsi_blocks.py",
            "test_scsi_data.py",
            "test_scsi_optional.py",
            "test_scsi_stated.py",
            "test_scsi_short_data.py",
            "test_scsi_fresh_reads.py",
            "test_scsi_second_forms.py",
            "test_scsi_wrapped_ranges.py",
            "test_no_data.py",
        ),
        (),
    ),
    "hexadecimal": (
        FullUnit,
        Hexadecimal,
        (
            "test_offers.py",
            "test_agreed.py",
            "test_steps.py",
            "test_portals.py",
            "test_scsi_agreement.py",
            "test_login.py::test_the_target_declares_its_portal_group_tag",
        ),
        (),
    ),
    "irrelevant": (
        FullUnit,
        Irrelevant,
        (
            "test_offers.py",
            "test_agreed.py",
            "test_keys.py::test_the_response_to_an_offer_follows_the_key[sound-FirstBurstLength-16384]",
            "test_keys.py::test_first_burst_length_never_ends_up_over_max_burst_length",
        ),
        (),
    ),
    "pieces": (
        FullUnit,
        Pieces,
        (
            "test_offers.py",
            "test_agreed.py",
            "test_login_identity.py",
            "test_login_stages.py",
            "test_login.py::test_the_target_declares_its_portal_group_tag",
            "test_login.py::test_a_login_may_begin_in_the_security_stage_with_auth_method_none",
        ),
        (),
    ),
    "shut-window": (
        FullUnit,
        Shutting,
        ("test_numbering.py", "test_nop.py", "test_data_in.py", "test_outside_window.py"),
        (),
    ),
    "one-exchange-more": (
        FullUnit,
        Asking,
        ("test_login.py::test_text_that_continues_in_a_second_request_gets_an_empty_response",),
        (),
    ),
    "no-write-10": (
        LongWrites,
        FullConnection,
        (
            "test_task.py",
            "test_task_sets.py",
            "test_scsi_blocks.py",
            "test_scsi_data.py",
            "test_scsi_usage_data.py",
            "test_nexus_sequences.py",
            "test_third_nexus.py",
        ),
        ("SCS-RW-01", "SCS-DATA-01", "ISC-TMF-02"),
    ),
    "rare": (
        RareUnit,
        RareConnection,
        (
            "test_scsi_saved_pages.py",
            "test_scsi_queue_errors.py",
            "test_scsi_log_parameters.py",
            "test_reservation_ten.py",
            "test_scsi_exact_limits.py",
            "test_scsi_mode_controls.py",
            "test_scsi_pending_attention.py",
            "test_reservation_ignored.py",
            "test_scsi_mode_masks.py",
            "test_scsi_second_forms.py",
            "test_scsi_optional.py",
            "test_scsi_write_protect.py",
            "test_third_nexus.py",
            "test_cleared_tasks.py",
            "test_sense_formats.py",
        ),
        (),
    ),
    "strict-login": (
        FullUnit,
        StrictLogin,
        (
            "test_login_defaults.py",
            "test_login_identity.py",
            "test_login_refused.py",
            "test_login_stages.py",
            "test_reinstatement.py::test_a_login_that_is_refused_for_what_it_asks_reinstates_nothing",
            "test_reinstatement.py::test_a_login_that_is_not_ended_reinstates_nothing",
        ),
        (),
    ),
    "one-login": (
        FullUnit,
        OneLogin,
        (
            "test_login_defaults.py",
            "test_login_identity.py",
            "test_login_refused.py",
            "test_login_stages.py",
            "test_reinstatement.py::test_a_login_that_is_refused_for_what_it_asks_reinstates_nothing",
            "test_reinstatement.py::test_a_login_that_is_not_ended_reinstates_nothing",
        ),
        (),
    ),
    "one-nexus": (
        FullUnit,
        OneNexus,
        ("test_third_nexus.py", "test_reservation_losses.py", "test_reservation_removals.py", "test_task.py"),
        ("SCS-PR-ABORT-HOLDER", "SCS-PR-ABORT-BOTH", "ISC-TMF-RESET-EACH"),
    ),
    "two-sessions": (
        FullUnit,
        TwoSessions,
        ("test_reservations.py", "test_reservation_many.py", "test_third_nexus.py", "test_scsi_data.py"),
        ("SCS-PR-23", "SCS-PR-80", "SCS-PR-MANY-KEYS"),
    ),
}
"""Unit, connection, cases, and some of the cases that are skipped because of the choice."""


@pytest.mark.parametrize("name", SELDOM)
def test_a_seldom_choice_is_accused_by_no_case(name: str, tmp_path: Path) -> None:
    unit, connection, what, lacking = SELDOM[name]
    made = FullServer(unit(UnitChoices()), kind=connection)
    more = {"erase": unit.identity} if issubclass(unit, LaterStandards) else {}
    cases = run(Choices(), tmp_path, made=made, what=what, **more)
    bad = mutation_run.unexpected_outcomes(cases, ("passed", "observed", "skipped"))
    assert not bad, "\n".join(bad)
    skipped = {case["id"] for case in cases if case["outcome"] == "skipped"}
    assert set(lacking) <= skipped
    assert len(skipped) < len(cases) / 2


def test_a_unit_of_sbc_2_may_lack_the_commands_of_16_bytes(tmp_path: Path) -> None:
    """READ CAPACITY(16) is optional without protection information (SBC-2); its version is SPC-3."""
    choices = UnitChoices(thin=False, pages=(0x00, 0x83))
    what = ("test_about.py", "test_data_in.py", "test_nop.py")
    cases = run(Choices(), tmp_path, made=FullServer(ShortCommands(choices)), what=what)
    bad = mutation_run.unexpected_outcomes(cases, ("passed", "observed", "skipped"))
    assert not bad, "\n".join(bad)
    outcomes = {case["id"]: case["outcome"] for case in cases}
    assert (outcomes["SCS-LOOK-01"], outcomes["SCS-LOOK-02"]) == ("skipped", "passed")
    assert outcomes["ISC-DATAIN-15"] == "passed"


def test_a_late_response_of_an_aborted_task_is_reported_by_the_cases_of_that_rule(tmp_path: Path) -> None:
    """ISC-TMF-25 tests whether the session works, whatever came late."""
    cases = run(Choices(answers_aborted=True), tmp_path)
    assert [case["outcome"] for case in cases if case["id"] == "ISC-TMF-25"] == ["passed"]


@pytest.mark.parametrize(
    "mutant", ["logout-failed", "logout-open", "abort-not-done", "r2t-over-burst", "r2t-outstanding"]
)
def test_the_cases_that_allow_more_still_kill_what_they_name(mutant: str, tmp_path: Path) -> None:
    attempts = mutation_run.run("iscsi_sound_run", tmp_path, only=[mutant]).attempts[mutant]
    loose = [one for one in attempts if one.case in LOOSENED]
    assert loose, "no case that names the mutant was run"
    assert not [f"{one.case}: {one.outcome} {one.message}" for one in loose if not one.kills]
