"""Custom workloads: the entries under `workloads` of the targets file."""


def test_custom_workload(measure, custom_workload):
    """A fio job file, or a Python function, meets its gates like any other load."""
    measure(custom_workload)
