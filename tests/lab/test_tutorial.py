"""The tutorial, followed to the letter: a lab and a home of its own, from the first command to the last."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))  # importlib mode leaves sys.path alone

from blocks import ROOT, Shell, blocks

from storagetest.lab.paths import cache_root


@pytest.fixture
def home() -> Iterator[Path]:
    # Under /tmp itself: the path of a lab's sockets has a limit.
    made = Path(tempfile.mkdtemp(prefix="st-"))
    yield made
    shutil.rmtree(made)


def test_the_tutorial(home: Path) -> None:
    cache = cache_root().parents[1]
    environment = {key: "" for key in ("XDG_STATE_HOME", "STORAGETEST_LAB") if key in os.environ}
    shell = Shell(home, HOME=str(home), XDG_CACHE_HOME=str(cache), **environment)
    ran, last = 0, ""
    page = list(blocks(ROOT / "docs" / "tutorial.md"))
    down = page[-1]
    assert "lab down" in down.text
    try:
        for block in page:
            if block.title:
                shell.write(block)
            elif block.word == "lab" and block.more != "html":
                last = shell.run(block, timeout=1200)
                ran += 1
    finally:
        if "lab default is down" not in last:
            shell.run(down)
    assert ran > 6
