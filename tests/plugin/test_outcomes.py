"""Fail, error, INVALID and skip are different things, and one broken target is found out once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Line = Callable[..., pytest.RunResult]

# A protocol that does what its option says; it is registered by the suite's own conftest.
ODD = """\
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from storagetest import errors
from storagetest.config.base import TargetOptions
from storagetest.protocols.base import Attachment, AttachmentKind, OptionMismatch, Protocol, register

@register
class Odd(Protocol[Any]):
    "Breaks in the way its option names."
    name = "odd"
    title = "Odd"
    attachment_kind = AttachmentKind.FILESYSTEM
    class Options(TargetOptions):
        raises: str = ""
    example = {}
    def server(self, options): return "nowhere"
    @contextmanager
    def attach(self, client, options):
        if options.raises in vars(errors):
            raise getattr(errors, options.raises)("odd says so")
        mismatches = (OptionMismatch("wsize", "1048576", "4096"),) if options.raises == "changed" else ()
        yield Attachment(client=client, path="/tmp", kind=self.attachment_kind, size=1, mismatches=mismatches)
"""

TARGETS = """\
version: 1
clients: {{here: {{transport: local}}}}
targets:
  odd: {{protocol: odd, clients: [here], raises: {raises}, optional: {optional}}}
"""

SUITE = """\
def test_one(attachment): pass
def test_two(attachment): pass
"""


@pytest.fixture
def odd(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    def run(raises: str, *, suite: str = SUITE, optional: str = "false") -> pytest.RunResult:
        pytester.path.joinpath("targets.yaml").write_text(TARGETS.format(raises=raises, optional=optional))
        pytester.path.joinpath("odd_protocol.py").write_text(ODD)
        pytester.makepyfile(test_suite=suite)
        pytester.syspathinsert()
        return pytester.runpytest_subprocess("-p", "odd_protocol", "-p", "no:cacheprovider", "-rs", "-v")

    return run


def test_a_dead_target_errs_once_and_its_other_cases_are_skipped_with_that_reason(odd):
    result = odd("TargetDead")
    result.assert_outcomes(errors=1, skipped=1)
    result.stdout.fnmatch_lines(["*TargetDead: odd says so*", "SKIPPED*odd is dead: odd says so*"])
    assert "Traceback" not in result.stdout.str()


def test_a_variant_that_cannot_be_attached_errs_once(odd):
    result = odd("AttachError")
    result.assert_outcomes(errors=1, skipped=1)


def test_an_option_that_was_refused_is_a_skip(odd):
    odd("OptionRefused").assert_outcomes(skipped=2)


def test_a_client_that_lacks_the_protocol_is_an_error_unless_the_target_is_optional(odd):
    odd("ClientLacks").assert_outcomes(errors=1, skipped=1)
    odd("ClientLacks", optional="true").assert_outcomes(skipped=2)


def test_an_option_that_was_changed_in_silence_is_a_failure(odd):
    result = odd("changed")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*silently changed: wsize: requested 1048576, got 4096*"])


def test_a_broken_claim_is_a_failure_and_our_own_error_an_error(odd):
    suite = """\
from storagetest.errors import HostError
def test_claim(attachment): assert 1 == 2
def test_ours(attachment): raise HostError("the client went away")
"""
    result = odd("nothing", suite=suite)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*test_claim*FAILED*", "*test_ours*ERROR*", "*1 failed, 1 error*"])


def test_what_a_variant_cannot_do_is_skipped_by_name(odd):
    suite = """\
import pytest
@pytest.mark.needs("block", "persistent_reservations")
def test_one(attachment): pass
"""
    result = odd("nothing", suite=suite)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*odd has no block, persistent_reservations*"])
