"""Foreign suites as pytest items."""
