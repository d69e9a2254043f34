"""What workloads by the agent share: running it (run), its answer (answer), metrics and samples (load)."""
