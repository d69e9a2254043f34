"""Cases that run on a client, and the client's own ceilings."""

import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from measured_loads import needs_fio

from storagetest.agent.testlib.consistency import NOT_MADE
from storagetest.errors import HostError, WorkloadError
from storagetest.hosts import LocalHost
from storagetest.measure.bottleneck import Limiter, Utilisation
from storagetest.measure.run import Sample
from storagetest.polling import wait_until
from storagetest.runner.client_cases import ClientCase, ClientCaseBatch, ClientCaseStatus, run_cases
from storagetest.runner.client_ceilings import ClientCeilings
from storagetest.workloads.base import LoadSize
from storagetest.workloads.small_random_read import SmallRandomRead

ONE = """\
import os
import time

from storagetest.agent.testlib import record_observation

def good(client_dir):
    record_observation(str(client_dir))

def bad(client_dir, number):
    assert number == 2

def waits(client_dir):
    (client_dir.parent / "pid").write_text(str(os.getpid()))
    time.sleep(60)

def dies(client_dir):
    os.kill(os.getppid(), 9)
"""

TWO = """\
def good(client_dir):
    pass
"""


PASSED, FAILED, ERROR = ClientCaseStatus.PASSED, ClientCaseStatus.FAILED, ClientCaseStatus.ERROR


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    for folder, text in (("one", ONE), ("two", TWO)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test_same.py").write_text(text)
    (tmp_path / "place").mkdir()
    return tmp_path


def call(suite: Path, function: str, *, module: str = "one", **arguments: object) -> ClientCase:
    return ClientCase(f"{module}.{function}", suite / module / "test_same.py", function, arguments)


def test_modules_of_one_name_go_in_one_round_trip(suite: Path) -> None:
    calls = [call(suite, "good"), call(suite, "bad", number=1), call(suite, "good", module="two")]
    with LocalHost() as host:
        answers = run_cases(host, calls, path=str(suite / "place"))
    assert [answer.status for answer in answers] == [PASSED, FAILED, PASSED]
    assert answers[1].message == "1 == 2"
    assert answers[1].lines == (10,)
    assert all(answer.seconds > 0 for answer in answers)
    assert list((suite / "place").iterdir()) == []


def test_an_answer_is_there_before_the_others_have_ended(suite: Path) -> None:
    calls = [call(suite, "good"), call(suite, "waits")]
    with LocalHost() as host, ClientCaseBatch(host, calls, path=str(suite / "place")) as under_way:
        began = time.monotonic()
        assert under_way.wait_result("one.good").status is PASSED
        assert "one.good" not in under_way
        assert "one.waits" in under_way
        waits = suite / "place" / "pid"
        wait_until(lambda: waits.exists() and waits.read_text(), 20, "the other case to begin")
        under_way.close()
        assert under_way.wait_result("one.waits").status is ERROR
        assert time.monotonic() - began < 40
    wait_until(lambda: not Path(f"/proc/{waits.read_text()}").exists(), 10, "its process to be gone")


def test_places_are_new_each_time(suite: Path) -> None:
    with LocalHost() as host:
        places = {
            run_cases(host, [call(suite, "good")], path=str(suite / "place"))[0].observed for _ in range(2)
        }
    assert len(places) == 2


def test_what_was_answered_before_the_agent_was_killed_counts(suite: Path) -> None:
    calls = [call(suite, "good"), call(suite, "dies"), call(suite, "bad", number=2)]
    with LocalHost() as host:
        answers = run_cases(host, calls, path=str(suite / "place"), concurrency=1)
    assert [answer.status for answer in answers] == [PASSED, ERROR, ERROR]
    assert "the agent ended without a result: it was killed" in answers[1].message


def test_a_client_that_cannot_be_reached_is_each_cases_error(suite: Path, monkeypatch) -> None:
    calls = [call(suite, "good"), call(suite, "bad", number=2)]
    client = LocalHost()
    monkeypatch.setattr(client, "interactive_exec", Mock(side_effect=HostError("client1: no route to host")))
    answers = run_cases(client, calls, path="/")
    assert {(answer.status, answer.message) for answer in answers} == {(ERROR, "client1: no route to host")}


def test_a_place_that_is_not_there_is_a_fault_of_the_target(suite: Path) -> None:
    with LocalHost() as host:
        (answer,) = run_cases(host, [call(suite, "good")], path=str(suite / "absent"))
    assert answer.status is ClientCaseStatus.SKIPPED
    assert "No such file or directory" in answer.faults[NOT_MADE]


def test_it_is_measured_once_a_client_and_load():
    ceilings, measure = ClientCeilings(), Mock(return_value=7.0)
    with LocalHost("a") as a, LocalHost("b") as b:
        found = [ceilings.get(host, load, measure) for host, load in ((a, "x"), (a, "x"), (a, "y"), (b, "x"))]
    assert found == [7.0] * 4
    assert measure.call_count == 3


def test_a_generator_that_cannot_leaves_it_unknown_and_a_lost_client_is_an_error():
    with LocalHost("a") as host:
        assert ClientCeilings().get(host, "x", Mock(side_effect=WorkloadError("no null engine"))) is None
        with pytest.raises(HostError):
            ClientCeilings().get(host, "x", Mock(side_effect=HostError("gone")))


@pytest.mark.parametrize(
    ("busy_cores", "remote", "ceilings"),
    [(0.49, True, 0), (0.5, True, 1), (None, True, 1), (2.0, False, 0)],
    ids=["idle", "busy", "unknown", "not remote"],
)
def test_the_ceiling_is_measured_if_the_client_may_be_the_limit(
    measure, scripted, attachment, monkeypatch, busy_cores, remote, ceilings
):
    load, used = scripted([]), Utilisation(rate=900.0, busy_cores=busy_cores)
    sample = Sample({"iops": 900.0}, 1.0, 900, utilisation=used)
    ceiling = Mock(return_value=1000.0)
    monkeypatch.setattr(load, "measure", lambda *_: sample)
    monkeypatch.setattr(load, "ceiling", ceiling)
    scale = LoadSize(size=1 << 20, ramp=0.0, runtime=1.0)
    run, _ = measure(load, scale, repeats=3, attachment=replace(attachment, remote=remote))
    assert ceiling.call_count == ceilings
    assert [one.utilisation.ceiling for one in run.samples] == [1000.0 if ceilings else None] * 3
    assert (run.limited_by.limiter is Limiter.CLIENT) is bool(ceilings)


@needs_fio
def test_run_names_its_limiter(measure, monkeypatch):
    monkeypatch.setattr("storagetest.runner.measurement.may_be_near_ceiling", lambda _: True)
    scale = LoadSize(size=2 << 20, ramp=0.1, runtime=0.4)
    run, _ = measure(SmallRandomRead(), scale, options={"queue_depth": 1}, repeats=1)
    (sample,) = run.samples
    assert sample.utilisation.rate == pytest.approx(sample.values["iops"])
    assert sample.utilisation.ceiling > 0
    assert sample.utilisation.busy_cores > 0
    assert 0 < (sample.utilisation.busiest_core or 0) <= 1
    assert "without a target" in run.limited_by.reason
