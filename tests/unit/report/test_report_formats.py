"""Report formats: each is one module, and the command line and the docs are made from what is registered."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from storagetest import registry
from storagetest.cli import main
from storagetest.report.formats.base import ReportFormat, formats

TOY = '''
"""A format of another package."""

from storagetest.report.formats.base import ResultsFormat, register


@register
class ToyFormat(ResultsFormat):
    """Write the variants of all runs, one a line."""

    name = "toy"
    summary = "variants, for this test"

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("--shout", action="store_true", help="in capitals")

    def render(self, records, args):
        names = "".join(f"{record.run.variant}\\n" for record in records)
        return names.upper() if args.shout else names
'''


class EntryPoint:
    """What importlib.metadata returns for a line of another package's pyproject.toml."""

    name = value = "toy_format"

    def load(self) -> None:
        __import__(self.name)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Install the toy format as a package would, for one test."""
    (tmp_path / "toy_format.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(formats, "_entries", dict(formats.all()))
    monkeypatch.setattr(formats, "_loaded", False)
    entries = {"storagetest.report.formats": [EntryPoint()]}
    monkeypatch.setattr(registry, "entry_points", lambda *, group: entries.get(group, []))
    yield
    sys.modules.pop("toy_format", None)


def test_format_of_another_package_has_sub_command_options_and_output(
    toy, tmp_path, make_record, write_results, capsys
):
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    assert "toy        variants, for this test" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["report", "toy", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "Write the variants of all runs, one a line." in text
    assert "--shout in capitals" in text

    results, output = write_results(make_record(variant="nas-v3")), tmp_path / "deep" / "toy.txt"
    assert main(["report", "toy", str(results)]) == 0
    assert capsys.readouterr().out == "nas-v3\n"
    assert main(["report", "toy", "--shout", str(results), "-o", str(output)]) == 0
    assert output.read_text() == "NAS-V3\n"


def test_the_reference_page_has_a_format_of_another_package(toy):
    script = runpy.run_path(str(Path(__file__).parents[3] / "script" / "reference.py"))
    text = script["command_line_page"]().partition("## storagetest report toy\n")[2]
    assert "Write the variants of all runs, one a line." in text
    assert "| `--shout` | In capitals. |" in text


def test_an_entry_point_that_fails_is_named(toy, tmp_path, capsys):
    (tmp_path / "toy_format.py").write_text("import no_such_module")
    assert main(["report", "table", "x"]) == 4
    message = capsys.readouterr().err
    assert "entry point toy_format = toy_format of group storagetest.report.formats failed to load" in message


@pytest.mark.parametrize("kind", formats.all().values(), ids=lambda kind: kind.name)
def test_every_format_is_described(kind: type[ReportFormat], capsys):
    assert kind.__module__ == f"storagetest.report.formats.{kind.name}"
    assert kind.__doc__
    assert kind.summary
    with pytest.raises(SystemExit) as raised:
        main(["report", kind.name, "--help"])
    assert raised.value.code == 0
    assert kind.__doc__.split()[0] in capsys.readouterr().out


def test_the_formats_that_there_are():
    assert list(formats.all()) == ["allure", "coverage", "markdown", "openmetrics", "page", "table"]
