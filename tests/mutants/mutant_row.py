"""A mutant as a row of its page in docs/: ``name | section of its rule | what is broken``."""


def cells(row: str) -> tuple[str, str, str]:
    """Return the name, the section and the description of a mutant."""
    name, section, description = (cell.strip() for cell in row.split("|"))
    return name, section, description
