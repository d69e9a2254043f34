"""Properties of a record for its case in the JUnit file, with values in base units.

CI systems draw trends from such properties, so a value is a bare number and its name carries metric and unit.
"""

from __future__ import annotations

from storagetest.report.base import Record
from storagetest.report.metric_values import metric_values, parameter_text


def properties(record: Record) -> list[tuple[str, str]]:
    """Return (name, value) pairs for pytest's ``record_property``.

    ``storagetest.iops [/s]`` and its ``.low`` and ``.high``, one ``storagetest.verdict`` for each gate,
    and what identifies the run.
    """
    run = record.run
    names = ("workload", "target", "variant", "protocol", "client", "profile")
    pairs = [
        ("storagetest.status", record.status.value),
        *((f"storagetest.{name}", getattr(run, name)) for name in names),
        ("storagetest.repeats", str(len(run.samples))),
    ]
    pairs += [
        (f"storagetest.parameter.{name}", parameter_text(name, value))
        for name, value in run.parameters.items()
    ]
    for name, value in metric_values(record).items():
        if not value.enough:
            continue
        unit = f"[{value.metric.unit.value}]"
        pairs.append((f"storagetest.{name} {unit}", repr(value.value)))
        if value.interval is not None:
            pairs.append((f"storagetest.{name}.low {unit}", repr(value.interval.low)))
            pairs.append((f"storagetest.{name}.high {unit}", repr(value.interval.high)))
    pairs += [
        ("storagetest.verdict", f"{verdict.outcome.value} {verdict.threshold.text}: {verdict.reason}")
        for verdict in record.verdicts
    ]
    pairs += [("storagetest.invalid", reason) for reason in run.invalid]
    return pairs
