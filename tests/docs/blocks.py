"""The code blocks of the docs, and how they are run.

A comment above a block of shell states how it is tested:

    <!-- run -->            run by tests/docs, in the page's own directory; ``run: exit 0, 1`` allows
                            these statuses, ``run: root`` wants root
    <!-- lab -->            run by tests/lab/test_tutorial.py; ``lab: exit 1``; ``lab: html`` wants npm's
                            registry, and is run by hand
    <!-- by hand: why -->   not run by a test, and why not

A block with ``title="NAME"`` is a file of that name. Both happen in the page's order.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if path.name not in {"design.md", "CHANGELOG.md"} and "adr" not in path.parts
)
SHELL = {"sh", "bash", "shell", "console"}

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)(?P<more>.*)$")
_TITLE = re.compile(r'title="([^"]+)"')
_COMMENT = re.compile(r"^\s*<!-- (?P<word>run|lab|by hand)(?:: (?P<more>.*))? -->\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: ``word`` is ``run``, ``lab``, ``by hand`` or "", ``more`` what follows its colon."""

    page: Path
    line: int
    language: str
    text: str
    title: str = ""
    word: str = ""
    more: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def statuses(self) -> set[int]:
        """The exit statuses that are right."""
        status = re.search(r"exit ([\d, ]+)", self.more)
        return {int(number) for number in status[1].split(",")} if status else {0}


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, those within tabs and lists as well."""
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        start = _FENCE.match(lines[number])
        number += 1
        if not start:
            continue
        first, indent = number, start["indent"]
        while lines[number].strip() != "```":
            number += 1
        before = next((line for line in reversed(lines[: first - 1]) if line.strip()), "")
        comment, title = _COMMENT.match(before), _TITLE.search(start["more"])
        yield Block(
            page,
            first,
            start["language"],
            "\n".join(line.removeprefix(indent) for line in lines[first:number]) + "\n",
            title[1] if title else "",
            comment["word"] if comment else "",
            (comment["more"] or "") if comment else "",
        )
        number += 1


class Shell:
    """Runs a page's blocks as a person would: one directory after the other, with this Python's programs."""

    def __init__(self, where: Path, **environment: str) -> None:
        self._where, self._top = where, where
        self._environment = os.environ | environment
        self._environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        for name in ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER", "COLUMNS"):
            self._environment.pop(name, None)

    def write(self, block: Block) -> None:
        """Write the file that the block is."""
        path = self._top / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def run(self, block: Block, *, timeout: float = 300) -> str:
        """Run the commands; what they print is returned. AssertionError if they end with another status."""
        note = self._top / ".where"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"trap 'pwd > {note}' EXIT\n{block.text}"],
            cwd=self._where,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        self._where = Path(note.read_text().strip())
        assert done.returncode in block.statuses, f"{block.place}: status {done.returncode}\n{done.stdout}"
        return done.stdout
