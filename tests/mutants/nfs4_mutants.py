"""All mutants of NFSv4."""

import nfs4_attribute_mutants
import nfs4_name_mutants  # noqa: F401
from nfs4_proxy_connection import MUTANTS

__all__ = ["MUTANTS", "nfs4_attribute_mutants"]
