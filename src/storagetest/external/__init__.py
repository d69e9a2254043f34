"""Foreign suites, each run as single pytest items: one module a suite."""
