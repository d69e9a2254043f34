"""Bonnie: a file by character and by block, seeks, and many empty files, as in Bonnie++ 1.03."""

import pytest

pytestmark = pytest.mark.needs("filesystem")


def test_bonnie(measure):
    """The phases of Bonnie++ meet their gates."""
    measure("bonnie")


def test_bonnie_sync(measure):
    """The same with every write on stable storage before the next (-b), as databases want it."""
    measure("bonnie", sync=True, characters=False)
