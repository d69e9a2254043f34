"""Sub-commands of ``storagetest``, a module each: ``add_parser()``, and what it does."""
