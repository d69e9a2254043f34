"""Run every test, also those that script/test leaves out, and record each part that passes.

    python script/evidence.py [PART ...]

The parts are the directories below tests/. Each is run whole: all mutants, and the tests marked `slow`. A
part that passes is recorded in tests/evidence.json with the commit, the day, the seconds and the numbers of
tests, so an interrupted run keeps what it has. Uncommitted changes are refused: evidence is of a commit.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = Path("tests/evidence.json")
PARTS = {
    "unit": ["-n", "2"],
    "wire": ["-n", "2"],
    "plugin": ["-n", "2"],
    "docs": ["-n", "2", "--dist", "loadscope"],
    "leases": ["-n", "2"],
    "mutants": ["-n", "3"],
    "lab": [],
}
"""pytest's options by part, in the order of the run."""
NO_SKIPS = {"mutants"}
"""Parts that are not recorded if a test was skipped: the default run relies on each test of theirs."""


def git(*arguments: str) -> str:
    """Return the output of a git command."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def changes() -> str:
    """Return the uncommitted changes, without the record."""
    return git("status", "--porcelain", "--", ".", f":!{RECORD}")


def run_part(name: str) -> dict[str, str | int] | None:
    """Run a part; return what is recorded, or None if a test failed or the checkout changed meanwhile."""
    commit = git("rev-parse", "HEAD")
    with tempfile.TemporaryDirectory() as directory:
        junit = Path(directory, "junit.xml")
        command = [sys.executable, "-m", "pytest", *PARTS[name], f"--junitxml={junit}", f"tests/{name}"]
        start = time.monotonic()
        if (
            subprocess.run(command, cwd=ROOT, check=False).returncode
            or changes()
            or git("rev-parse", "HEAD") != commit
        ):
            return None
        seconds = round(time.monotonic() - start)
        counts = next(ET.parse(junit).getroot().iter("testsuite")).attrib
    skipped = int(counts["skipped"])
    if skipped and name in NO_SKIPS:
        print(f"evidence: {name}: {skipped} tests were skipped")
        return None
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    passed = int(counts["tests"]) - skipped
    return {"commit": commit, "date": today, "seconds": seconds, "passed": passed, "skipped": skipped}


def main() -> int:
    """Run the parts one after the other; return 1 if one failed."""
    names = sys.argv[1:] or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        sys.exit(f"evidence: no part {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    if changed := changes():
        sys.exit(f"evidence: uncommitted changes:\n{changed}")
    failed = []
    for name in names:
        entry = run_part(name)
        if entry is None:
            failed.append(name)
            continue
        path = ROOT / RECORD
        record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        record[name] = entry
        path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"evidence: {', '.join(failed)} failed" if failed else f"evidence: recorded in {RECORD}: commit it")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
