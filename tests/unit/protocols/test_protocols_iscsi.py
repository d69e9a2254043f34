from typing import Any

import pytest

from storagetest.errors import AttachError, ClientLacks, TargetDead
from storagetest.hosts import Completed
from storagetest.protocols import iscsi
from storagetest.protocols.base import protocols

Iscsi: Any = protocols.get("iscsi")


def options(**more: object) -> Any:
    return Iscsi.Options(**{"address": "10.77.0.1", "iqn": "iqn.2024-01.lab:fast", **more})


RECORD = """\
# BEGIN RECORD 2.1.8
node.name = iqn.2024-01.lab:fast
node.startup = automatic
node.conn[0].address = 10.77.0.1
node.session.auth.authmethod = CHAP
node.session.auth.username = everybody
node.session.auth.password = from-iscsid.conf
node.conn[0].iscsi.HeaderDigest = None,CRC32C
# END RECORD
"""

LOOK = """\
session:session1
block:sda
iscsi_session/session1/first_burst_len:65536
iscsi_session/session1/max_burst_len:262144
iscsi_session/session1/initial_r2t:1
iscsi_session/session1/immediate_data:1
iscsi_session/session1/max_outstanding_r2t:1
iscsi_session/session1/erl:0
iscsi_session/session1/tpgt:1
iscsi_session/session1/recovery_tmo:60
connection1:0/iscsi_connection/connection1:0/header_digest:1
connection1:0/iscsi_connection/connection1:0/data_digest:0
connection1:0/iscsi_connection/connection1:0/max_recv_dlength:262144
connection1:0/iscsi_connection/connection1:0/max_xmit_dlength:8192
target2:0:0/2:0:0:1/block/sda/device/queue_depth:32
"""


def test_record_is_completed() -> None:
    text = iscsi.completed_record(RECORD, {"node.startup": "manual", "node.session.auth.authmethod": "None"})
    assert text == (
        "# BEGIN RECORD 2.1.8\n"
        "node.name = iqn.2024-01.lab:fast\n"
        "node.conn[0].address = 10.77.0.1\n"
        "node.conn[0].iscsi.HeaderDigest = None,CRC32C\n"
        "node.startup = manual\n"
        "node.session.auth.authmethod = None\n"
        "# END RECORD\n"
    )


def test_settings_without_chap_name_no_secret() -> None:
    settings = iscsi.record_settings(options(deadline=20))
    assert settings["node.session.auth.authmethod"] == "None"
    assert not [name for name in settings if "password" in name]
    assert settings["node.session.timeo.replacement_timeout"] == "20"
    assert settings["node.conn[0].iscsi.HeaderDigest"] == "None"


def test_settings_with_mutual_chap_and_digests() -> None:
    chap = {"username": "me", "password": "p1", "mutual": {"username": "it", "password": "p2"}}
    settings = iscsi.record_settings(
        options(chap=chap, header_digest="crc32c", data_digest="crc32c", queue_depth=100)
    )
    assert {name.rpartition(".")[2]: settings[name] for name in settings if ".auth." in name} == {
        "authmethod": "CHAP",
        "username": "me",
        "password": "p1",
        "username_in": "it",
        "password_in": "p2",
    }
    assert settings["node.conn[0].iscsi.DataDigest"] == "CRC32C"
    assert settings["node.session.queue_depth"] == "100"
    assert settings["node.session.cmds_max"] == "128"


@pytest.mark.parametrize(("depth", "commands"), [(1, "128"), (113, "128"), (114, "256"), (1024, "2048")])
def test_a_deep_queue_gets_as_many_commands(depth: int, commands: str) -> None:
    """open-iscsi requires a power of two (iscsid.conf, cmds_max); the kernel keeps 15 of them."""
    assert iscsi.record_settings(options(queue_depth=depth))["node.session.cmds_max"] == commands


def test_settings_of_bursts_and_segments() -> None:
    lengths = {"max_recv_data_segment_length": 8192, "max_burst_length": 65536, "first_burst_length": "16KiB"}
    settings = iscsi.record_settings(options(**lengths, immediate_data=False, initial_r2t=False))
    assert {
        name: value for name, value in settings.items() if ".iscsi." in name and "Digest" not in name
    } == {
        "node.conn[0].iscsi.MaxRecvDataSegmentLength": "8192",
        "node.session.iscsi.MaxBurstLength": "65536",
        "node.session.iscsi.FirstBurstLength": "16384",
        "node.session.iscsi.ImmediateData": "No",
        "node.session.iscsi.InitialR2T": "No",
    }


@pytest.mark.parametrize(("most", "first"), [(65536, "65536"), (1048576, "262144")])
def test_the_first_burst_does_not_exceed_the_maximum(most: int, first: str) -> None:
    settings = iscsi.record_settings(options(max_burst_length=most))
    assert settings["node.session.iscsi.FirstBurstLength"] == first


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"max_burst_length": 4096, "first_burst_length": 8192},
            "first_burst_length exceeds max_burst_length",
        ),
        ({"first_burst_length": 512, "immediate_data": False, "initial_r2t": True}, "there is none"),
        ({"max_burst_length": 511}, "greater than or equal to 512"),
        ({"max_burst_length": 16777216}, "less than or equal to 16777212"),
        ({"first_burst_length": 1022}, "multiple of 4"),
    ],
)
def test_lengths_that_cannot_be_negotiated_are_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options(**asked)


