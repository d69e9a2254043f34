from pathlib import Path

import pytest

from storagetest.hosts import Journal


@pytest.fixture(autouse=True)
def own_journal(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal of the test's own, so that entries of others on this machine do not show."""
    place = tmp_path_factory.mktemp("own") / "journal"
    monkeypatch.setattr(Journal.__init__, "__defaults__", (str(place),))
    return place
