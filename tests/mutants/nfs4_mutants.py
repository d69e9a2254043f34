"""All mutants of NFSv4: those of NFS-Ganesha on loopback, and those of the lab's knfsd."""

import nfs4_after_mutants
import nfs4_attribute_mutants
import nfs4_callback_mutants
import nfs4_confirm_mutants
import nfs4_connection_mutants
import nfs4_fresh_mutants
import nfs4_io_mutants
import nfs4_lease_mutants
import nfs4_limit_mutants
import nfs4_lock_mutants
import nfs4_made_mutants
import nfs4_name_mutants
import nfs4_number_mutants
import nfs4_open_mutants
import nfs4_owner_mutants
import nfs4_restart_mutants
import nfs4_seldom_mutants
import nfs4_sequence_mutants
import nfs4_session_mutants
import nfs4_stated_mutants
import nfs4_time_mutants
import nfs4_unseen_mutants
import nfs4_v42_mutants
import nfs4_wrapped_mutants
import nfs4_xattr_mutants
from nfs4_proxy_connection import MUTANTS as ALL
from nfs4_security_mutants import MUTANTS as SECURITY_MUTANTS

MUTANTS = {name: one for name, one in ALL.items() if one.kind is None}
KNFSD_MUTANTS = {name: one for name, one in ALL.items() if one.kind == "knfsd"}
"""Mutants of what NFS-Ganesha does not serve, or does otherwise."""
LEASE_MUTANTS = {name: one for name, one in ALL.items() if one.kind == "lease"}
"""Mutants for the cases that wait for a lease."""
RESTART_MUTANTS = {name: one for name, one in ALL.items() if one.kind == "restart"}
"""Mutants for the cases that restart the server."""

__all__ = [
    "KNFSD_MUTANTS",
    "LEASE_MUTANTS",
    "MUTANTS",
    "RESTART_MUTANTS",
    "SECURITY_MUTANTS",
    "nfs4_after_mutants",
    "nfs4_attribute_mutants",
    "nfs4_callback_mutants",
    "nfs4_confirm_mutants",
    "nfs4_connection_mutants",
    "nfs4_fresh_mutants",
    "nfs4_io_mutants",
    "nfs4_lease_mutants",
    "nfs4_limit_mutants",
    "nfs4_lock_mutants",
    "nfs4_made_mutants",
    "nfs4_name_mutants",
    "nfs4_number_mutants",
    "nfs4_open_mutants",
    "nfs4_owner_mutants",
    "nfs4_restart_mutants",
    "nfs4_seldom_mutants",
    "nfs4_sequence_mutants",
    "nfs4_session_mutants",
    "nfs4_stated_mutants",
    "nfs4_time_mutants",
    "nfs4_unseen_mutants",
    "nfs4_v42_mutants",
    "nfs4_wrapped_mutants",
    "nfs4_xattr_mutants",
]
