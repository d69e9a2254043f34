"""Which mutants a run tries with ``--mutants changed``: those that a change since the last proof reaches, and
a part of the others, which differs from commit to commit.

The last proof is that of ``tests/evidence.json``. A change to a test module of a suite or to a file of
mutants reaches the mutants whose names are in it. A table of requirements reaches none: no verdict depends on
it. A deleted file, and a change to anything else in the module's ``DEPENDS_ON``, reaches all of its mutants.
If the commit of the last proof is not known, every mutant is tried.
"""

import json
import random
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import reach

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "tests" / "evidence.json"
PART = 0.1
"""Fraction of the mutants without a change that is tried."""
WIRE = "src/storagetest/wire/"
NFS = ("nfs3", "nfs4", "rpc", "xdr")
"""The codecs of each NFS suite: the ladders of ONC RPC show both versions."""


def depends_on(*own: str, codecs: Iterable[str]) -> tuple[str, ...]:
    """Return the starts of the paths that all mutants of a suite on the wire depend on.

    ``own``: those of this suite's cases, servers and mutants. ``codecs``: the packages of
    ``storagetest.wire`` that it uses; each suite also uses the modules that are in no package, and the
    seeded sequences.
    """
    return (
        *own,
        *(f"{WIRE}{package}/" for package in (*codecs, "sequences")),
        *sorted(str(path.relative_to(ROOT)) for path in (ROOT / WIRE).glob("*.py")),
        "src/storagetest/plugin/conformance/",
        "tests/mutants/mutant_row.py",
        "tests/mutants/mutation_run.py",
        "tests/mutants/proxy.py",
    )


def last_proof() -> str:
    """Return the commit at which all mutants were last tried; empty if there is none."""
    evidence = json.loads(EVIDENCE.read_text(encoding="utf-8")) if EVIDENCE.exists() else {}
    return str(evidence.get("mutants", {}).get("commit", ""))


def changed_files(since: str) -> list[str] | None:
    """Return the paths that differ from a commit, also those that git does not track; None if not known."""
    try:
        return reach.changed_files(since) if since else None
    except (OSError, subprocess.SubprocessError):
        return None


class Selection:
    """Selects mutants by the paths that have ``changed`` (None: not known) and by a seed."""

    def __init__(self, changed: Sequence[str] | None, seed: str) -> None:
        self.changed, self.seed = changed, seed

    def select(self, mutants: Iterable[str], depends_on: Sequence[str]) -> set[str]:
        """Return the names of the mutants to try. ``depends_on``: the starts of paths."""
        names = sorted(mutants)
        if self.changed is None:
            return set(names)
        reached: set[str] = set()
        for path in (path for path in self.changed if path.startswith(tuple(depends_on))):
            file = ROOT / path
            if file.parent.name == "requirements":
                continue
            names_mutants = file.name.startswith("test_") or file.name.endswith("_mutants.py")
            if not names_mutants or not file.exists():  # a deleted file names no mutant any more
                return set(names)
            reached |= set(re.findall(r"[\w-]+", file.read_text(encoding="utf-8"))) & set(names)
        rest = [name for name in names if name not in reached]
        return reached | set(random.Random(self.seed).sample(rest, round(len(rest) * PART)))


def mutant_of(item: pytest.Item) -> str | None:
    """Return the mutant that a test tries, its parameter ``name``; None for any other test."""
    return item.callspec.params.get("name") if hasattr(item, "callspec") else None


def selected_mutants(request: pytest.FixtureRequest, mutants: Iterable[str]) -> tuple[list[str], bool]:
    """Return the mutants that the selected tests of this module try, and whether they need the honest cases.

    If only tests about all mutants are selected, these are all of ``mutants``.
    """
    tried = [mutant_of(item) for item in request.session.items if item.path == request.path]
    return [name for name in tried if name] or list(mutants), None in tried
