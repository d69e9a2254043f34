"""Failures, errors, INVALID and skips are distinguished; a broken target is one error."""

from __future__ import annotations

import pytest
from pytest_results import assert_result

# A protocol that raises the error that its option names; conftest.py registers it.
FAULTY_PROTOCOL = """\
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from storagetest import errors
from storagetest.config.base import TargetOptions
from storagetest.protocols.base import Attachment, AttachmentKind, OptionMismatch, Protocol, register

@register
class Faulty(Protocol[Any]):
    "Raises the error that its option names."
    name = "faulty"
    title = "Faulty"
    attachment_kind = AttachmentKind.FILESYSTEM
    class Options(TargetOptions):
        raises: str = ""
    example = {}
    def server(self, options): return "server"
    @contextmanager
    def attach(self, client, options):
        if options.raises in vars(errors):
            raise getattr(errors, options.raises)("as configured")
        mismatches = (OptionMismatch("wsize", "1048576", "4096"),) if options.raises == "changed" else ()
        yield Attachment(client=client, path="/tmp", kind=self.attachment_kind, size=1, mismatches=mismatches)
"""

TARGETS = """\
version: 1
clients: {{here: {{transport: local}}}}
targets:
  faulty: {{protocol: faulty, clients: [here], raises: {raises}, optional: {optional}}}
"""

SUITE = """\
def test_one(attachment): pass
def test_two(attachment): pass
"""


@pytest.fixture
def run_faulty(run_pytest, pytester):
    def run(raises: str, *, suite: str = SUITE, optional: str = "false") -> pytest.RunResult:
        pytester.makeconftest(FAULTY_PROTOCOL)
        targets = TARGETS.format(raises=raises, optional=optional)
        return run_pytest("-rs", "-v", targets=targets, suite=suite)

    return run


def test_a_dead_target_is_one_error_and_its_other_cases_are_skipped(run_faulty):
    result = run_faulty("TargetDead")
    reasons = ("*TargetDead: as configured*", "SKIPPED*faulty is dead: as configured*")
    assert_result(result, *reasons, errors=1, skipped=1)
    assert "Traceback" not in result.stdout.str()


def test_a_variant_that_cannot_be_attached_is_one_error(run_faulty):
    run_faulty("AttachError").assert_outcomes(errors=1, skipped=1)


def test_a_refused_option_is_a_skip(run_faulty):
    run_faulty("OptionRefused").assert_outcomes(skipped=2)


def test_a_client_without_the_protocol_is_an_error_unless_the_target_is_optional(run_faulty):
    run_faulty("ClientLacks").assert_outcomes(errors=1, skipped=1)
    run_faulty("ClientLacks", optional="true").assert_outcomes(skipped=2)


def test_an_option_with_another_value_is_a_failure(run_faulty):
    message = "*silently changed: wsize: requested 1048576, got 4096*"
    assert_result(run_faulty("changed"), message, failed=2)


def test_an_assertion_is_a_failure_and_another_exception_an_error(run_faulty):
    suite = """\
from storagetest.errors import HostError
def test_assertion(attachment): assert 1 == 2
def test_error(attachment): raise HostError("connection lost")
"""
    result = run_faulty("nothing", suite=suite)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*test_assertion*FAILED*", "*test_error*ERROR*", "*1 failed, 1 error*"])


def test_a_missing_capability_is_a_skip_that_names_it(run_faulty):
    suite = """\
import pytest
@pytest.mark.needs("block", "multipath")
def test_one(attachment): pass
"""
    reason = "SKIPPED*faulty has no block, multipath*"
    assert_result(run_faulty("nothing", suite=suite), reason, skipped=1)
