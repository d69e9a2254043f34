"""Every broken rule that the iSCSI cases claim to catch, by subject: importing files them."""

import iscsi_agreed_mutants  # noqa: F401
import iscsi_agreement_mutants  # noqa: F401
import iscsi_allocation_mutants  # noqa: F401
import iscsi_apart_mutants  # noqa: F401
import iscsi_block_mutants  # noqa: F401
import iscsi_controlled_mutants  # noqa: F401
import iscsi_data_mutants  # noqa: F401
import iscsi_descriptor_mutants  # noqa: F401
import iscsi_each_form_mutants  # noqa: F401
import iscsi_edge_mutants  # noqa: F401
import iscsi_event_mutants  # noqa: F401
import iscsi_family_mutants  # noqa: F401
import iscsi_flag_mutants  # noqa: F401
import iscsi_form_mutants  # noqa: F401
import iscsi_identity_mutants  # noqa: F401
import iscsi_limit_mutants  # noqa: F401
import iscsi_login_mutants  # noqa: F401
import iscsi_lun_mutants  # noqa: F401
import iscsi_many_mutants  # noqa: F401
import iscsi_mode_mutants  # noqa: F401
import iscsi_neighbour_mutants  # noqa: F401
import iscsi_nexus_mutants  # noqa: F401
import iscsi_offer_mutants  # noqa: F401
import iscsi_optional_mutants  # noqa: F401
import iscsi_other_form_mutants  # noqa: F401
import iscsi_path_mutants  # noqa: F401
import iscsi_pdu_mutants  # noqa: F401
import iscsi_port_mutants  # noqa: F401
import iscsi_portal_mutants  # noqa: F401
import iscsi_preempt_mutants  # noqa: F401
import iscsi_proof_mutants  # noqa: F401
import iscsi_protect_mutants  # noqa: F401
import iscsi_provisioning_mutants  # noqa: F401
import iscsi_rare_mutants  # noqa: F401
import iscsi_reinstatement_mutants  # noqa: F401
import iscsi_removal_mutants  # noqa: F401
import iscsi_reported_length_mutants  # noqa: F401
import iscsi_reported_mutants  # noqa: F401
import iscsi_reservation_mutants  # noqa: F401
import iscsi_scsi_mutants  # noqa: F401
import iscsi_seldom_mutants  # noqa: F401
import iscsi_sequence_mutants  # noqa: F401
import iscsi_session_mutants  # noqa: F401
import iscsi_size_mutants  # noqa: F401
import iscsi_stage_mutants  # noqa: F401
import iscsi_stated_mutants  # noqa: F401
import iscsi_step_mutants  # noqa: F401
import iscsi_task_mutants  # noqa: F401
import iscsi_third_mutants  # noqa: F401
import iscsi_usage_mutants  # noqa: F401
import iscsi_whole_list_mutants  # noqa: F401
import iscsi_whole_mutants  # noqa: F401
import iscsi_window_mutants  # noqa: F401
from iscsi_proxy_connection import MUTANTS

__all__ = ["MUTANTS"]
