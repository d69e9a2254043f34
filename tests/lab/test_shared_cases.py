"""The suite of two clients over the lab: one data by two protocols, a client that falls silent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytest_run import PytestRun, select_targets

pytestmark = pytest.mark.lab

SUITE = Path(__file__).parents[2] / "suites" / "conformance" / "shared"
GOOD = {"passed", "observed", "skipped", "known"}


@pytest.mark.parametrize(
    ("on", "module", "chosen", "wanted"),
    [
        (
            "nfs-both-v4.2",
            "test_one_data.py",
            "earlier_close or lock",
            {"SHR-DATA-01", "SHR-DATA-19"},
        ),
        ("nfs-v4.2-nconnect1", "test_silent_client.py", "test_lock_is_kept", {"SHR-SILENT-01"}),
    ],
)
def test_no_case_fails(lab, client1, client2, tmp_path: Path, on, module, chosen, wanted) -> None:
    line = PytestRun(tmp_path, lab.targets_yaml.read_text())
    status, output = line.run(
        *select_targets(on), f"--rootdir={tmp_path}", "-k", chosen, str(SUITE / module), timeout=1200
    )
    records = [json.loads(text) for text in (tmp_path / "cases.jsonl").read_text().splitlines()]
    bad = {one["id"]: one["message"][:300] for one in records if one["outcome"] not in GOOD}
    assert (status, bad) == (0, {}), output
    assert wanted <= {one["id"] for one in records if one["outcome"] == "passed"}, (
        "a required case did not pass"
    )
    for client in (client1, client2):
        assert client.left() == []
