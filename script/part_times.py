"""Print how long each part of script/test took, and which take a tenth longer than when they last passed.

    python script/part_times.py RESULT.json HISTORY.json

RESULT is tox's --result-json. HISTORY has the seconds of each part's last run that passed; it is updated. A
difference below five seconds is not marked.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

GROWTH, LEAST = 1.1, 5.0  # ratio; seconds


def main() -> None:
    """Read the two files, print the table, write the second."""
    result, history = map(Path, sys.argv[1:])
    before: dict[str, float] = json.loads(history.read_text()) if history.exists() else {}
    now = dict(before)
    for name, part in json.loads(result.read_text())["testenvs"].items():
        commands = part.get("test", [])
        if name.startswith(".") or not commands:
            continue
        seconds = sum(command["elapsed"] for command in commands)
        passed = all(command["retcode"] == 0 for command in commands)
        last = before.get(name)
        grown = last is not None and seconds > last * GROWTH and seconds > last + LEAST
        text = f"{name:8} {seconds:7.1f} s  {'passed' if passed else 'FAILED'}"
        if last is not None:
            text += f"  {last:7.1f} s before"
        print(text + ("  SLOWER by more than a tenth" if grown and passed else ""))
        if passed:
            now[name] = round(seconds, 1)
    history.write_text(json.dumps(now, indent=1) + "\n")


if __name__ == "__main__":
    main()
