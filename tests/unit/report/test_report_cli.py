"""``storagetest report``: what it prints and how it exits."""

from __future__ import annotations

import argparse

import pytest

from storagetest.report.cli import add_parser
from storagetest.report.jsonl import JsonlReporter


def call(*argv: object) -> int:
    parser = argparse.ArgumentParser("storagetest")
    add_parser(parser.add_subparsers())
    args = parser.parse_args([str(each) for each in ("report", *argv)])
    code: int = args.func(args)
    return code


def test_the_table_of_an_old_run(tmp_path, make_record, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    path = tmp_path / "results.jsonl"
    JsonlReporter(path).on_record(make_record(variant="nas-v3"))
    with path.open("a") as file:
        file.write('{"schema":"storagetest.result/1","no')
    assert call("--jsonl", path) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0].split() == ["variant", "case", "MiB/s", "IOPS", "mean", "p99", "verdict"]
    assert "nas-v3" in said.out
    assert f"{path}:2: damaged" in said.err


def test_an_empty_file_says_so(tmp_path, capsys):
    (tmp_path / "results.jsonl").touch()
    assert call("--jsonl", tmp_path / "results.jsonl") == 0
    assert "holds no runs" in capsys.readouterr().err


def test_errors_are_one_message_and_exit_code_1(tmp_path, capsys):
    assert call("--jsonl", tmp_path / "none.jsonl") == 1
    assert call(tmp_path) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("storagetest report: ")
    assert "no Allure results in" in second


def test_it_wants_one_of_the_two(tmp_path, capsys):
    for argv in [(), (tmp_path, "--jsonl", tmp_path)]:
        with pytest.raises(SystemExit):
            call(*argv)
        assert "name either" in capsys.readouterr().err


@pytest.mark.html
def test_the_page_is_made_and_its_path_printed(made_up_results, tmp_path, capsys):
    assert call(made_up_results, "-o", tmp_path / "out") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out' / 'index.html'}\n"
