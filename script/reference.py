"""Write the reference pages of the docs from the code; with ``--check`` only compare them.

The pages list the registered protocols and workloads, and the declared metrics, options and commands.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from storagetest import cli
from storagetest.config.models import PROFILES
from storagetest.config.schema import json_schema, schema_text
from storagetest.counters.base import all_sources
from storagetest.lab.reference import page as lab_page
from storagetest.plugin import hooks
from storagetest.protocols.base import protocols
from storagetest.units import format_duration, format_size
from storagetest.workloads._reference import page as workloads_page
from storagetest.workloads.base import workloads

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
MADE = "`script/reference.py` generates this page from the code."
COMMON = (
    "protocol",
    "client",
    "clients",
    "server",
    "optional",
    "deadline",
    "matrix",
    "exclude",
    "thresholds",
)
"""The keys of every target; `deadline` is an option of all protocols."""

_PROTOCOLS = f"""\
{MADE} [targets.yaml](../targets.md) describes the purpose and the structure of the file. Editors use
[its JSON Schema](targets.schema.json).

Every option of a protocol may be a list in the `matrix`, except addresses and secrets. Sizes are written
`4KiB`, `1GiB`; times `500ms`, `30s`, `5min`. The client's kernel or the target determines an option that has
no default and is not *required*."""
_METRICS = f"""\
{MADE} A gate is a metric, `>=` or `<=`, and a value with its unit: `iops >= 20000`, `p99 <= 5ms`,
`bandwidth >= 900MiB/s`, `client_cpu <= 80%`. A percentile of too few operations is INVALID. A metric
that a workload does not measure is an error in the targets file."""
_COUNTERS = f"""\
{MADE} All counters are read before and after each load, and every `sample_interval` on client and server
during the load. Counters of a file system's bytes show how much of a load crossed the wire. Counters of its
requests prove that a case of two clients reached the server."""
_COMMANDS = f"""\
{MADE} [pytest](pytest.md) runs the tests; `storagetest` has all other commands.
[Exit statuses](exit-status.md) are on a separate page."""
_PLUGIN = f"""\
{MADE} pytest loads the plugin if storagetest is installed. Without a targets file and without its fixtures
the plugin does nothing."""
_PYTESTS_OWN = """\
Useful options of pytest: `-k` and `-m` select cases, `-n 2` runs targets in parallel (never two measuring
cases on one client or server), `--junit-xml FILE`, `--alluredir DIR`, `--collect-only`."""

Schema = Mapping[str, Any]


def protocols_page() -> str:
    """Return every key of targets.yaml that has options: targets by protocol, machines, profiles, loads."""
    schema = json_schema()
    parts = [
        "# Options of targets.yaml",
        _PROTOCOLS,
        "## Every target",
        "| key | meaning |\n|---|---|\n" + "\n".join(_common(schema)),
    ]
    for name, kind in protocols.all().items():
        options = {
            key: value for key, value in schema["$defs"][name]["properties"].items() if key not in COMMON
        }
        required = {key for key, field in kind.Options.model_fields.items() if field.is_required()}
        example = yaml.safe_dump({"protocol": name, **_plain(kind.example)}, sort_keys=False).rstrip()
        parts += [
            f"## {name}",
            _markdown(inspect.getdoc(kind) or ""),
            f"```yaml\n{example}\n```",
            _options(options, required, schema),
        ]
        for nested in [key for key in schema["$defs"] if key.startswith(f"{name}.")]:
            model = schema["$defs"][nested]
            parts += [
                f"### {nested}",
                _markdown(model.get("description", "")),
                _options(model["properties"], set(model.get("required", ())), schema),
            ]
    machine, node = schema["$defs"]["SshEntry"], schema["$defs"]["SlurmEntry"]
    parts += [
        "## Clients and servers",
        "`transport: local` is the machine that runs pytest; it has no options. Options of `transport: ssh`:",
        _options(machine["properties"], {"transport", *machine.get("required", ())}, schema),
        "Options of `transport: slurm`, a node of a Slurm job:",
        _options(node["properties"], set(node["required"]), schema),
        "## Profiles",
        "An omitted option has the value of the built-in profile of that name, or else of `standard`.",
        _options(schema["$defs"]["ProfileEntry"]["properties"], set(), schema, defaults=False),
        _profiles(),
        "## Custom workloads",
        _options(schema["$defs"]["CustomWorkloadEntry"]["properties"], set(), schema),
        "## Comparisons",
        _options(
            schema["$defs"]["ComparisonEntry"]["properties"],
            set(schema["$defs"]["ComparisonEntry"].get("required", ())),
            schema,
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def metrics_page() -> str:
    """Return every metric that can be gated, with the workloads that measure it."""
    found: dict[str, tuple[Any, list[str]]] = {}
    for name, kind in workloads.all().items():
        for metric in kind.metrics.values():
            found.setdefault(metric.name, (metric, []))[1].append(f"[`{name}`](workloads.md#{name})")
    rows = [
        (
            f"`{name}`",
            metric.unit.value,
            metric.better.value,
            f"{metric.ios_required:,}" if metric.quantile is not None else "",
            ", ".join(kinds),
        )
        for name, (metric, kinds) in sorted(found.items())
    ]
    return "\n\n".join(
        [
            "# Metrics",
            _METRICS,
            _table(("metric", "unit", "better", "operations needed", "measured by"), rows),
        ]
    )


def counters_page() -> str:
    """Return every source of counters: its files, and what it counts besides series."""
    rows = [
        (
            f"`{source.name}`",
            _markdown(" ".join((inspect.getdoc(source) or "").split())),
            ", ".join(
                [
                    *(f"`{path}`" for path in source.paths),
                    *(f"`{' '.join(command.argv)}`" for command in source.commands.values()),
                ]
            ),
            ", ".join(f"`{name}`" for name in sorted(source.counts_for)),
            ", ".join(kind.value for kind in source.requests),
        )
        for source in all_sources()
    ]
    heads = ("counters", "what they count", "files or commands", "bytes of", "requests")
    return "\n\n".join(["# Counters", _COUNTERS, _table(heads, rows)]) + "\n"


def command_line_page() -> str:
    """Return every command of ``storagetest``, with its arguments."""
    parts = ["# Command line", _COMMANDS]
    for words, parser in _commands(cli._parser(), ("storagetest",)):  # noqa: SLF001  # argparse parser of the CLI
        rows = [
            (_written(action), _help(parser, action))
            for action in parser._actions  # noqa: SLF001  # argparse has no public list
            if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)  # noqa: SLF001
        ]
        entry = parser.description or _parent_help.get(words, "")
        parts += [f"## {' '.join(words)}", _sentence(entry)]
        parts += [_table(("argument", "meaning"), rows)] if rows else []
    return "\n\n".join(part for part in parts if part) + "\n"


def pytest_page() -> str:
    """Return the plugin's options, marks and fixtures."""
    modules = [hooks, *map(importlib.import_module, hooks.pytest_plugins)]
    options = _Options()
    for module in modules:
        if hasattr(module, "pytest_addoption"):
            module.pytest_addoption(options)
    return "\n\n".join(
        [
            "# pytest: options, marks, fixtures",
            _PLUGIN,
            "## Options",
            _table(("option", "meaning"), sorted(options.rows)),
            _PYTESTS_OWN,
            "## Marks",
            _table(("mark", "meaning"), [(f"`{name}`", entry) for name, entry in _marks()]),
            "## Fixtures",
            "Each fixture requests the ones that it needs, so a case names only the last one that it uses.",
            _table(("fixture", "meaning"), list(_fixtures(modules))),
        ]
    )


