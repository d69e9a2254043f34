"""The program: read the request, run its command, write the result."""

from __future__ import annotations

import json
import sys

from storagetest.agent.dispatch import run_request, write_message


def main() -> int:
    """Run the request in stdin's first line; return the exit status, 0 if the last line is a result."""
    try:
        request = json.loads(sys.stdin.buffer.readline())
    except ValueError as error:
        write_message({"t": "error", "kind": "bug", "message": f"{type(error).__name__}: {error}"})
        return 1
    return run_request(request)
