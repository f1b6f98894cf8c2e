"""Numbers of things, as texts."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return the number and the noun: `1 story`, `2 stories`; the plural is the noun with an s unless it is given."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
