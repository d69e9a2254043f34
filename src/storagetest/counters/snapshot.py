"""Read all counters before and after a load, by the command that runs the load, without another round trip.

Verdicts (was the client busy, did the reads reach the target) use these two readings only; the series sampled
during the load are for reports.
"""

from __future__ import annotations

from collections.abc import Mapping

from storagetest.counters.base import all_sources, paths_of


def command() -> str:
    """Return the shell command (sh, GNU grep) that prints the files of all sources; it ignores missing files.

    The shell expands the globs. A glob without a match counts as a missing file.
    """
    return f"grep -asHZ '' {' '.join(globs())}"


def globs() -> tuple[str, ...]:
    """Return the files of all sources, as globs."""
    return paths_of(all_sources())


def format_output(texts: Mapping[str, str]) -> str:
    """Return the output of :func:`command` for files with these texts."""
    return "".join(f"{path}\0{line}\n" for path, text in texts.items() for line in text.splitlines())


def parse(output: str) -> dict[str, str]:
    """Parse the output of :func:`command` to path → text: lines of path, NUL and the file's line."""
    lines: dict[str, list[str]] = {}
    for line in output.split("\n"):
        path, nul, text = line.partition("\0")
        if nul:
            lines.setdefault(path, []).append(text)
    return {path: "\n".join(texts) + "\n" for path, texts in lines.items()}
