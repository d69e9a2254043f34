"""Foreign suites that run on a client, in a directory of the mount.

Rules:

1. A client that lacks the program is a skip that says where it comes from; it is asked once.
2. Each test has an empty directory of its own, which is removed after it, whatever came of it.
3. A variant stays attached for as long as the next item is of the same one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from storagetest.errors import HostError
from storagetest.external.base import ClientSuite
from storagetest.hosts import Completed, Host
from storagetest.plugin.attach import attach_or_skip
from storagetest.plugin.external.item import ExternalItem, report_result
from storagetest.plugin.run_state import KEY, RunState
from storagetest.protocols.base import Attachment

__all__ = ["MountItem"]

_SHORT = 60.0
"""Seconds for what is done before and after a test."""

_ATTACHED = pytest.StashKey[dict[str, tuple[ExitStack, Attachment]]]()
_PRESENT = pytest.StashKey[dict[tuple[str, str], bool]]()


class MountItem(ExternalItem):
    """A test that runs on the client."""

    suite: ClientSuite

    def setup(self) -> None:
        """Attach the variant, unless the item before has left it so; skip where the program is not there."""
        state = self.config.stash[KEY]
        client = state.host(state.client(self.variant))
        if not self._present(client):
            pytest.skip(f"{self.program} is not on {client.name}: {self.suite.package}")
        self.funcargs = {"attachment": self._attach(state, client)}

    def runtest(self) -> None:
        """Run the test in a directory of its own, and pass on what it says."""
        attachment: Attachment = self.funcargs["attachment"]
        with _directories(attachment.client, f"{attachment.path}/{self.test}") as (place, scratch):
            done = self._run(attachment.client, place, scratch)
        self.add_report_section("call", "stdout", done.stdout)
        verdict = self.suite.verdict(self.test, status=done.status, stdout=done.stdout, stderr=done.stderr)
        report_result(verdict)

    def _run(self, client: Host, place: str, scratch: str) -> Completed:
        for name, text in self.suite.files(self.test).items():
            client.push(text.encode(), f"{scratch}/{name}", mode=0o644)
        run = self.suite.invocation(self.test, program=self.program, place=place, scratch=scratch)
        return client.run(run.argv, deadline=run.deadline, check=False, env=run.env)

    def _present(self, client: Host) -> bool:
        present = self.config.stash.setdefault(_PRESENT, {})
        key = (client.name, self.program)
        if key not in present:
            present[key] = client.run(self.suite.presence(self.program), deadline=_SHORT, check=False).ok
        return present[key]

    def _attach(self, state: RunState, client: Host) -> Attachment:
        kept = self.config.stash.setdefault(_ATTACHED, {})
        if self.variant.id not in kept:
            stack = ExitStack()
            kept[self.variant.id] = stack, stack.enter_context(attach_or_skip(self.variant, client, state))
        return kept[self.variant.id][1]

    def release(self) -> None:
        """Let go of the variant."""
        kept = self.config.stash.get(_ATTACHED, {}).pop(self.variant.id, None)
        if kept is not None:
            kept[0].close()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Let go of a variant that the next item does not need."""
    try:
        yield
    finally:
        if isinstance(item, MountItem) and not (
            isinstance(nextitem, MountItem) and nextitem.variant.id == item.variant.id
        ):
            item.release()


@contextmanager
def _directories(client: Host, place: str) -> Iterator[tuple[str, str]]:
    """Yield ``place``, made, and a directory of the client's own; both are removed."""
    # Others may enter: some tests become another user.
    client.run(["mkdir", "-m", "0755", place], deadline=_SHORT)
    made = client.run(["mktemp", "-d", "/tmp/storagetest-external-XXXXXX"], deadline=_SHORT)  # noqa: S108  # mktemp(1) makes it
    scratch = made.stdout.strip()
    remove = ["rm", "-rf", "--", place, scratch]
    try:
        yield place, scratch
    except BaseException:
        with suppress(HostError):  # what went wrong first says more
            client.run(remove, deadline=3 * _SHORT)
        raise
    client.run(remove, deadline=3 * _SHORT)
