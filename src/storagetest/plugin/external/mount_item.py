"""Foreign suites that run on a client, in a directory of the mount.

Rules:

1. If a client lacks the program, the test is skipped, and the reason names the package. The client is
   checked once.
2. Each test runs in an empty directory, which is removed after the test in every case.
3. A variant stays attached while the next item has the same variant.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from storagetest.errors import HostError
from storagetest.external.base import ClientSuite
from storagetest.hosts import Completed, Host
from storagetest.plugin.attach import attach_or_skip
from storagetest.plugin.external.absence import skip_absent
from storagetest.plugin.external.item import ExternalItem, report_result
from storagetest.plugin.run_state import KEY, RunState
from storagetest.protocols.base import Attachment

_COMMAND_TIMEOUT = 60.0
"""Timeout in seconds of a command before or after a test; chosen."""

_ATTACHED = pytest.StashKey[dict[str, tuple[ExitStack, Attachment]]]()
_PRESENT = pytest.StashKey[dict[tuple[str, str], bool]]()


class MountItem(ExternalItem):
    """A test that runs on the client."""

    suite: ClientSuite

    def setup(self) -> None:
        """Attach the variant if it is not attached; skip if the client lacks the program."""
        state = self.config.stash[KEY]
        client = state.host(state.client(self.variant))
        if not self._present(client):
            skip_absent(self, f"{self.program} is not installed on {client.name}: {self.suite.package}")
        self.funcargs = {"attachment": self._attach(state, client)}

    def runtest(self) -> None:
        """Run the test in an empty directory and report its result."""
        attachment: Attachment = self.funcargs["attachment"]
        with _directories(attachment.client, f"{attachment.path}/{self.test}") as (path, scratch):
            done = self._run(attachment.client, path, scratch)
        self.add_report_section("call", "stdout", done.stdout)
        result = self.suite.verdict(self.test, status=done.status, stdout=done.stdout, stderr=done.stderr)
        report_result(self, result)

    def _run(self, client: Host, path: str, scratch: str) -> Completed:
        for name, text in self.suite.files(self.test).items():
            client.push(text.encode(), f"{scratch}/{name}", mode=0o644)
        run = self.suite.invocation(self.test, program=self.program, place=path, scratch=scratch)
        return client.run(run.argv, deadline=run.deadline, check=False, env=run.env)

    def _present(self, client: Host) -> bool:
        present = self.config.stash.setdefault(_PRESENT, {})
        key = (client.name, self.program)
        if key not in present:
            argv = self.suite.presence(self.program)
            present[key] = client.run(argv, deadline=_COMMAND_TIMEOUT, check=False).ok
        return present[key]

    def _attach(self, state: RunState, client: Host) -> Attachment:
        attached = self.config.stash.setdefault(_ATTACHED, {})
        if self.variant.id not in attached:
            stack = ExitStack()
            attachment = stack.enter_context(attach_or_skip(self.variant, client, state))
            attached[self.variant.id] = stack, attachment
        return attached[self.variant.id][1]

    def release(self) -> None:
        """Release the variant."""
        stack, _ = self.config.stash.get(_ATTACHED, {}).pop(self.variant.id, (None, None))
        if stack is not None:
            stack.close()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Release a variant that the next item does not use."""
    try:
        yield
    finally:
        if isinstance(item, MountItem) and not (
            isinstance(nextitem, MountItem) and nextitem.variant.id == item.variant.id
        ):
            item.release()


@contextmanager
def _directories(client: Host, path: str) -> Iterator[tuple[str, str]]:
    """Create ``path`` and a local directory of the client; yield both, and remove them."""
    # Not 0700, because some tests change to another user.
    client.run(["mkdir", "-m", "0755", path], deadline=_COMMAND_TIMEOUT)
    output = client.run(["mktemp", "-d", "/tmp/storagetest-external-XXXXXX"], deadline=_COMMAND_TIMEOUT)  # noqa: S108  # created by mktemp(1)
    scratch = output.stdout.strip()
    remove = ["rm", "-rf", "--", path, scratch]
    try:
        yield path, scratch
    except BaseException:
        with suppress(HostError):  # the first error is more useful
            client.run(remove, deadline=3 * _COMMAND_TIMEOUT)
        raise
    client.run(remove, deadline=3 * _COMMAND_TIMEOUT)
