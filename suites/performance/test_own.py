"""Loads of the user's own, as the targets file names them under `workloads`."""


def test_own(measure, own_workload):
    """A fio job file, or a Python function, meets its gates like any other load."""
    measure(own_workload)
