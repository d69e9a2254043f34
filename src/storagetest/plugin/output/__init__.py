"""Outputs of a run: results.jsonl, diagnostics, Markdown, JUnit, pytest-benchmark."""
