"""All mutants of NFSv3, MOUNT, NLM and RPC; those for the cases that restart the server are apart."""

import nfs3_after_mutants  # noqa: F401
import nfs3_attribute_mutants  # noqa: F401
import nfs3_connection_mutants  # noqa: F401
import nfs3_data_mutants  # noqa: F401
import nfs3_directory_mutants  # noqa: F401
import nfs3_fresh_mutants  # noqa: F401
import nfs3_limit_mutants  # noqa: F401
import nfs3_lock_mutants  # noqa: F401
import nfs3_made_mutants  # noqa: F401
import nfs3_name_mutants  # noqa: F401
import nfs3_number_mutants  # noqa: F401
import nfs3_reached_mutants  # noqa: F401
import nfs3_restart_mutants  # noqa: F401
import nfs3_rpc_mutants  # noqa: F401
import nfs3_seldom_mutants  # noqa: F401
import nfs3_sequence_mutants  # noqa: F401
import nfs3_stated_mutants  # noqa: F401
import nfs3_time_mutants  # noqa: F401
import nfs3_unseen_mutants  # noqa: F401
import nfs3_whole_mutants  # noqa: F401
from nfs3_proxy_connection import MUTANTS as ALL

MUTANTS = {name: one for name, one in ALL.items() if one.kind is None}
RESTART_MUTANTS = {name: one for name, one in ALL.items() if one.kind == "restart"}

__all__ = ["MUTANTS", "RESTART_MUTANTS"]
