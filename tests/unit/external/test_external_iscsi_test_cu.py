"""iscsi-test-cu: its list, its command line, and the parsing of its output."""

# ruff: noqa: E501  # what a program prints is left as it prints it

import socket
import threading

import pytest

from storagetest.config.base import SecretText
from storagetest.errors import TargetDead
from storagetest.external.base import ItemOutcome, TargetInfo, suites
from storagetest.external.iscsi_test_cu import IscsiTestCu
from storagetest.protocols.iscsi import Authentication, Iscsi

SUITE = IscsiTestCu()
OPTIONS = {"address": "array.example.net", "iqn": "iqn.2024-01.net.example:bench", "lun": 1}

PREAMBLE = "    [SKIPPED] REPORT_SUPPORTED_OPCODES is not implemented.\n\n\n     CUnit - A unit testing framework for C - Version 2.1-3\n"


def summary(*, passed: int, failed: int) -> str:
    ran = passed + failed
    return (
        "Run Summary:    Type  Total    Ran Passed Failed Inactive\n"
        "              suites      1      1    n/a      0        0\n"
        f"               tests      1      {ran}      {passed}      {failed}        0\n"
        "             asserts      9      9      9      0      n/a\n"
    )


def test_it_is_registered() -> None:
    assert suites.get("iscsi-test-cu") is IscsiTestCu


def test_only_the_single_tests_are_listed_and_each_once() -> None:
    listed = "ALL\nALL.Inquiry\nALL.Inquiry.Standard\nALL.Read10.Simple\nSCSI.Inquiry.Standard\nALL.Read10.Simple\n"
    assert SUITE.tests(listed) == ("Inquiry.Standard", "Read10.Simple")


@pytest.mark.parametrize("may_erase", [True, False])
def test_data_are_risked_only_where_that_is_allowed(may_erase: bool) -> None:
    run = SUITE.invocation("Read10.Simple", Iscsi.Options(**OPTIONS), TargetInfo(may_erase=may_erase))
    assert ("--dataloss" in run.argv) is may_erase
    assert run.argv[-2:] == (
        "--test=ALL.Read10.Simple",
        "iscsi://array.example.net:3260/iqn.2024-01.net.example:bench/1",
    )


def test_no_secret_stands_on_the_command_line() -> None:
    chap = Authentication(username="alice", password=SecretText("wonderland"))
    run = SUITE.invocation("Read10.Simple", Iscsi.Options(**OPTIONS, chap=chap), TargetInfo())
    assert "wonderland" not in " ".join(run.argv)
    assert run.env == {"LIBISCSI_CHAP_USERNAME": "alice", "LIBISCSI_CHAP_PASSWORD": "wonderland"}


def test_a_target_that_does_not_respond_is_reported_as_dead() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    here = Iscsi.Options(**{**OPTIONS, "address": "127.0.0.1", "port": port, "deadline": 2})
    with pytest.raises(TargetDead, match=f"127.0.0.1:{port}"):
        SUITE.look(here)


def test_a_target_that_talks_nonsense_is_not_dead_and_may_not_be_erased() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nonsense:

        def serve() -> None:
            sock, _ = nonsense.accept()
            with sock:
                sock.sendall(bytes(range(256)))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        port = nonsense.getsockname()[1]
        here = Iscsi.Options(
            **{**OPTIONS, "address": "127.0.0.1", "port": port, "deadline": 2, "erase": "naa.1"}
        )
        assert SUITE.look(here) == TargetInfo("", may_erase=False)
        thread.join(5)


def verdict(output: str, status: int = 0):
    return SUITE.verdict("Suite.Test", status=status, stdout=output, stderr="")


def test_a_pass_is_a_pass_whatever_is_skipped_before_it_begins() -> None:
    assert verdict(PREAMBLE + summary(passed=1, failed=0)).ended is ItemOutcome.PASSED


def test_a_skip_that_the_program_counts_as_passed_is_a_skip() -> None:
    found = verdict(PREAMBLE + "    [SKIPPED] ORWRITE is not implemented.\n" + summary(passed=1, failed=0))
    assert (found.ended, found.reason) == (ItemOutcome.SKIPPED, "ORWRITE is not implemented.")


def test_a_failure_keeps_its_sense_data_and_omits_repeated_lines() -> None:
    line = "    [FAILED] VERIFY10 failed with wrong sense: (null)(0x05)/(0x0e03)\n"
    output = (
        PREAMBLE + 3 * line + "    1. test_x.c:71  - CU_ASSERT_EQUAL(_r,0)\n" + summary(passed=0, failed=1)
    )
    found = verdict(output, status=1)
    assert found.ended is ItemOutcome.FAILED
    assert "(0x05)/(0x0e03)" in found.reason
    assert "(3 times)" in found.details
    assert "test_x.c:71" in found.details


@pytest.mark.parametrize("output", ["", "Failed to log in to target\n", PREAMBLE + "Segmentation fault"])
def test_a_crash_or_a_refused_login_is_broken_and_not_a_pass(output: str) -> None:
    found = verdict(output, status=10)
    assert found.ended is ItemOutcome.BROKEN
    assert "no summary" in found.reason
