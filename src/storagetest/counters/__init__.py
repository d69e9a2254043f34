"""What to read beside the load, and how to parse it: one module a source."""
