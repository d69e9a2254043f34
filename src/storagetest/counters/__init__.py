"""Counters that are read during a load: one module per source."""
