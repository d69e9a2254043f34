"""Restarting a target by its control: the command runs on the server, and the target answers after it."""

import pytest

from storagetest.config.controls import Controls
from storagetest.errors import HostError, TargetDead
from storagetest.hosts import LocalHost
from storagetest.runner import restart as module
from storagetest.runner.restart import restart


def test_it_returns_when_the_target_answers(tmp_path):
    began = tmp_path / "began"
    controls = Controls.model_validate({"restart": ["touch", str(began)]})
    answers = iter([False, False, True])

    def answered() -> bool:
        assert began.exists(), "asked before the command"
        return next(answers)

    restart(LocalHost(), controls, target="nas", answers=answered)
    assert next(answers, None) is None


def test_a_command_that_fails_is_an_error():
    controls = Controls.model_validate({"restart": ["false"]})
    with pytest.raises(HostError):
        restart(LocalHost(), controls, target="nas", answers=lambda: True)


def test_a_target_that_does_not_answer_again_is_dead(monkeypatch):
    monkeypatch.setattr(module, "ANSWER_TIMEOUT", 0.0)
    controls = Controls.model_validate({"restart": ["true"]})
    with pytest.raises(TargetDead, match="nas to answer after its restart"):
        restart(LocalHost(), controls, target="nas", answers=lambda: False)
