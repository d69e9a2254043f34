"""Performance suites: one workload per module."""
