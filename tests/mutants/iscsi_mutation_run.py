"""The mutation run of the iSCSI mutants: the lab's LIO, without CHAP, with it, and with its own proof.

``STORAGETEST_LAB`` names the lab, which is up (see conftest.py).
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from control_port import controls
from iscsi_choices import Choices
from iscsi_controlled import ControlledTarget
from iscsi_each_form_mutants import MOST
from iscsi_full_unit import FullServer, FullUnit, UnitChoices
from iscsi_mutants import MUTANTS
from iscsi_ordered import ordered_server
from iscsi_rare_unit import RareConnection, RareUnit
from iscsi_strict_login import SECRET, USER, ChapLogin, strict_server
from iscsi_target import IQN, NAA, Server
from mutation_run import MutationRun, TargetKind

from storagetest.lab import Lab

PLAIN: dict[str, Any] = {
    "protocol": "iscsi",
    "iqn": "iqn.2026-11.org.storagetest:lab-plain",
    "lun": 2,
    "erase": "naa.600140557057e5700000000000000002",
}
CHAP: dict[str, Any] = {
    "protocol": "iscsi",
    "iqn": "iqn.2026-11.org.storagetest:lab-chap",
    "lun": 0,
    "erase": "naa.600140557057e5700000000000000003",
}
MUTUAL: dict[str, Any] = {
    "protocol": "iscsi",
    "iqn": "iqn.2026-11.org.storagetest:lab-mutual",
    "lun": 0,
    "erase": "naa.600140557057e5700000000000000004",
}
UNSOLICITED: dict[str, Any] = {"protocol": "iscsi", "iqn": IQN, "lun": 0, "erase": f"naa.{NAA.hex()}"}


@contextlib.contextmanager
def serve_unsolicited() -> Iterator[tuple[str, int]]:
    """Start the small target with what LIO has not: InitialR2T=No, any order, several R2Ts, 30 addresses."""
    with Server(Choices(unsolicited=True, disordered=True, r2ts=3, portals=30)) as server:
        yield "127.0.0.1", server.port


@contextlib.contextmanager
def serve_digests() -> Iterator[tuple[str, int]]:
    """Start the small target with digests, of additional headers and unsolicited data, which LIO has not."""
    with Server(Choices(digests=True, unsolicited=True)) as server:
        yield "127.0.0.1", server.port


@contextlib.contextmanager
def serve_thin() -> Iterator[tuple[str, int]]:
    """Start the small target with thin provisioning and a D_SENSE that can be changed, which LIO has not."""
    with Server(Choices(thin=True)) as server:
        yield "127.0.0.1", server.port


@contextlib.contextmanager
def serve_full() -> Iterator[tuple[str, int]]:
    """Start the unit with every reservation command, and COMPARE AND WRITE of several blocks."""
    with FullServer(FullUnit()) as server:
        yield "127.0.0.1", server.port


@contextlib.contextmanager
def serve_mixed() -> Iterator[tuple[str, int]]:
    """Start that unit with InitialR2T=No and ImmediateData=Yes."""
    with FullServer(FullUnit(), Choices(unsolicited=True)) as server:
        yield "127.0.0.1", server.port


@contextlib.contextmanager
def serve_queued() -> Iterator[tuple[str, int]]:
    """Start the small target, which asks for the data of one write at a time."""
    with Server(Choices(one_write=True)) as server:
        yield "127.0.0.1", server.port


@contextlib.contextmanager
def serve_strict() -> Iterator[tuple[str, int]]:
    """Start that unit on a target that checks each login, as LIO does; it needs no lab."""
    with strict_server() as server:
        yield "127.0.0.1", server.port


@contextlib.contextmanager
def serve_strict_chap() -> Iterator[tuple[str, int]]:
    """Start it with CHAP in every session, those of discovery among them."""
    with strict_server(ChapLogin) as server:
        yield "127.0.0.1", server.port


@contextlib.contextmanager
def serve_ordered() -> Iterator[tuple[str, int]]:
    """Start it with requests in their order, SNACK, and no key twice in a login; it needs no lab."""
    with ordered_server() as server:
        yield "127.0.0.1", server.port


def strict_chap_options(file: Path) -> dict[str, Any]:
    """Return the options of that target; ``file`` gets its secret."""
    file.write_text(SECRET, encoding="utf-8")
    return UNSOLICITED | {"chap": {"username": USER, "password": f"${{file:{file}}}"}}


@contextlib.contextmanager
def serve_limited() -> Iterator[tuple[str, int]]:
    """Start that unit with a MAXIMUM TRANSFER LENGTH, to which LIO does not keep."""
    with FullServer(FullUnit(UnitChoices(max_transfer=MOST))) as server:
        yield "127.0.0.1", server.port


@contextlib.contextmanager
def serve_protected() -> Iterator[tuple[str, int]]:
    """Start that unit write-protected, which LIO's is not."""
    with FullServer(FullUnit(UnitChoices(read_only=True))) as server:
        yield "127.0.0.1", server.port


