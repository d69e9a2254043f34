"""storagetest compare: rows, verdicts, widths, and exit codes by the command line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.cli import main
from storagetest.report.baseline import save

AROUND = [1.0, 0.99, 1.01, 1.005, 0.995]


@pytest.fixture
def scaled(make_record):
    """Return a function that makes a record with ``runs`` repeats: iops around ``factor`` times 1000."""

    def make(factor: float, *, runs: int = 5, **changes):
        sample = make_record().run.samples[0]
        samples = tuple(replace(sample, values={"iops": 1000 * factor * each}) for each in AROUND[:runs])
        return make_record(samples=samples, **changes)

    return make


@pytest.fixture
def compare(write_results):
    """Return a function that compares a baseline, or records, with other records: the exit status."""

    def run(before, after, *options: str) -> int:
        a = write_results(*before, name="a.jsonl") if isinstance(before, list) else before
        return main(["compare", str(a), str(write_results(*after, name="b.jsonl")), *options])

    return run


@pytest.mark.parametrize(
    ("factor", "status", "word"), [(1.0, 0, "~"), (1.2, 0, "better"), (0.8, 1, "worse"), (0.999, 0, "~")]
)
def test_the_exit_status_shows_whether_a_metric_is_worse(scaled, compare, capsys, factor, status, word):
    assert compare([scaled(1.0)], [scaled(factor)]) == status
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2
    assert out[1].rstrip().endswith(word)


def test_lines_fit_a_hundred_columns_whatever_the_case_is_called(make_record, compare, capsys):
    record = make_record(variant="nfs-" + "very-" * 40 + "long")
    compare([record], [record])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(record.run.metrics)
    assert max(map(len, lines)) <= 100


def test_three_runs_a_side_are_reported_as_too_few(scaled, compare, capsys):
    assert compare([scaled(1.0, runs=3)], [scaled(0.5, runs=3)]) == 2
    output = capsys.readouterr()
    assert "too few runs" in output.out
    assert "four runs each" in output.err


def test_runs_of_the_same_case_are_pooled(scaled, compare):
    assert compare([scaled(1.0, runs=3)] * 2, [scaled(0.5, runs=3)] * 2) == 1


def test_runs_without_a_common_case_are_reported(make_record, compare, capsys):
    others = [make_record(variant="smb-v3.1.1"), make_record(variant="smb-v2.1")]
    assert compare([make_record()], others) == 2
    stderr = capsys.readouterr().err
    sides = [line.partition(" on ")[::2] for line in stderr.splitlines() if " only: " in line]
    assert [(side[:4], variant) for side, variant in sides] == [
        ("in A", "nfs-v4.2-nconnect4"), ("in B", "smb-v3.1.1"), ("in B", "smb-v2.1")
    ]  # fmt: skip
    assert "not all cases were compared" in stderr


def test_case_that_one_file_lacks_is_no_success_unless_it_is_allowed(scaled, tmp_path, compare, capsys):
    both = [scaled(1.0), scaled(1.0, variant="smb")]
    assert compare(both, [scaled(1.0)]) == 2
    assert "in A only: " in (stderr := capsys.readouterr().err)
    assert " on smb" in stderr
    assert compare([], [], "--allow-missing") == 0
    assert main(["compare", str(tmp_path / "b.jsonl"), str(tmp_path / "a.jsonl")]) == 2
    assert compare([], [scaled(0.1)] * 3) == 1


def test_case_with_too_few_runs_among_others_is_no_success(scaled, compare):
    few = [scaled(1.0), scaled(1.0, variant="smb", runs=2)]
    assert compare([scaled(1.0), scaled(1.0, variant="smb")], few) == 2


def test_invalid_runs_are_left_out_and_counted(scaled, compare, capsys):
    invalid = scaled(0.1, invalid=("the client was the bottleneck",))
    assert compare([scaled(1.0)], [scaled(1.0), invalid]) == 0
    assert "1 INVALID run of B left out" in capsys.readouterr().err


@pytest.mark.parametrize(("factor", "status"), [(0.85, 0), (0.5, 1)])
def test_a_baselines_noise_floor_holds(scaled, compare, tmp_path, factor, status):
    for day, stored in enumerate((1.0, 0.85)):
        save(tmp_path / "base.json", [scaled(stored, started=day)])
    assert compare(tmp_path / "base.json", [scaled(factor)]) == status


def test_a_floor_can_be_given(scaled, compare):
    assert compare([scaled(1.0)], [scaled(0.9)]) == 1
    assert compare([], [], "--floor", "15") == 0
    with pytest.raises(SystemExit) as caught:
        compare([], [], "--floor", "-1")
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("once upon a time\n", "b.jsonl:1: damaged"),
        ('{"schema":"storagetest.result/9"}\n', "b.jsonl:1: schema is 'storagetest.result/9'"),
        (None, "b.jsonl: No such file"),
        ("", "not all cases were compared"),
    ],
)
def test_a_bad_file_is_named_and_nothing_is_compared(make_record, compare, tmp_path, capsys, text, message):
    if text is not None:
        (tmp_path / "b.jsonl").write_text(text)
    assert compare([make_record()], []) == 2
    assert message in capsys.readouterr().err


def test_a_line_that_a_crash_cut_off_is_left_out(scaled, compare, write_results, capsys):
    with write_results(scaled(1.0), name="b.jsonl").open("a") as file:
        file.write('{"schema":"storagetest.result/2","nodeid":"x')
    assert compare([scaled(1.0)], []) == 0
    assert "cut off" in capsys.readouterr().err
