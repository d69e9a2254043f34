"""fio as a load generator: its argv (job), its output (parse), running it (run), workloads by it (load)."""
