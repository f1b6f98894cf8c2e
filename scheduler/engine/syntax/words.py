"""Numbers and names of things, as texts."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return the number and the noun: `1 story`, `2 stories`; the plural is the noun with an s unless it is given."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def first_names(names: Sequence[str], most: int = 3, n_all: int = 0) -> str:
    """Return the first names and how many more there are, of `n_all` if not all are given: `a, b, c and 4 more`."""
    first = names[:most]
    n_more = max(n_all, len(names)) - len(first)
    return ", ".join(first) + (f" and {n_more} more" if n_more else "")


def did_you_mean(name: str, known: Collection[str], *, cutoff: float = 0.6) -> str:
    """Return `; did you mean X?` with the known name most like an unknown one, '' if none has this likeness of 1."""
    written = {each.lower(): each for each in known}
    similar = () if name in known else get_close_matches(name.lower(), written, n=1, cutoff=cutoff)
    return f"; did you mean {written[similar[0]]}?" if similar else ""
