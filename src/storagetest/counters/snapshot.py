"""All counters read twice, around a load, by the very command that runs it: no round trip of its own.

What decides something (was the client busy, did the reads cross the wire) is decided by these two readings;
the series sampled in between are for people.
"""

from __future__ import annotations

from collections.abc import Mapping

from storagetest.counters.base import all_sources

__all__ = ["command", "globs", "parse", "format_output"]


def command() -> str:
    """Return the shell command (sh, GNU grep) that prints the files of all sources; it is silent of others.

    The globs are the shell's to expand. One that matches nothing is a file that is not there.
    """
    return f"grep -asHZ '' {' '.join(globs())}"


def globs() -> tuple[str, ...]:
    """Return the files of all sources, as globs."""
    return tuple(dict.fromkeys(path for source in all_sources() for path in source.paths))


def format_output(texts: Mapping[str, str]) -> str:
    """Return what :func:`command` prints of files with these texts."""
    return "".join(f"{path}\0{line}\n" for path, text in texts.items() for line in text.splitlines())


def parse(output: str) -> dict[str, str]:
    """Return path → text of what :func:`command` printed: lines of path, NUL and the file's line."""
    lines: dict[str, list[str]] = {}
    for line in output.split("\n"):
        path, nul, text = line.partition("\0")
        if nul:
            lines.setdefault(path, []).append(text)
    return {path: "\n".join(found) + "\n" for path, found in lines.items()}
