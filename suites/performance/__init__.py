"""Is a target fast enough? One workload a module."""
