"""What the mutant tests share is imported by its bare name: the proxy here, the controllers next door."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
for directory in (HERE, HERE.parent / "controllers"):
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-mutants", action="store_true", help="rewrite the tables of mutants in docs/")
