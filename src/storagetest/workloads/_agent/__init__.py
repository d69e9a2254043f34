"""Common parts of workloads by the agent: run it (run), its result (result), metrics and samples (base)."""
