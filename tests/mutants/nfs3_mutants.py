"""All mutants of NFSv3, MOUNT, NLM and RPC."""

import nfs3_attribute_mutants  # noqa: F401
import nfs3_data_mutants  # noqa: F401
import nfs3_directory_mutants  # noqa: F401
import nfs3_lock_mutants  # noqa: F401
import nfs3_name_mutants  # noqa: F401
import nfs3_rpc_mutants  # noqa: F401
from nfs3_proxy_connection import MUTANTS

__all__ = ["MUTANTS"]
