"""A suite of sample cases, run by the tests of the HTML report in a directory of its own."""

import pytest
from conftest import build, verdict

from storagetest.errors import AttachError
from storagetest.measure.run import METRICS
from storagetest.report.allure import reporter as allure
from storagetest.verdict.base import BASELINE, Outcome, Threshold, Verdict

VARIANTS = {
    "nas-v3": "nfs",
    "nas-v4.2-nconnect4": "nfs",
    "files-3.1.1-encrypted": "smb",
    "files-3.1.1-signed": "smb",
    "array-digests": "iscsi",
    "box-queues4": "nvme-tcp",
}
TITLES = {"nfs": "NFS", "smb": "SMB", "iscsi": "iSCSI", "nvme-tcp": "NVMe/TCP"}
FAILS = {("nas-v3", "small-random-write"), ("files-3.1.1-encrypted", "sequential")}
INVALID = {("box-queues4", "small-random-write")}


@pytest.fixture(params=VARIANTS)
def variant(request):
    """One of the variants; the iSCSI one is refused."""
    allure.identify(
        epic=TITLES[VARIANTS[request.param]],
        feature=request.function.__name__.removeprefix("test_").replace("_", " "),
        variant=request.param,
        client="client1",
    )
    return request.param


@pytest.mark.parametrize("block_size", ["4KiB", "64KiB", "1MiB"])
@pytest.mark.parametrize("workload", ["sequential", "small-random-write"])
def test_performance(variant, workload, block_size):
    """A load is put on the variant and its gate is judged."""
    if variant == "array-digests" and block_size == "1MiB":
        raise AttachError(
            f"{variant}: client1: `iscsiadm --login` exited 24: authorization failure; check the secret"
        )
    fails = (variant, workload) in FAILS and block_size != "1MiB"
    outcome = Outcome.FAIL if fails else Outcome.INVALID if (variant, workload) in INVALID else Outcome.PASS
    record = build(
        protocol=VARIANTS[variant],
        variant=variant,
        workload=workload,
        parameters={"direction": "write", "block_size": block_size},
        outcome=outcome,
        artefacts={"dmesg": "nfs: server not responding", "mountstats": "age: 12"} if fails else {},
    )
    allure.on_case([record])
    if outcome is Outcome.FAIL:
        raise AssertionError(f"{variant} on client1: {verdict(outcome).reason}")
    if outcome is Outcome.INVALID:
        pytest.fail(f"INVALID: {variant} on client1: {verdict(outcome).reason}", pytrace=False)


def test_close_to_open(variant):
    """What one client closed, another that opens it afterwards reads."""
    if variant == "nas-v3":
        allure.on_case([], {"dmesg": "NFS: v3 server"})
        raise AssertionError("client2 read the old contents after client1 had closed the file")
    if variant.startswith("box"):
        pytest.skip(f"{variant} has no filesystem")


def test_slower_than_before():
    """A gate against the baseline is missed."""
    allure.identify(epic="NFS", feature="performance", variant="nas-v3", client="client1")
    threshold = Threshold(
        METRICS["iops"], ">=", 0.95, "iops >= baseline - 5 %", "targets.yaml:32:9", BASELINE
    )
    reason = "iops: required >= baseline - 5 %, measured 19,000/s against 25,000/s of 10 runs: -24 %: worse"
    asked = {"direction": "read", "block_size": "8KiB"}
    record = build(
        variant="nas-v3",
        parameters=asked,
        outcome=None,
        verdicts=(Verdict(Outcome.FAIL, threshold, None, reason),),
    )
    allure.on_case([record])
    raise AssertionError(f"nas-v3 on client1: {reason}")


@pytest.mark.xfail(strict=True, reason="LIO-ORG: BYTCHK is not looked at (SBC-3 5.30)")
def test_known():
    """A deviation that is written down."""
    allure.identify(epic="iSCSI", feature="data", variant="array-digests", requirement="SBC-3 5.30")
    raise AssertionError("VERIFY passed though the data differ")


@pytest.mark.xfail(strict=True, reason="LIO-ORG: once it lied about its size")
def test_known_no_more():
    """One that is not there any more."""
    allure.identify(epic="iSCSI", feature="data", variant="array-digests", requirement="SBC-3 5.16")
    allure.on_fixed()
