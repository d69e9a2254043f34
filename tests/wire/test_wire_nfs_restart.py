"""The proof that a control has restarted a server: a connection from before it, to a real server, ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from storagetest.config.controls import Controls
from storagetest.errors import ControlError
from storagetest.hosts import LocalHost
from storagetest.runner import restart as runner
from storagetest.suites.conformance.nfs_restart import RestartableServer
from storagetest.wire.nfs4.types import NFS_V4
from storagetest.wire.rpc import RpcConnection
from storagetest.wire.rpc.server import RpcServer
from storagetest.wire.tcp import RecordedConnection, listen

DEADLINE = 60.0


class Service:
    """A server on one port that can be started again."""

    def __init__(self) -> None:
        self._server = self._start(0)
        self.port = self._server.port
        self.starts = 1

    def _start(self, port: int) -> RpcServer:
        return RpcServer(listen("127.0.0.1", port), {NFS_V4: lambda *_: None})

    def restart(self) -> None:
        self._server.close()
        self._server = self._start(self.port)
        self.starts += 1

    def close(self) -> None:
        self._server.close()


class Server(RestartableServer):
    def __init__(self, service: Service, control: Callable[[], object]) -> None:
        super().__init__(self._restart)
        self.service, self._control = service, control
        self.starts_when_renewed: list[int] = []

    def _restart(self, is_connected: Callable[[], bool], answers: Callable[[], bool]) -> None:
        self._control()
        controls = Controls.model_validate({"restart": ["true"]})
        runner.restart(LocalHost(), controls, target="nas", is_connected=is_connected, answers=answers)

    def connections(self, stack: ExitStack) -> Sequence[RpcConnection]:
        link = RecordedConnection.connect("127.0.0.1", self.service.port, deadline=DEADLINE)
        return [RpcConnection(stack.enter_context(link), NFS_V4, deadline=DEADLINE)]

    def ask(self) -> None:
        with ExitStack() as stack:
            self.connections(stack)[0].call("NULL")

    def renew(self) -> None:
        self.starts_when_renewed.append(self.service.starts)


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


def test_a_restart_is_proved_by_the_end_of_an_earlier_connection(service: Service) -> None:
    Server(service, service.restart).restart()
    assert service.starts == 2


def test_what_clients_hold_is_renewed_before_the_restart(service: Service) -> None:
    server = Server(service, service.restart)
    server.restart()
    assert server.starts_when_renewed == [1]


def test_a_control_that_returns_before_the_restart_is_waited_for(service: Service) -> None:
    later = threading.Timer(0.3, service.restart)
    server = Server(service, later.start)
    server.restart()
    later.join()
    assert service.starts == 2
    server.ask()


def test_a_control_that_does_nothing_is_no_statement_about_the_target(service: Service, monkeypatch) -> None:
    monkeypatch.setattr(runner, "END_TIMEOUT", 0.1)
    with pytest.raises(ControlError, match="did not restart the server"):
        Server(service, lambda: None).restart()
    assert service.starts == 1
