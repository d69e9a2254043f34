"""What a record adds to its case in the JUnit file: flat properties, values in base units.

CI systems draw trends from such properties, so a value is a bare number and its name carries metric and unit.
"""

from __future__ import annotations

from storagetest.report.base import Record
from storagetest.report.figures import figures, parameter_text

__all__ = ["properties"]


def properties(record: Record) -> list[tuple[str, str]]:
    """Return (name, value) pairs for pytest's ``record_property``.

    ``storagetest.iops [/s]`` and its ``.low`` and ``.high``, one ``storagetest.verdict`` for each gate,
    and what identifies the run.
    """
    run = record.run
    pairs = [
        ("storagetest.status", record.status.value),
        ("storagetest.workload", run.workload),
        ("storagetest.target", run.target),
        ("storagetest.variant", run.variant),
        ("storagetest.protocol", run.protocol),
        ("storagetest.client", run.client),
        ("storagetest.profile", run.profile),
        ("storagetest.repeats", str(len(run.samples))),
    ]
    pairs += [
        (f"storagetest.parameter.{name}", parameter_text(name, value))
        for name, value in run.parameters.items()
    ]
    for name, figure in figures(record).items():
        if not figure.enough:
            continue
        unit = f"[{figure.metric.unit.value}]"
        pairs.append((f"storagetest.{name} {unit}", repr(figure.value)))
        if figure.interval is not None:
            pairs.append((f"storagetest.{name}.low {unit}", repr(figure.interval.low)))
            pairs.append((f"storagetest.{name}.high {unit}", repr(figure.interval.high)))
    pairs += [
        ("storagetest.verdict", f"{verdict.outcome.value} {verdict.threshold.text}: {verdict.reason}")
        for verdict in record.verdicts
    ]
    pairs += [("storagetest.invalid", reason) for reason in run.invalid]
    return pairs
