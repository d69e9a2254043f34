"""What machines say that they offer, as the client's tools print it; and an attach that writes nothing."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest
from device_facts import CLEAN

from storagetest.errors import DataAtRisk
from storagetest.hosts import Completed, LocalHost
from storagetest.protocols._dry_run import dry_run
from storagetest.protocols.base import protocols


def client_that_prints(text: str) -> Any:
    return Mock(LocalHost, run=Mock(return_value=Completed("c", (), 0, text, "", 0.1)))


NVME = {
    "genctr": 2,
    "records": [
        {"trtype": "tcp", "subtype": "current discovery subsystem", "trsvcid": "4420", "subnqn": "nqn.d"},
        {"trtype": "tcp", "subtype": "nvme subsystem", "trsvcid": "4420", "subnqn": "nqn.a"},
        {"trtype": "tcp", "subtype": "nvme subsystem", "trsvcid": "4420", "subnqn": "nqn.a"},
        {"trtype": "rdma", "subtype": "nvme subsystem", "trsvcid": "4420", "subnqn": "nqn.b"},
    ],
}


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("nfs", "/srv/a b 10.0.0.0/8\n/tank   *\n", [{"export": "/srv/a b"}, {"export": "/tank"}]),
        ("nfs", "", []),
        ("iscsi", "10.0.0.1:3260,1 iqn.x:a\n[fe80::1]:3260,1 iqn.x:a\n10.0.0.1:3260,1 iqn.x:b\n",
         [{"iqn": "iqn.x:a"}, {"iqn": "iqn.x:b"}]),
        ("nvme-tcp", json.dumps(NVME), [{"nqn": "nqn.a", "port": 4420}]),
        ("nvme-tcp", '{"records": 7}', []),
        ("lustre", "", [{"mgs": "10.0.0.1@tcp"}]),
        ("smb", "", []),
    ],
)  # fmt: skip
def test_offers(name: str, text: str, wanted: list[dict[str, Any]]) -> None:
    assert list(protocols.get(name)().discover(client_that_prints(text), "10.0.0.1", deadline=1)) == wanted


@pytest.mark.parametrize(
    ("erase", "words"), [("naa.1", ""), ("naa.2", "names another device"), (None, "without `erase`")]
)
def test_a_rehearsal_has_no_permission_to_write_and_judges_the_one_that_was_given(
    monkeypatch: pytest.MonkeyPatch, erase: str | None, words: str
) -> None:
    iscsi: Any = protocols.get("iscsi")
    attach = Mock(side_effect=DataAtRisk("refused", facts=CLEAN))
    monkeypatch.setattr(iscsi, "attach", attach)
    options = iscsi.Options.model_validate({**iscsi.example, "erase": erase, "filesystem": "xfs"})
    found = dry_run(iscsi(), client_that_prints(""), options)
    _, asked = attach.call_args.args
    assert (asked.erase, asked.filesystem) == (None, None)
    assert found.device == CLEAN
    assert words in found.at_risk
    assert bool(words) == bool(found.at_risk)
