"""What a case leaves on a target and cannot undo ends the run: it would be blamed on every later case.

The run ends after the case, with exit code 1 and one sentence, which names the way out. Under xdist it ends
on the target's worker, and then on the others.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NoReturn

import pytest

from storagetest.errors import AttachError, StoragetestError

_SENTENCE = pytest.StashKey[str]()


def stop_run(config: pytest.Config, sentence: str, error: type[StoragetestError] = AttachError) -> NoReturn:
    """Raise ``error``, and end the run after this case; ``sentence`` states what to do."""
    config.stash[_SENTENCE] = sentence
    raise error(sentence)


def forget_stop(config: pytest.Config) -> None:
    """Go on: the target of the case is not used again."""
    if _SENTENCE in config.stash:
        del config.stash[_SENTENCE]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the run after a case that called :func:`stop_run`."""
    result = yield
    sentence = item.config.stash.get(_SENTENCE, None)
    if sentence is not None:
        item.session.shouldfail = sentence
    return result
