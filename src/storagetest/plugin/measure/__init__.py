"""Fixtures and rules for performance tests: measure, compare, find a maximum, resolve thresholds."""