@contextlib.contextmanager
def serve_controlled(file: Path) -> Iterator[tuple[str, int]]:
    """Start that unit with an administrator, who finds it by ``file``; the lab's target is not restarted."""
    with ControlledTarget(file) as server:
        yield "127.0.0.1", server.port


@contextlib.contextmanager
def serve_removable() -> Iterator[tuple[str, int]]:
    """Start that unit with a removable medium, which LIO's has not."""
    with FullServer(FullUnit(UnitChoices(removable=True))) as server:
        yield "127.0.0.1", server.port


@contextlib.contextmanager
def serve_rare() -> Iterator[tuple[str, int]]:
    """Start that unit with saved mode pages, QERR, LOG SELECT and RESERVE(10), which LIO has not."""
    with FullServer(RareUnit(), kind=RareConnection) as server:
        yield "127.0.0.1", server.port


def mutation_run() -> MutationRun:
    """Return the mutation run of the lab that is up."""
    lab = Lab.find(os.environ.get("STORAGETEST_LAB", "default"))
    assert lab is not None, "the lab is down"
    port = next(host.ports["iscsi"] for host in lab.status().hosts if "iscsi" in host.ports)
    named = {"implementation": {"name": "lio", "version": lab.status().kernel_release}}
    where = lab.targets_yaml.parent
    one_way = {"username": "storagetest", "password": f"${{file:{where / 'chap-password'}}}"}
    proof = {"username": "storagetest-target", "password": f"${{file:{where / 'chap-mutual-password'}}}"}
    chap = CHAP | named | {"chap": one_way}
    file = Path(tempfile.gettempdir(), f"storagetest-iscsi-controlled-{os.getpid()}")
    secret = Path(tempfile.gettempdir(), f"storagetest-iscsi-secret-{os.getpid()}")
    mutual = MUTUAL | named | {"chap": one_way | {"mutual": proof}}

    @contextlib.contextmanager
    def serve() -> Iterator[tuple[str, int]]:
        yield "127.0.0.1", port

    return MutationRun(
        "iscsi",
        MUTANTS,
        {
            "plain": TargetKind(PLAIN | named, serve),
            "chap": TargetKind(chap, serve),
            "mutual": TargetKind(mutual, serve),
            "unsolicited": TargetKind(UNSOLICITED, serve_unsolicited),
            "digests": TargetKind(UNSOLICITED, serve_digests),
            "thin": TargetKind(UNSOLICITED, serve_thin),
            "full": TargetKind(UNSOLICITED, serve_full),
            "mixed": TargetKind(UNSOLICITED, serve_mixed),
            "queued": TargetKind(UNSOLICITED, serve_queued),
            "limited": TargetKind(UNSOLICITED, serve_limited),
            "strict": TargetKind(UNSOLICITED, serve_strict),
            "strict-chap": TargetKind(strict_chap_options(secret), serve_strict_chap),
            "ordered": TargetKind(UNSOLICITED, serve_ordered),
            "protected": TargetKind(UNSOLICITED, serve_protected),
            "removable": TargetKind(UNSOLICITED, serve_removable),
            "rare": TargetKind(UNSOLICITED, serve_rare),
            "controlled": TargetKind(
                UNSOLICITED,
                partial(serve_controlled, file),
                fresh=True,
                controls=lambda _: controls(file),
            ),
        },
        lambda _from_target: lambda data: [data],  # a talk cuts the stream itself: digests begin late
        modules={
            "chap": "test_chap.py",
            "mutual": "test_chap.py",
            "unsolicited": "test_sessions.py test_steps.py test_agreed.py test_whole_lists.py test_apart.py "
            "test_longest.py test_login_stages.py test_many_sessions.py test_text_pieces.py "
            "test_own_limits.py test_left_open.py test_partial_data.py",
            "digests": "test_digest_headers.py test_digest_pieces.py test_digest_requests.py "
            "test_own_limits.py",
            "full": "test_reservations.py test_reservation_ports.py test_reservation_losses.py "
            "test_reservation_allowed.py test_scsi_data.py test_scsi_flags.py test_scsi_forms.py "
            "test_scsi_neighbours.py test_scsi_other_forms.py test_odd_sizes.py test_reservation_nexuses.py "
            "test_scsi_each_form.py test_scsi_reported_lengths.py test_reservation_events.py "
            "test_whole_lists.py test_scsi_agreement.py test_scsi_refused.py test_no_data.py "
            "test_scsi_usage_data.py test_scsi_diagnostic.py test_scsi_removal.py "
            "test_scsi_mode_descriptors.py test_lun_forms.py test_scsi_allocation.py test_many_sessions.py "
            "test_target_reset.py test_scsi_short_data.py test_scsi_subpages.py test_reservation_many.py "
            "test_third_nexus.py test_far_data.py test_reservation_removals.py test_reservation_each_type.py "
            "test_scsi_write_protect.py test_scsi_start_stop.py test_outside_window.py test_cleared_tasks.py "
            "test_scsi_copy.py test_scsi_buffers.py test_scsi_diagnostic_pages.py test_scsi_reports.py "
            "test_scsi_port_groups.py test_scsi_fresh_reads.py test_scsi_wrapped_ranges.py "
            "test_scsi_second_forms.py test_scsi_seldom_pages.py test_reservation_fields.py "
            "test_ignored_bits.py test_task_tags.py test_reservation_ignored.py test_scsi_queue_errors.py "
            "test_scsi_exact_limits.py test_scsi_saved_pages.py test_reservation_gone.py "
            "test_reservation_refused.py test_scsi_pending_attention.py test_scsi_most_compared.py "
            "test_scsi_mode_controls.py",
            "queued": "test_waiting_tasks.py",
            "strict": "test_login_defaults.py test_reinstatement.py test_partial_data.py",
            "strict-chap": "test_chap.py test_chap_sessions.py",
            "ordered": "test_gaps.py test_login_repeated.py test_recovery.py test_numbering.py "
            "test_key_ranges.py test_between.py",
            "removable": "test_scsi_removal.py",
            "rare": "test_scsi_saved_pages.py test_scsi_queue_errors.py test_scsi_log_parameters.py "
            "test_reservation_ten.py test_scsi_exact_limits.py test_scsi_mode_controls.py",
            "controlled": "test_resize.py test_restart.py test_reservation_removals.py",
            "mixed": "test_data_paths.py test_outside_window.py test_ignored_bits.py",
            "limited": "test_scsi_each_form.py",
            "protected": "test_scsi_each_form.py",
            "thin": "test_scsi_optional.py test_sense_formats.py test_scsi_mode_masks.py "
            "test_scsi_provisioning.py test_scsi_seldom.py test_scsi_allocation.py test_scsi_port_groups.py",
        },
        options=("-m", "not slow"),
    )
