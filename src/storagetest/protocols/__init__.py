"""One module a protocol: its YAML, how a client attaches it, what it can do; see :mod:`.base`."""
