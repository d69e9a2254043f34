"""Custom workloads, which a targets file defines: a job file (job_file), a function, a preset."""
