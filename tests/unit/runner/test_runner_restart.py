"""Restarting a target by its control: a command, the end of its connections, and an answer."""

import inspect
from types import SimpleNamespace

import pytest

from storagetest.config.controls import Controls
from storagetest.errors import ControlError, HostError, TargetDead
from storagetest.hosts import LocalHost
from storagetest.plugin.fixtures import core
from storagetest.runner import restart as module
from storagetest.runner.restart import restart


def test_it_returns_when_the_target_answers(tmp_path):
    began = tmp_path / "began"
    controls = Controls.model_validate({"restart": ["touch", str(began)]})
    answers = iter([False, False, True])

    def answered() -> bool:
        assert began.exists(), "asked before the command"
        return next(answers)

    restart(LocalHost(), controls, target="nas", is_connected=lambda: False, answers=answered)
    assert next(answers, None) is None


def test_a_command_that_fails_is_an_error():
    controls = Controls.model_validate({"restart": ["false"]})
    with pytest.raises(HostError):
        restart(LocalHost(), controls, target="nas", is_connected=lambda: False, answers=lambda: True)


def test_a_target_that_does_not_answer_again_is_dead(monkeypatch):
    monkeypatch.setattr(module, "ANSWER_TIMEOUT", 0.0)
    controls = Controls.model_validate({"restart": ["true"]})
    with pytest.raises(TargetDead, match="nas to answer after its restart"):
        restart(LocalHost(), controls, target="nas", is_connected=lambda: False, answers=lambda: False)


def test_a_control_that_returns_early_is_waited_for():
    controls = Controls.model_validate({"restart": ["true"]})
    still = iter([True, True, False])

    def answers() -> bool:
        assert next(still, None) is None, "asked while the old server was there"
        return True

    restart(LocalHost(), controls, target="nas", is_connected=lambda: next(still), answers=answers)


def test_a_control_that_restarts_nothing_is_an_error_of_the_control(monkeypatch):
    monkeypatch.setattr(module, "END_TIMEOUT", 0.0)
    controls = Controls.model_validate({"restart": ["true"]})
    with pytest.raises(ControlError, match=r"^nas: the control `restart` did not restart the server: "):
        restart(LocalHost(), controls, target="nas", is_connected=lambda: True, answers=lambda: True)


def test_a_control_that_has_restarted_nothing_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "END_TIMEOUT", 0.0)
    log = tmp_path / "log"
    controls = Controls.model_validate({"restart": ["sh", "-c", f"echo ran >>{log}"]})
    variant = SimpleNamespace(id="nas-v3", target="nas", server="here", controls=controls)
    state = SimpleNamespace(failed_controls={}, host=lambda _: LocalHost())
    for _ in range(2):
        run = inspect.unwrap(core.restart_target)(variant, state)
        with pytest.raises(ControlError, match=r"^nas-v3: the control `restart`"):
            run(lambda: True, lambda: True)
    assert log.read_text() == "ran\n"
