"""Results in other tools' formats: a module a format, each with ``add_parser``; ``cli`` is their command."""
