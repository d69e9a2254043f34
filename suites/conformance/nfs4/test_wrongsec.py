"""The security of an export, with Kerberos: SECINFO and NFS4ERR_WRONGSEC (RFC 7530 3.3, 16.31)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.security import KRB5, protected
from storagetest.wire.nfs4.client import Nfs4Client, ok, refused
from storagetest.wire.nfs4.harness import Nfs4Endpoint
from storagetest.wire.nfs4.operations import GETFH, PUTROOTFH, getattr_, lookup, op, putfh
from storagetest.wire.nfs4.types import FATTR4_TYPE, SECINFO4args, nfsstat4
from storagetest.wire.rpc import auth_sys
from storagetest.wire.rpc.gss import NONE, PRIVACY
from storagetest.wire.rpc.types import auth_flavor

pytestmark = [pytest.mark.needs("gss-wire"), pytest.mark.case(level="MUST")]


def parent_and_name(endpoint: Nfs4Endpoint) -> tuple[list, bytes]:
    """Return the operations up to the parent of the export, and its name; skip if it is the root."""
    names = [part.encode() for part in endpoint.export.split("/") if part]
    if not names:
        pytest.skip("the export is the root of the server's tree, which has no name for SECINFO")
    return [PUTROOTFH, *map(lookup, names[:-1])], names[-1]


def listed(nfs: Nfs4Client, endpoint: Nfs4Endpoint) -> list:
    """Return SECINFO of the export: an entry for each flavor; skip without minor version 0."""
    parent, name = parent_and_name(endpoint)
    done = nfs.compound(*parent, op("SECINFO", SECINFO4args(name)))
    if done.status == nfsstat4.NFS4ERR_MINOR_VERS_MISMATCH:
        pytest.skip("the server has no minor version 0, which these COMPOUNDs without a session have")
    return list(ok(done)["SECINFO"])


def krb5(found: list) -> set[int]:
    """Return the services of the entries with Kerberos."""
    return {
        one.value.service
        for one in found
        if one.flavor == auth_flavor.RPCSEC_GSS and one.value.oid.removeprefix(b"\x06\x09") == KRB5
    }


@pytest.mark.case("GSS-SECINFO", section="RFC 7530 16.31", kills=("secinfo-no-gss", "secinfo-mechanism"))
def test_secinfo_lists_kerberos_if_the_export_accepts_it(gss, endpoint, observe):
    nfs = gss.client(PRIVACY)
    found = listed(nfs, endpoint)
    parent, name = parent_and_name(endpoint)
    observe(f"flavors {[one.flavor for one in found]}, services of Kerberos {sorted(krb5(found))}")
    ok(nfs.compound(*parent, lookup(name), GETFH))
    assert PRIVACY in krb5(found), "LOOKUP with privacy succeeds, and SECINFO does not list it"


@pytest.mark.case("GSS-SECINFO-SYS", section="RFC 7530 3.3.1", kills=("secinfo-wrongsec",))
def test_secinfo_needs_no_flavor_that_the_export_requires(gss, endpoint):
    assert krb5(listed(Nfs4Client(gss.bench.rpc(cred=auth_sys()), 0), endpoint))


@pytest.mark.case(
    "GSS-WRONGSEC-SYS", section="RFC 7530 16.13.5", kills=("wrongsec-flavor", "wrongsec-status")
)
def test_a_flavor_that_secinfo_does_not_list_is_refused(gss, endpoint):
    found = listed(gss.client(PRIVACY), endpoint)
    if any(one.flavor == auth_flavor.AUTH_SYS for one in found):
        pytest.skip("SECINFO lists AUTH_SYS for the export")
    parent, name = parent_and_name(endpoint)
    nfs = Nfs4Client(gss.bench.rpc(cred=auth_sys()), 0)
    refused(nfs.compound(*parent, lookup(name), GETFH), nfsstat4.NFS4ERR_WRONGSEC)


@pytest.mark.case("GSS-SECINFO-SYS-LISTED", section="RFC 7530 16.31", kills=("secinfo-sys",))
def test_a_flavor_that_secinfo_lists_is_accepted(gss, endpoint):
    if all(one.flavor != auth_flavor.AUTH_SYS for one in listed(gss.client(PRIVACY), endpoint)):
        pytest.skip("SECINFO does not list AUTH_SYS for the export")
    parent, name = parent_and_name(endpoint)
    ok(Nfs4Client(gss.bench.rpc(cred=auth_sys()), 0).compound(*parent, lookup(name), GETFH))


def accepted_if_listed(gss, endpoint, service):
    """LOOKUP of the export with a service succeeds if SECINFO lists it, and only then."""
    found = krb5(listed(gss.client(PRIVACY), endpoint))
    parent, name = parent_and_name(endpoint)
    done = gss.client(service).compound(*parent, lookup(name), GETFH)
    if service in found:
        ok(done)
    else:
        refused(done, nfsstat4.NFS4ERR_WRONGSEC)


@pytest.mark.case("GSS-WRONGSEC-NONE", section="RFC 7530 16.13.5", kills=("wrongsec-service", "secinfo-none"))
def test_a_service_that_secinfo_does_not_list_is_refused(gss, endpoint):
    accepted_if_listed(gss, endpoint, NONE)


@protected("GSS-WRONGSEC")
@pytest.mark.case(section="RFC 7530 16.31", kills=("wrongsec-listed",))
def test_a_service_that_secinfo_lists_is_accepted(gss, endpoint, service):
    accepted_if_listed(gss, endpoint, service)


@pytest.mark.case(
    "GSS-WRONGSEC-PUTFH", section="RFC 7530 16.20.5", kills=("wrongsec-status", "wrongsec-flavor")
)
def test_a_handle_is_refused_to_a_flavor_that_secinfo_does_not_list(gss, endpoint):
    """NFS4ERR_WRONGSEC from PUTFH or from the operation after it."""
    found = listed(gss.client(PRIVACY), endpoint)
    if any(one.flavor == auth_flavor.AUTH_SYS for one in found):
        pytest.skip("SECINFO lists AUTH_SYS for the export")
    parent, name = parent_and_name(endpoint)
    handle = ok(gss.client(PRIVACY).compound(*parent, lookup(name), GETFH))["GETFH"].object
    nfs = Nfs4Client(gss.bench.rpc(cred=auth_sys()), 0)
    refused(nfs.compound(putfh(handle), getattr_(FATTR4_TYPE)), nfsstat4.NFS4ERR_WRONGSEC)
