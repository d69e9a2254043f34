"""POSIX extensions of SMB 3.1.1: their negotiation, modes, names and classes of information.

The text is the SMB3 POSIX Extensions Specification (POSIX-SMB2, POSIX-FSCC). Cases of names, owners and the
file system are SHOULD or MAY: their text was not compared with the published one.
"""

from __future__ import annotations

import struct

import pytest

from storagetest.suites.conformance.smb2.support import READ, case
from storagetest.wire.smb2 import posix
from storagetest.wire.smb2.client import READ_WRITE, SmbSession
from storagetest.wire.smb2.codes import (
    ContextType,
    Dialect,
    Disposition,
    FileInfo,
    FsInfo,
    InfoType,
    Options,
)
from storagetest.wire.smb2.connection import DialectNotOffered, default_contexts
from storagetest.wire.smb2.harness import expect

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="POSIX-SMB2 2.2.3.1.8", level="MUST")]

OTHER = bytes.fromhex("00112233445566778899aabbccddeeff")
"""A GUID that names no extensions."""

CREATED = pytest.mark.case(section="POSIX-SMB2 2.2.14.2.16")
NEW, OLD = Disposition.CREATE, Disposition.OPEN


def negotiate(bench, *more):
    """Return a connection whose NEGOTIATE had ``more`` contexts, and the contexts of the response.

    Skip if the server chooses another dialect: SMB-NEG-05 reports that.
    """
    connection = bench.connect()
    contexts = [*default_contexts(), *more]
    try:
        return connection, connection.negotiate([Dialect.SMB_3_1_1], contexts=contexts).contexts
    except DialectNotOffered as fault:
        pytest.skip(str(fault))


@pytest.fixture
def extended(bench, endpoint):
    """Return a tree on a connection with the extensions; skip if the server does not grant them."""
    connection, found = negotiate(bench, posix.available())
    if ContextType.POSIX not in found:
        pytest.skip("the server does not grant the POSIX extensions (POSIX-SMB2 2.2.3.1.8)")
    return SmbSession(connection, endpoint.account, endpoint.address).setup().tree(endpoint.share)


def opened(tree, path, mode=0o644, *, name="", **more):
    """Open a file with the create context; ``name`` is appended to the path as it is.

    The separator of POSIX names is a slash. A new file is removed when its open ends.
    """
    if more.get("disposition") == NEW:
        more.setdefault("options", Options.NON_DIRECTORY_FILE | Options.DELETE_ON_CLOSE)
    return tree.open(path.replace("\\", "/") + name, contexts=[posix.create(mode)], **more)


def listing(tree, directory):
    """Return the entries of a directory by name, without itself and its parent."""
    above = opened(tree, directory, access=READ, disposition=OLD, options=Options.DIRECTORY_FILE)
    entries = posix.decode_listing(expect(above.list(FileInfo.POSIX)).buffer)
    return {one.name: one for one in entries if one.name not in (".", "..")}


def created(file):
    """Return the create context of the response; skip if the share has no extensions."""
    if posix.GUID not in file.contexts:
        pytest.skip("the share does not grant the POSIX create context")
    return posix.decode_created(file.contexts[posix.GUID])


@pytest.fixture
def shared(extended, path):
    """Return the tree; skip if opens in this share have no POSIX create context."""
    file = opened(extended, path, disposition=NEW)
    created(file)
    expect(file.close())
    return extended


@pytest.mark.case("SMB-POSIX-GUID", kills=("posix-guid-other",))
def test_the_grant_names_the_extensions(bench):
    found = negotiate(bench, posix.available())[1].get(ContextType.POSIX)
    if found is None:
        pytest.skip("the server does not grant the POSIX extensions")
    assert found == posix.GUID


@pytest.mark.case("SMB-POSIX-UNASKED", kills=("posix-unasked",))
def test_a_client_that_does_not_ask_gets_no_extensions(bench):
    assert ContextType.POSIX not in negotiate(bench)[1]


@pytest.mark.case("SMB-POSIX-GUID-UNKNOWN", kills=("posix-unasked",), level="SHOULD")
def test_extensions_of_another_guid_are_not_granted(bench):
    assert ContextType.POSIX not in negotiate(bench, posix.available(OTHER))[1]


@pytest.mark.case("SMB-POSIX-CONTEXT", kills=("posix-mode-other",), level="SHOULD")
@CREATED
def test_a_new_file_has_the_mode_that_was_asked_for(extended, path):
    found = created(opened(extended, path, 0o640, disposition=NEW))
    assert (found.links, found.reparse_tag, found.mode & posix.PERMISSIONS) == (1, 0, 0o640)


