"""The program: read the request, run its command, say what came of it."""

from __future__ import annotations

import json
import sys

from storagetest.agent.dispatch import run_request, write_message

__all__ = ["main"]


def main() -> int:
    """Answer the request on stdin's first line; the exit status is 0 when the last line is a result."""
    try:
        request = json.loads(sys.stdin.buffer.readline())
    except ValueError as error:
        write_message({"t": "error", "kind": "bug", "message": f"{type(error).__name__}: {error}"})
        return 1
    return run_request(request)
