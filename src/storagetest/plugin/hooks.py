"""Entry point, which every pytest process loads: options, marks, fixtures, and the import of the rest.

Importing the rest takes a second, so :func:`start` imports it at the first use: a targets file, an
option ``--st-*``, a test that takes the fixture ``variant`` or has the mark ``case``, or a foreign suite.
This module and those of the fixtures import only pytest and small modules.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from storagetest.plugin.options import MARKERS, add_options, is_any_given, targets_path

pytest_plugins = [
    "storagetest.plugin.fixtures.core",
    "storagetest.plugin.fixtures.two_clients",
    "storagetest.plugin.fixtures.deprecated",
]

_STARTED = pytest.StashKey[bool]()
_FOREIGN_SUITE = ".external.toml"


def start(config: pytest.Config) -> None:
    """Import and register all hooks, once. Raises :class:`pytest.UsageError`."""
    if config.stash.get(_STARTED, False):
        return
    config.stash[_STARTED] = True
    config.pluginmanager.unregister(name="storagetest-until-used")
    from storagetest.plugin import run_hooks  # noqa: PLC0415  # see above

    run_hooks.start(config)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ``--st-*``."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks. Start if an option is given or the targets file exists."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    config.pluginmanager.register(_UntilUsed(config), "storagetest-until-used")
    if is_any_given(config) or targets_path(config).exists():
        start(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize by target variant, if ``variant`` is this plugin's fixture."""
    fixtures = metafunc.definition._fixtureinfo.name2fixturedefs.get("variant")  # noqa: SLF001  # no other way
    if not fixtures or fixtures[-1].func.__module__ != "storagetest.plugin.fixtures.core":
        return
    start(metafunc.config)
    from storagetest.plugin import parametrize  # noqa: PLC0415  # see above

    parametrize.parametrize(metafunc)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect ``*.external.toml``."""
    if not file_path.name.endswith(_FOREIGN_SUITE):
        return None
    start(parent.config)
    from storagetest.plugin.external.collect import ExternalFile  # noqa: PLC0415  # see above

    file: ExternalFile = ExternalFile.from_parent(parent, path=file_path)
    return file


class _UntilUsed:
    """Hooks that call :func:`start` at the first use; unregistered then."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Start at the first conformance case."""
        if item.get_closest_marker("case") is not None:
            start(self._config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Start in xdist's controller, which collects nothing, at the first report of a case."""
        if any(name.startswith("storagetest_") for name in vars(report)):
            manager = self._config.pluginmanager
            before = manager.get_plugins()
            start(self._config)
            manager.subset_hook_caller("pytest_runtest_logreport", before)(report=report)
