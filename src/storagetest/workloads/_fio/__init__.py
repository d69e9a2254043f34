"""fio as a load generator: its argv (job), its output (parse), running it on a client (run), workloads (load)."""
