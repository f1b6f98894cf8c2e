"""
JSON that is nested too deeply for a recursive decoder.

Any user who may create pods can store `metadata.managedFields` with 10,000 levels, and the API server returns it to
every client. No field that the scheduler reads is deeper than about 15 levels, so far deeper values are cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Levels that are kept; decoders handle about ten times as many.
KEPT_LEVELS: Final = 100

_QUOTE, _BACKSLASH = b'"\\'
#: `[` and `{`, and `]` and `}`, differ in the bit 0x20; with that bit set both are braces.
_OPEN, _CLOSE = b"{}"

T = TypeVar("T")


def read(decode: Callable[[bytes | msgspec.Raw], T], data: bytes | msgspec.Raw) -> T:
    """Return `decode(data)`; if `data` is nested too deeply for it, decode what `shallow` leaves of it."""
    try:
        return decode(data)
    except RecursionError:
        return decode(shallow(bytes(data)))


def shallow(document: bytes) -> bytes:
    """Return the JSON document with null for what is deeper than `KEPT_LEVELS`; malformed JSON stays malformed."""
    # For rare documents alone: structs are imported without it, as for the defaults of flags.
    import numpy as np

    text = np.frombuffer(document, dtype=np.uint8)
    quotes = text == _QUOTE
    if b"\\" in document:
        quotes &= ~_escaped(text)
    is_string = np.logical_xor.accumulate(quotes)
    brackets = text | 0x20
    steps = (brackets == _OPEN).astype(np.int8)
    steps -= brackets == _CLOSE
    steps[is_string] = 0
    levels = np.cumsum(steps, dtype=np.int32)
    begins = np.flatnonzero((levels == KEPT_LEVELS + 1) & (steps > 0)).tolist()
    ends = np.flatnonzero((levels == KEPT_LEVELS) & (steps < 0)).tolist()
    kept, done = [], 0
    for begin, end in zip(begins, [*ends, len(document)], strict=False):
        kept.append(document[done:begin])
        done = end + 1
    return b"null".join([*kept, document[done:]])


def _escaped(text: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return a mask of the characters that a backslash escapes: those after the 1st, 3rd, 5th ... of a run."""
    import numpy as np

    is_escaped = np.zeros(len(text) + 1, dtype=np.bool_)
    backslashes = np.flatnonzero(text == _BACKSLASH)
    is_first = np.diff(backslashes, prepend=-2) != 1
    firsts = np.maximum.accumulate(np.where(is_first, backslashes, 0))
    is_escaped[backslashes[(backslashes - firsts) % 2 == 0] + 1] = True
    return is_escaped[:-1]
