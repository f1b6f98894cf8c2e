"""The question that follows a name which nothing has."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def did_you_mean(name: str, known: Collection[str], *, cutoff: float = 0.6) -> str:
    """Return `; did you mean X?` with the known name most like an unknown one, '' if none has this likeness of 1."""
    written = {each.lower(): each for each in known}
    similar = () if name in known else get_close_matches(name.lower(), written, n=1, cutoff=cutoff)
    return f"; did you mean {written[similar[0]]}?" if similar else ""
