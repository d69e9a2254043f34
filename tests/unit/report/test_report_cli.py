"""``storagetest report``: what each format prints, and how it exits."""

from __future__ import annotations

import pytest

from storagetest.cli import main
from storagetest.report.cli import current_spelling


def report(*argv: object) -> int:
    return main(["report", *map(str, argv)])


def test_the_table_of_an_old_run(write_results, make_record, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    path = write_results(make_record(variant="nas-v3"))
    with path.open("a") as file:
        file.write('{"schema":"storagetest.result/2","no')
    assert report("table", path) == 0
    printed = capsys.readouterr()
    heads = printed.out.splitlines()[0].split()
    assert heads == ["variant", "case", "MiB/s", "IOPS", "mean", "p99", "verdict"]
    assert "nas-v3" in printed.out
    assert f"{path}:2: damaged" in printed.err


def test_an_empty_file_is_reported(tmp_path, capsys):
    (tmp_path / "results.jsonl").touch()
    assert report("table", tmp_path / "results.jsonl") == 0
    assert "holds no runs" in capsys.readouterr().err


def test_errors_are_one_message_and_exit_code_1(tmp_path, capsys):
    for name in ("table", "openmetrics"):
        assert report(name, tmp_path / "none.jsonl") == 1
        assert capsys.readouterr().err.startswith(f"storagetest report {name}: ")
    assert report("allure", tmp_path) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("storagetest report allure: no Allure results in")


def test_a_format_that_does_not_exist_is_misuse(capsys):
    with pytest.raises(SystemExit) as raised:
        report("pgae", "results.jsonl")
    assert raised.value.code == 2
    assert "invalid choice 'pgae'; did you mean 'page'?" in capsys.readouterr().err


@pytest.mark.html
def test_the_page_is_made_and_its_path_printed(sample_results, tmp_path, capsys):
    assert report("allure", sample_results, "-o", tmp_path / "out") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out' / 'index.html'}\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("page r.jsonl -o p.html", "report page r.jsonl -o p.html"),
        ("coverage", "report coverage"),
        ("export openmetrics --timestamps r.jsonl", "report openmetrics --timestamps r.jsonl"),
        ("report --jsonl r.jsonl", "report table r.jsonl"),
        ("report --jsonl=r.jsonl", "report table r.jsonl"),
        ("report allure-results -o out", "report allure allure-results -o out"),
        ("report -o out allure-results", "report allure -o out allure-results"),
    ],
)
def test_the_old_spellings_are_accepted_with_a_warning(tmp_path, monkeypatch, capsys, old, new):
    (tmp_path / "allure-results").mkdir()
    monkeypatch.chdir(tmp_path)
    assert current_spelling(old.split()) == new.split()
    assert "deprecated here; write: storagetest report " in capsys.readouterr().err


@pytest.mark.parametrize("argv", ["report page r.jsonl", "report --help", "report", "check", ""])
def test_the_current_spellings_are_left_alone(capsys, argv):
    assert current_spelling(argv.split()) == argv.split()
    assert capsys.readouterr().err == ""
