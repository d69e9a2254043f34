"""Custom workloads, which a targets file defines: a fio job file (fio, job_file) or a function (python)."""