@pytest.mark.parametrize(
    "contexts",
    [
        case("SMB-POSIX-CONTEXT-UNASKED", [], kills=("posix-context-always",)),
        case("SMB-POSIX-CONTEXT-UNKNOWN", [posix.create(0o600, name=OTHER)], kills=("posix-context-always",)),
    ],
)
@CREATED
def test_an_open_without_the_context_has_none(shared, path, contexts):
    assert posix.GUID not in shared.open(path, disposition=NEW, contexts=contexts).contexts


@pytest.mark.case("SMB-POSIX-INFO", section="POSIX-FSCC 2.3.1", kills=("posix-info-other",))
def test_the_information_is_that_of_the_create_context(shared, path):
    file = opened(shared, path, 0o604, disposition=NEW)
    expect(file.write(b"0123456789"))
    wanted, found = created(file), posix.decode_info(expect(file.query(FileInfo.POSIX)).buffer)
    assert (found.size, found.links) == (10, 1)
    assert found.mode & posix.PERMISSIONS == wanted.mode & posix.PERMISSIONS


@pytest.mark.case("SMB-POSIX-OWNER", section="POSIX-FSCC 2.3.1", kills=("posix-owner-other",), level="SHOULD")
def test_owner_and_group_are_those_of_the_create_context(shared, path):
    file = opened(shared, path, disposition=NEW)
    wanted, found = created(file), posix.decode_info(expect(file.query(FileInfo.POSIX)).buffer)
    assert (found.owner, found.group) == (wanted.owner, wanted.group)


@pytest.mark.case("SMB-POSIX-LIST", section="POSIX-FSCC 2.3.1", kills=("posix-info-other",))
def test_a_listing_has_the_information_of_the_file(shared, directory):
    file = opened(shared, directory, 0o604, name="/file", disposition=NEW)
    listed = listing(shared, directory)
    assert set(listed) == {"file"}
    found, wanted = listed["file"], posix.decode_info(expect(file.query(FileInfo.POSIX)).buffer)
    assert (found.inode, found.mode, found.size) == (wanted.inode, wanted.mode, wanted.size)


@pytest.mark.case("SMB-POSIX-FS", section="POSIX-FSCC", kills=("posix-info-other",), level="SHOULD")
def test_the_file_system_has_the_blocks_of_its_other_class(shared, path):
    file = opened(shared, path, disposition=NEW)
    kind = InfoType.FILESYSTEM
    found = posix.decode_fs(expect(file.query(FsInfo.POSIX, kind=kind)).buffer)
    units, _, _, sectors, size = struct.unpack(
        "<QQQII", expect(file.query(FsInfo.FULL_SIZE, kind=kind)).buffer
    )
    assert found.block_size * found.blocks == units * sectors * size
    assert max(found.available, found.free) <= found.blocks


@pytest.mark.case("SMB-POSIX-CASE", section="POSIX-SMB2", kills=("posix-case-ignored",))
@pytest.mark.case(level="SHOULD")
def test_names_that_differ_in_case_are_two_files(shared, path):
    first = opened(shared, f"{path}-name", disposition=NEW)
    second = opened(shared, f"{path}-NAME", disposition=NEW)
    numbers = [posix.decode_info(expect(one.query(FileInfo.POSIX)).buffer).inode for one in (first, second)]
    assert numbers[0] != numbers[1]


@pytest.mark.parametrize(
    "name",
    [
        case("SMB-POSIX-COLON", "a:b", kills=("posix-name-changed",), level="SHOULD"),
        case("SMB-POSIX-BACKSLASH", "a\\b", level="MAY"),
    ],
)
@pytest.mark.case(section="POSIX-SMB2")
def test_a_character_that_windows_reserves_is_part_of_a_name(shared, directory, name):
    opened(shared, directory, name=f"/{name}", disposition=NEW)
    assert set(listing(shared, directory)) == {name}


@pytest.mark.case("SMB-POSIX-WINDOWS", section="POSIX-SMB2", kills=("posix-case-always",))
@pytest.mark.case(level="SHOULD")
def test_an_open_without_the_context_finds_names_as_without_the_extensions(shared, other, path):
    expect(shared.open(f"{path}-name", disposition=NEW).close())
    wanted = other.create(f"{path}-NAME", access=READ_WRITE, disposition=OLD).status
    found = shared.create(f"{path}-NAME", access=READ_WRITE, disposition=OLD).status
    assert found == wanted
