"""Every block of the docs: files load, commands run, and a block that no test runs states the reason."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from blocks import PAGES, ROOT, SHELL, Block, Shell, blocks

from storagetest import config

ALL = [block for page in PAGES for block in blocks(page)]
MINIMAL = "version: 1\ntargets: {disk: {protocol: local, path: /var/tmp}}\n"


def each(wanted: list[Block]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", wanted, ids=lambda block: block.place)


@each([block for block in ALL if block.language in SHELL])
def test_each_command_block_states_how_it_is_tested(block: Block):
    assert block.word, "a comment above it states run, lab, or by hand and why (tests/docs/blocks.py)"
    assert block.word != "by hand" or block.more, "by hand: why?"


def test_a_block_without_a_language_is_no_way_round():
    assert [block.place for block in ALL if not block.language] == []


@each([block for block in ALL if block.language == "python"])
def test_python_compiles(block: Block):
    compile(block.text, block.place, "exec")


def whole(block: Block) -> str:
    """The targets file that a block is, or is a part of; "" where it is something else."""
    if block.language not in {"yaml", "yml"} or block.text.startswith((" ", "--8<--")):
        return ""
    if any(other.title == "conftest.py" for other in blocks(block.page)):
        return ""  # it speaks of what the page itself registers, and is run there
    keys = set(yaml.safe_load(block.text))
    if {"version", "targets"} <= keys:
        return block.text
    return MINIMAL + block.text if keys <= {"thresholds", "profiles"} else ""


@each([block for block in ALL if whole(block)])
def test_a_targets_file_loads(block: Block, tmp_path: Path):
    for other in blocks(block.page):
        if other.title:
            (tmp_path / other.title).parent.mkdir(exist_ok=True)
            (tmp_path / other.title).write_text(other.text)
    path = tmp_path / "shown.yaml"
    path.write_text(whole(block))
    assert config.load(path).variants


def may_mount() -> bool:
    done = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return os.geteuid() == 0 and done.returncode == 0


RUN = [page for page in PAGES if any(block.word == "run" for block in blocks(page))]


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path):
    (tmp_path / "targets.yaml").write_text(MINIMAL)
    shell, ran = Shell(tmp_path), 0
    for block in blocks(page):
        if block.title:
            shell.write(block)
        elif block.word == "run" and (block.more != "root" or may_mount()):
            shell.run(block)
            ran += 1
    if not ran:
        pytest.skip("only root, where it may mount, can run these")
