"""Users' own loads as workloads: a fio job file (job_file, fio), or a Python function (python)."""