def test_read_back_speaks_the_rfc() -> None:
    seen = iscsi.parse_query(LOOK)
    assert seen["block"] == "sda"
    assert iscsi.parse_negotiated(seen) == {
        "HeaderDigest": "CRC32C",
        "DataDigest": "None",
        "MaxRecvDataSegmentLength": "262144",
        "MaxXmitDataSegmentLength": "8192",
        "FirstBurstLength": "65536",
        "MaxBurstLength": "262144",
        "InitialR2T": "Yes",
        "ImmediateData": "Yes",
        "MaxOutstandingR2T": "1",
        "ErrorRecoveryLevel": "0",
        "TargetPortalGroupTag": "1",
        "recovery_tmo": "60",
        "queue_depth": "32",
    }


@pytest.mark.parametrize(
    ("asked", "different"),
    [
        ({"header_digest": "crc32c"}, []),
        ({}, ["HeaderDigest: requested None, got CRC32C"]),
        (
            {"header_digest": "crc32c", "data_digest": "crc32c", "queue_depth": 64},
            ["DataDigest: requested CRC32C, got None", "queue_depth: requested 64, got 32"],
        ),
        (
            {"header_digest": "crc32c", "max_burst_length": 262144, "immediate_data": False},
            ["ImmediateData: requested No, got Yes"],
        ),
    ],
)
def test_silent_changes_are_found(asked: dict[str, object], different: list[str]) -> None:
    negotiated = iscsi.parse_negotiated(iscsi.parse_query(LOOK))
    assert [str(one) for one in Iscsi().option_mismatches(options(**asked), negotiated)] == different


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (24, AttachError, "wrong CHAP name or secret"),
        (19, AttachError, "Check that it has this IQN"),
        (8, TargetDead, "no response to the login"),
        (4, TargetDead, "no response to the login"),
        (20, ClientLacks, "iscsid is not running on c1"),
        (1, AttachError, "refuses the login"),
    ],
)
def test_exit_status_of_iscsiadm(status: int, error: type[Exception], words: str) -> None:
    chap = {"username": "me", "password": "hunter2"}
    done = Completed("c1", ("iscsiadm",), status, "", "iscsiadm: first\niscsiadm: second\n", 0.1)
    found = iscsi.error_from_output(done, options(chap=chap))
    assert type(found) is error
    assert words in str(found)
    assert "iscsiadm: second" in str(found)
    assert "hunter2" not in str(found)


OFFERED = "10.77.0.1:3260,1 iqn.2024-01.lab:other\n[fd00::1]:3260,1 iqn.2024-01.lab:other\n"


def test_what_the_portal_offers_settles_a_vague_failure() -> None:
    """iscsid reports a target that refuses a login as a time-out; a portal that answers is not dead."""
    done = Completed("c1", ("iscsiadm",), 8, "", "iscsiadm: connection timed out", 0.1)
    offered = iscsi.parse_discovery(OFFERED)
    assert offered == ("iqn.2024-01.lab:other",)
    unknown = iscsi.error_from_output(done, options(), offered=offered)
    assert type(unknown) is AttachError
    assert "does not offer this target; it offers iqn.2024-01.lab:other" in str(unknown)
    known = iscsi.error_from_output(done, options(), offered=("iqn.2024-01.lab:fast",))
    assert type(known) is AttachError
    assert "refuses the login" in str(known)


def test_a_secret_with_a_line_break_cannot_add_settings() -> None:
    """A record is lines; a secret that holds one more line would be a setting of its own."""
    chap = {"username": "me", "password": "x\nnode.startup = automatic"}
    with pytest.raises(AttachError, match="line break"):
        iscsi.completed_record(RECORD, iscsi.record_settings(options(chap=chap)))


def test_each_portal_is_a_path_of_its_own() -> None:
    asked = options(more_paths=[{"address": "10.77.0.2"}, {"address": "10.77.0.1", "port": 3261}])
    assert iscsi._script("", asked)[5] == f"{asked.address},3260 10.77.0.2,3260 10.77.0.1,3261"


def test_a_lost_path_is_given_up_sooner_than_an_only_one() -> None:
    one, two = options(), options(more_paths=[{"address": "10.77.0.2"}])
    name = "node.session.timeo.replacement_timeout"
    assert float(iscsi.record_settings(two)[name]) == iscsi.PATH_LOST_SECONDS
    assert float(iscsi.record_settings(one)[name]) == int(one.deadline)


def test_a_map_is_named_after_the_unit_and_one_path_has_none() -> None:
    more = [{"address": "10.77.0.2"}]
    assert iscsi.map_name(options()) == ""
    names = {iscsi.map_name(options(more_paths=more, lun=lun)) for lun in (0, 1, 0)}
    assert len(names) == 2
    assert all(name.startswith("storagetest-") for name in names)


def test_disks_are_those_of_every_session() -> None:
    assert iscsi.parse_disks("session:session1\nblock:sda\nx:1\nsession:session2\nblock:sdb\n") == (
        "sda",
        "sdb",
    )
