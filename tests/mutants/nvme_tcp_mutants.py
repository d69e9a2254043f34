"""Every broken rule that the NVMe/TCP cases claim to catch: name, section, what is broken, how."""

import nvme_tcp_access_mutants  # noqa: F401  # importing files them
import nvme_tcp_again_mutants  # noqa: F401  # importing files them
import nvme_tcp_alike_mutants  # noqa: F401
import nvme_tcp_announced_mutants  # noqa: F401
import nvme_tcp_apart_mutants  # noqa: F401
import nvme_tcp_between_mutants  # noqa: F401
import nvme_tcp_bound_mutants  # noqa: F401
import nvme_tcp_capsule_mutants  # noqa: F401
import nvme_tcp_coded_mutants  # noqa: F401
import nvme_tcp_command_mutants  # noqa: F401
import nvme_tcp_controlled_mutants  # noqa: F401
import nvme_tcp_controller_mutants  # noqa: F401
import nvme_tcp_corner_mutants  # noqa: F401
import nvme_tcp_depth_mutants  # noqa: F401
import nvme_tcp_each_queue_mutants  # noqa: F401
import nvme_tcp_edge_mutants  # noqa: F401
import nvme_tcp_event_mutants  # noqa: F401
import nvme_tcp_family_mutants  # noqa: F401
import nvme_tcp_form_mutants  # noqa: F401
import nvme_tcp_fresh_mutants  # noqa: F401
import nvme_tcp_gone_mutants  # noqa: F401
import nvme_tcp_halves_mutants  # noqa: F401
import nvme_tcp_host_mutants  # noqa: F401
import nvme_tcp_later_mutants  # noqa: F401
import nvme_tcp_left_mutants  # noqa: F401
import nvme_tcp_listed_mutants  # noqa: F401
import nvme_tcp_many_mutants  # noqa: F401
import nvme_tcp_model_mutants  # noqa: F401
import nvme_tcp_optional_mutants  # noqa: F401
import nvme_tcp_own_mutants  # noqa: F401
import nvme_tcp_pair_mutants  # noqa: F401
import nvme_tcp_pending_mutants  # noqa: F401
import nvme_tcp_preempted_mutants  # noqa: F401
import nvme_tcp_property_mutants  # noqa: F401
import nvme_tcp_protected_mutants  # noqa: F401
import nvme_tcp_rare_mutants  # noqa: F401
import nvme_tcp_refused_mutants  # noqa: F401
import nvme_tcp_repeated_mutants  # noqa: F401
import nvme_tcp_reported_mutants  # noqa: F401
import nvme_tcp_reservation_mutants  # noqa: F401
import nvme_tcp_reservation_state_mutants  # noqa: F401
import nvme_tcp_reset_mutants  # noqa: F401
import nvme_tcp_scope_mutants  # noqa: F401
import nvme_tcp_seldom_mutants  # noqa: F401
import nvme_tcp_selected_mutants  # noqa: F401
import nvme_tcp_sequence_mutants  # noqa: F401
import nvme_tcp_several_mutants  # noqa: F401
import nvme_tcp_side_mutants  # noqa: F401
import nvme_tcp_stage_mutants  # noqa: F401
import nvme_tcp_state_mutants  # noqa: F401
import nvme_tcp_stated_mutants  # noqa: F401
import nvme_tcp_stranger_mutants  # noqa: F401
import nvme_tcp_supported_mutants  # noqa: F401
import nvme_tcp_timer_mutants  # noqa: F401
import nvme_tcp_together_mutants  # noqa: F401
import nvme_tcp_transport_mutants  # noqa: F401
import nvme_tcp_two_namespace_mutants  # noqa: F401
import nvme_tcp_typed_mutants  # noqa: F401
import nvme_tcp_unfused_mutants  # noqa: F401
import nvme_tcp_unused_mutants  # noqa: F401
import nvme_tcp_value_mutants  # noqa: F401
import nvme_tcp_whole_mutants  # noqa: F401
import nvme_tcp_wrap_mutants  # noqa: F401
from nvme_tcp_rules import MUTANTS

__all__ = ["MUTANTS"]
