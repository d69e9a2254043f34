"""What the keeper decides, event by event."""

from __future__ import annotations

import pytest

from storagetest.lab.policy import End, Event, Phase, Policy, Report, Start

MACHINES = ["appliance", "client1", "client2"]


@pytest.fixture
def policy() -> Policy:
    policy = Policy(MACHINES, patience=10)
    assert policy.begin(0) == [Start(machine) for machine in MACHINES]
    return policy


def ready(policy: Policy, *machines: str, now: float = 1) -> list:
    return [action for machine in machines for action in policy.line(machine, "storagetest: ready", now)]


def test_up_is_told_once_when_the_last_machine_is_ready(policy):
    assert ready(policy, "client1", "appliance") == [
        Report("ready", {"machine": "client1"}),
        Report("ready", {"machine": "appliance"}),
    ]
    assert ready(policy, "client2")[-1] == Report("up", {})
    assert policy.next_tick() is None
    assert ready(policy, "client2") == [Report("ready", {"machine": "client2"})]


def test_other_lines_of_the_console_mean_nothing(policy):
    assert policy.line("client1", "[    0.000000] Linux version 6.1", 1) == []
    assert policy.states["client1"].milestone == "power on"


def test_patience_counts_from_the_last_milestone(policy):
    assert policy.next_tick() == 10
    for machine in MACHINES:
        policy.line(machine, "storagetest: kernel", 8)
    assert policy.next_tick() == 18
    assert policy.tick(17.9) == []
    assert policy.tick(18) != []


def test_a_silent_client_is_started_once_more_alone(policy):
    ready(policy, "appliance", "client1")
    report, start = policy.tick(10)
    assert report == Report("retry", {"machine": "client2", "why": "silent for 10 s after 'power on'"})
    assert start == Start("client2")
    assert policy.next_tick() == 20
    failed, end = policy.tick(20)
    assert failed.event == "failed"
    assert isinstance(end, End)


def test_with_a_silent_appliance_everybody_starts_once_more(policy):
    ready(policy, "client1", "client2")
    actions = policy.tick(10)
    assert actions[1:] == [Start(machine) for machine in MACHINES]
    assert all(state.phase is Phase.STARTING for state in policy.states.values())
    assert policy.states["client1"].attempts == 0


def test_a_qemu_that_ends_at_once_is_tried_once_more(policy):
    assert policy.ended("client1", "no such CPU", 1)[1:] == [Start("client1")]
    failed, _ = policy.ended("client1", "no such CPU", 2)
    assert failed == Report("failed", {"machine": "client1", "why": "QEMU ended: no such CPU"})


def test_a_service_that_fails_fails_the_lab_and_is_not_tried_again(policy):
    failed, end = policy.line("appliance", "storagetest: failed: samba: no space", 3)
    assert failed == Report("failed", {"machine": "appliance", "why": "samba: no space"})
    assert end == End("appliance: samba: no space")


def test_the_lab_is_ups_until_it_commits(policy):
    assert policy.lab(Event.UP_LEFT) == [End(Event.UP_LEFT.value)]
    assert policy.lab(Event.COMMITTED) == []
    assert policy.lab(Event.UP_LEFT) == []
    assert policy.lab(Event.OWNER_ENDED) == [End(Event.OWNER_ENDED.value)]
    assert policy.lab(Event.ASKED) == [End(Event.ASKED.value)]


def test_when_it_is_up_reboots_and_deaths_are_only_noted(policy):
    ready(policy, *MACHINES)
    assert policy.line("appliance", "storagetest: kernel", 50) == []
    assert policy.states["appliance"].phase is Phase.STARTING
    assert policy.tick(500) == []
    ready(policy, "appliance", now=501)
    assert policy.states["appliance"].boots == 2
    assert policy.ended("client1", "killed", 502) == []
    assert policy.states["client1"].phase is Phase.ENDED
    assert policy.line("client2", "storagetest: failed: client: x", 503) == []
    assert policy.states["client2"].phase is Phase.FAILED


def test_only_a_machine_that_is_off_is_powered_on(policy):
    ready(policy, *MACHINES)
    assert policy.power_on("client1", 60) == []
    policy.ended("client1", "quit", 61)
    assert policy.power_on("client1", 62) == [Start("client1")]
    assert policy.states["client1"].phase is Phase.STARTING
    assert policy.next_tick() is None
    ready(policy, "client1", now=70)
    assert policy.states["client1"].boots == 2
