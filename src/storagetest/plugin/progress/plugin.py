"""The hooks of progress: who shows it, and how what is measured comes there."""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.plugin.progress.model import ProgressSink
from storagetest.plugin.progress.render import ProgressDisplay
from storagetest.plugin.progress.xdist_channel import ProgressListener, sender
from storagetest.plugin.run_state import KEY

__all__ = ["ProgressPlugin", "forward_progress"]

_LINK, _EVERY = "storagetest_progress", "storagetest_progress_every"


class ProgressPlugin:
    """Registered in the controller alone."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._display: ProgressDisplay | None = None
        self._listener: ProgressListener | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Find out where pytest writes; its reporter is there by now."""
        self._begin()

    def configure_node(self, workerinput: dict[str, Any]) -> None:
        """Tell a worker where to say what it measures."""
        display = self._begin()
        if display.every and self._listener is None:
            self._listener = ProgressListener(display.take)
        if self._listener is not None:
            workerinput[_LINK], workerinput[_EVERY] = self._listener.path, display.every

    def node_down(self, worker: str) -> None:
        """Forget what a worker measured that has gone."""
        if self._display is not None:
            self._display.take(worker, None)

    def pytest_sessionfinish(self) -> None:
        """Show nothing any more: what follows are pytest's summaries."""
        self.close()

    def pytest_unconfigure(self) -> None:
        """Close what a broken session left open."""
        self.close()

    def close(self) -> None:
        """Take away what is shown and let go of the socket."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._display is not None:
            self._display.close()

    def _begin(self) -> ProgressDisplay:
        if self._display is None:
            reporter = self._config.pluginmanager.getplugin("terminalreporter")
            self._display = display = ProgressDisplay(self._config, reporter)
            self._config.stash[KEY].teller = ProgressSink(lambda said: display.take("", said), display.every)
        return self._display


def forward_progress(config: pytest.Config) -> None:
    """Make the state of an xdist worker tell the controller, where that listens."""
    given: dict[str, Any] = config.workerinput  # type: ignore[attr-defined]  # xdist's
    if _LINK in given:
        tell = sender(given[_LINK], str(given["workerid"]))
        config.stash[KEY].teller = ProgressSink(tell, float(given[_EVERY]))
