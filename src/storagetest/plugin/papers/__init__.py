"""The fixture of ``suites/papers``: measure a published experiment, and judge its claims."""
