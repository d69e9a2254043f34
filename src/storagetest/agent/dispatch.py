"""What a request asks for is done, and what came of it is the last line that is said."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import time
from types import ModuleType
from typing import Any

from storagetest.agent.command_context import CommandContext
from storagetest.agent.worker_pool import CommandError, os_error_fields

__all__ = ["load_command", "run_request", "write_message"]


def run_request(request: dict[str, Any]) -> int:
    """Run the request's command, and return the exit status: 0 when the last line is a result."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        line = {"t": "result", "value": _answer(request)}
    except CommandError as failed:
        line = {"t": "error", **failed.fields}
    except OSError as error:
        line = {"t": "error", **os_error_fields(error)}
    except (ValueError, KeyError, TypeError) as error:
        line = {"t": "error", "kind": "bug", "message": f"{type(error).__name__}: {error}"}
    write_message(line)
    return 0 if line["t"] == "result" else 1


def load_command(request: dict[str, Any]) -> ModuleType:
    """Return the module of the request's command. Raises :class:`Failed`."""
    name = request["command"]
    if not re.fullmatch(r"(loads\.)?[a-z][a-z_]*", name):
        raise CommandError("request", f"no command is called {name!r}")
    try:
        return importlib.import_module(f"storagetest.agent.commands.{name}")
    except ModuleNotFoundError:
        raise CommandError("request", f"no command is called {name!r}") from None


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    command = load_command(request)
    until = time.monotonic() + request["deadline"]
    slot, place = request.get("timeline_interval", 0.0), request.get("barrier", "")
    with CommandContext(until, write_message, slot=slot, place=place) as job:
        found: dict[str, Any] = command.run(request, job)
    return found


def write_message(line: dict[str, Any]) -> None:
    """Write one line of the conversation."""
    data = memoryview(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    while data:
        data = data[os.write(1, data) :]


def _stop(number: int, _frame: object) -> None:
    # A second signal must not interrupt the killing of workers that the first one began.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise CommandError("stopped", f"told to end ({signal.Signals(number).name})")
