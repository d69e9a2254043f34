"""Conformance cases: marks, known issues, and cases that run on a client."""
