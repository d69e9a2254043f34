"""Run one agent command and write its result as the last JSON line."""

from __future__ import annotations

import importlib
import json
import re
import signal
import time
from types import ModuleType
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.worker_pool import CommandError, os_error_fields


def run_request(request: dict[str, Any]) -> int:
    """Run the request's command, and return the exit status: 0 if the last line is a result."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        message = {"t": "result", "value": _result(request)}
    except CommandError as failed:
        message = {"t": "error", **failed.fields}
    except OSError as error:
        message = {"t": "error", **os_error_fields(error)}
    except (ValueError, KeyError, TypeError) as error:
        message = {"t": "error", "kind": "bug", "message": f"{type(error).__name__}: {error}"}
    write_message(message)
    return 0 if message["t"] == "result" else 1


def load_command(request: dict[str, Any]) -> ModuleType:
    """Return the module of the request's command. Raises :class:`CommandError`."""
    name = request["command"]
    if not re.fullmatch(r"(loads\.)?[a-z][a-z_]*", name):
        raise CommandError("request", f"unknown command {name!r}")
    try:
        return importlib.import_module(f"storagetest.agent.commands.{name}")
    except ModuleNotFoundError:
        raise CommandError("request", f"unknown command {name!r}") from None


def _result(request: dict[str, Any]) -> dict[str, Any]:
    command = load_command(request)
    until = time.monotonic() + request["deadline"]
    slot, barrier_path = request.get("timeline_interval", 0.0), request.get("barrier", "")
    with CommandContext(until, write_message, slot=slot, barrier_path=barrier_path) as context:
        result: dict[str, Any] = command.run(request, context)
    return result


def write_message(message: dict[str, Any]) -> None:
    """Write one JSON line to stdout."""
    fsutil.write_all(1, json.dumps(message, separators=(",", ":")).encode() + b"\n")


def _stop(number: int, _frame: object) -> None:
    # A second signal must not interrupt the cleanup that the first one has started.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise CommandError("stopped", f"ended by a signal ({signal.Signals(number).name})")
