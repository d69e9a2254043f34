"""Foreign suites, each test an item: ``*.external.toml``."""
