"""Numbers and names of things, as texts."""

from collections.abc import Sequence


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return the number and the noun: `1 story`, `2 stories`; the plural is the noun with an s unless it is given."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def first_names(names: Sequence[str], most: int = 3, n_all: int = 0) -> str:
    """Return the first names and how many more there are, of `n_all` if not all are given: `a, b, c and 4 more`."""
    first = names[:most]
    n_more = max(n_all, len(names)) - len(first)
    return ", ".join(first) + (f" and {n_more} more" if n_more else "")
