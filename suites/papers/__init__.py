"""Published experiments, rerun: one module per experiment, with its published data in a TOML file."""
