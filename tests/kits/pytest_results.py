"""Assertions about the result of a pytest run."""

import pytest


def assert_result(result: pytest.RunResult, *patterns: str, **outcomes: int) -> None:
    """Assert the outcomes, and that lines of stdout match the patterns, in their order."""
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines(patterns)


def assert_usage_error(result: pytest.RunResult, *parts: str) -> None:
    """Assert an error before any test runs, without a traceback, whose text contains ``parts``."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    output = result.stderr.str() + result.stdout.str()
    assert "Traceback" not in output
    for part in parts:
        assert part in output
