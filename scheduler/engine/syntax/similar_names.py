"""The question that follows a name which nothing has."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean "..."?` with the most similar of the known names, '' if none is similar."""
    written = {each.lower(): each for each in known}
    similar = get_close_matches(name.lower(), written, n=1)
    return f'; did you mean "{written[similar[0]]}"?' if similar else ""