class _Options:
    """Stands for pytest's parser, and keeps what is declared."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def getgroup(self, *_: object) -> _Options:
        return self

    def addoption(self, *names: str, **entry: Any) -> None:  # noqa: ANN401  # pytest's
        value = f" {entry['metavar']}" if "metavar" in entry else ""
        value = f" [{value.strip()}]" if entry.get("nargs") == "?" else value
        self.rows.append((f"`{', '.join(names)}{value}`", _sentence(entry["help"].replace("%%", "%"))))


def _marks() -> Iterator[tuple[str, str]]:
    """Return the marks that are known with the plugin and unknown without it."""

    def known(*arguments: str) -> list[str]:
        lines: list[str] = []

        class Plugin:
            @staticmethod
            @pytest.hookimpl(trylast=True)
            def pytest_configure(config: pytest.Config) -> None:
                lines.extend(config.getini("markers"))

        with tempfile.TemporaryDirectory() as empty, contextlib.redirect_stdout(io.StringIO()):
            options = [
                "-c",
                f"{empty}/none.ini",
                "--rootdir",
                empty,
                "-p",
                "no:cacheprovider",
                "--collect-only",
            ]
            Path(empty, "none.ini").write_text("[pytest]\n", encoding="utf-8")
            pytest.main([*options, *arguments, empty], plugins=[Plugin()])
        return lines

    without = set(known("-p", "no:storagetest"))
    for line in sorted(set(known()) - without):
        name, _, entry = line.partition(": ")
        yield name, _sentence(entry)


def _fixtures(modules: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for module in modules:
        for name, thing in vars(module).items():
            if type(thing).__name__ == "FixtureFunctionDefinition" and not name.startswith("_"):
                entry = inspect.getdoc(thing._get_wrapped_function()) or ""  # noqa: SLF001  # pytest offers no other
                yield f"`{name}`", _markdown(entry.partition("\n\n")[0].replace("\n", " "))


def _common(schema: Schema) -> Iterator[str]:
    first = next(iter(protocols.all()))
    for key in COMMON:
        entry = schema["$defs"][first]["properties"][key]
        text = (
            "Gates, as at the top level; they override those of the file."
            if "$ref" in entry
            else entry["description"]
        )
        yield f"| `{key}` | {_cell(text)} |"


def _options(properties: Schema, required: set[str], schema: Schema, *, defaults: bool = True) -> str:
    rows = []
    for name, entry in properties.items():
        default = "*required*" if name in required else _default(entry)
        rows.append(
            (
                f"`{name}`",
                _type(entry, schema),
                *([default] if defaults else []),
                _cell(_description_of(entry, schema)),
            )
        )
    heads = ("option", "value", "default", "meaning") if defaults else ("option", "value", "meaning")
    return _table(heads, rows).rstrip()


def _description_of(entry: Schema, schema: Schema) -> str:
    if "description" in entry:
        return str(entry["description"])
    if "$ref" in entry:
        return str(schema["$defs"][entry["$ref"].rpartition("/")[2]].get("description", ""))
    return ""


def _type(entry: Schema, schema: Schema) -> str:
    """Return in a word or two what a value is."""
    if "anyOf" in entry:
        several = [each for each in entry["anyOf"] if each.get("type") != "null"]
        kinds = list(dict.fromkeys(_type(each, schema) for each in several))
        return next((word for word in ("size", "time") if word in kinds), " or ".join(kinds))
    if "$ref" in entry:
        name = entry["$ref"].rpartition("/")[2]
        anchor = re.sub(r"[^a-z0-9_-]", "", name.lower())
        return f"[{name}](#{anchor})" if "." in name else "an entry of its own"
    if "enum" in entry or "const" in entry:
        return ", ".join(f"`{value}`" for value in entry.get("enum", [entry.get("const")]))
    if str(entry.get("description", "")).startswith("A secret"):
        return "secret"
    pattern = str(entry.get("pattern", ""))
    words = re.fullmatch(r"\^\((\w+(?:\|\w+)*)\)\$", pattern)
    if words:
        return ", ".join(f"`{word}`" for word in words[1].split("|"))
    known = {"KMGT": "size", "ns|us": "time"}
    return next((word for mark, word in known.items() if mark in pattern), _plain_type(entry, schema))


def _plain_type(entry: Schema, schema: Schema) -> str:
    kind = entry.get("type")
    if kind in ("integer", "number"):
        low, high = entry.get("minimum"), entry.get("maximum")
        word = "whole number" if kind == "integer" else "number"
        if high is not None:
            return f"{word}, {low} to {high}"
        return f"{word}, {low} or more" if low else word
    if kind == "array":
        return f"list of {_type(entry.get('items', {}), schema)}s"
    return {"boolean": "`true`, `false`", "object": "mapping"}.get(str(kind), "text")


def _default(entry: Schema) -> str:
    value = entry.get("default")
    if value is None or value == []:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _profiles() -> str:
    rows = [
        (
            f"`{one.name}`",
            format_size(one.size),
            format_duration(one.ramp),
            format_duration(one.runtime),
            str(one.repeats),
            str(one.max_repeats),
        )
        for one in PROFILES.values()
    ]
    return _table(("built in", "size", "ramp", "runtime", "repeats", "max_repeats"), rows).rstrip()


_parent_help: dict[tuple[str, ...], str] = {}
"""Help texts of commands in their parent parser, used if a command has no description."""


def _commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001  # as above
    if words != ("storagetest",) and not below:
        yield words, parser
    for action in below:
        for choice in action._choices_actions:  # noqa: SLF001  # as above
            _parent_help[*words, choice.dest] = choice.help or ""
        for name, inner in action.choices.items():
            yield from _commands(inner, (*words, name))


def _written(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        name = f"[{value}]" if action.nargs in ("?", "*") else value
        return f"`{name}{' …' if action.nargs in ('*', '+') else ''}`"
    takes = "" if action.nargs == 0 else f" {value}"
    return f"`{', '.join(action.option_strings)}{takes}`"


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return _sentence((action.help or "") % {**vars(action), "prog": parser.prog})


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + ("." if text and text[-1] not in ".!?…" else "") if text else ""


def _markdown(text: str) -> str:
    """Return a docstring as Markdown: roles of the documentation tool become plain code."""
    return re.sub(r"``([^`]+)``", r"`\1`", re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text))


def _cell(text: str) -> str:
    return _markdown(" ".join(text.split()))


def _plain(value: Any) -> Any:  # noqa: ANN401  # what YAML can hold
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(_bars, line))} |" for line in lines)


def _bars(text: str) -> str:
    """Return ``text`` with every bar escaped: a bar ends a cell."""
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def pages() -> dict[Path, str]:
    """Return every generated file of the reference, with what it is to hold."""
    return {
        REFERENCE / "targets.schema.json": schema_text(),
        REFERENCE / "workloads.md": workloads_page(workloads.all()),
        REFERENCE / "protocols.md": protocols_page(),
        REFERENCE / "metrics.md": metrics_page(),
        REFERENCE / "counters.md": counters_page(),
        REFERENCE / "command-line.md": command_line_page(),
        REFERENCE / "pytest.md": pytest_page(),
        REFERENCE / "lab.md": lab_page(),
    }


def main() -> int:
    """Write the pages; with ``--check`` name those that differ (exit status 1)."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; name the pages that differ")
    check = parser.parse_args().check
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        if check:
            sys.stderr.write(f"{path} differs from the code. Run: python script/reference.py\n")
        else:
            path.write_text(pages()[path], encoding="utf-8")
            sys.stdout.write(f"{path}\n")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
