"""Numbers and names of things, as texts."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return the number and the noun: `1 story`, `2 stories`; the plural is the noun with an s unless it is given."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def first_names(names: Sequence[str], most: int = 3) -> str:
    """Return the first names with commas between them, and dots for further ones."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean "..."?` with the most similar of the known names, '' if none is similar."""
    written = {each.lower(): each for each in known}
    similar = get_close_matches(name.lower(), written, n=1)
    return f'; did you mean "{written[similar[0]]}"?' if similar else ""
