"""Hooks of progress: create the display, and connect this process and the workers to it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from storagetest.plugin.progress.model import ProgressSink
from storagetest.plugin.progress.render import ProgressDisplay
from storagetest.plugin.progress.xdist_channel import ProgressListener, sender
from storagetest.plugin.run_state import KEY

_LINK, _EVERY = "storagetest_progress", "storagetest_progress_every"


class ProgressPlugin:
    """Registered in the controller only."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._display: ProgressDisplay | None = None
        self._listener: ProgressListener | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Create the display; pytest's terminal reporter exists by now."""
        self._get_display()

    def configure_node(self, workerinput: dict[str, Any]) -> None:
        """Send a worker the address of the socket for progress messages."""
        display = self._get_display()
        if display.every and self._listener is None:
            self._listener = ProgressListener(display.update)
        if self._listener is not None:
            workerinput[_LINK], workerinput[_EVERY] = self._listener.path, display.every

    def node_down(self, worker: str) -> None:
        """Remove the progress of a worker that ended."""
        if self._display is not None:
            self._display.update(worker, None)

    def pytest_sessionfinish(self) -> None:
        """Clear the display and close the socket before pytest's summaries."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._display is not None:
            self._display.close()

    pytest_unconfigure = pytest_sessionfinish  # if the session ended early

    def _get_display(self) -> ProgressDisplay:
        if self._display is None:
            reporter = self._config.pluginmanager.getplugin("terminalreporter")
            self._display = display = ProgressDisplay(self._config, reporter)
            self._config.stash[KEY].progress = ProgressSink(partial(display.update, ""), display.every)
        return self._display


def forward_progress(config: pytest.Config) -> None:
    """Send the progress of an xdist worker to the controller, if it listens."""
    workerinput: dict[str, Any] = config.workerinput  # type: ignore[attr-defined]  # xdist's
    if _LINK in workerinput:
        send = sender(workerinput[_LINK], str(workerinput["workerid"]))
        config.stash[KEY].progress = ProgressSink(send, float(workerinput[_EVERY]))
