"""
Objects that are nested too deep for a decoder that recurses.

Anybody who may create a pod may write `metadata.managedFields` 10,000 levels deep, and the API server hands it to every
client. Nothing that is read here lies deeper than some 15 levels: what is far below is cut off, and the rest is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

#: Levels that are kept; decoders get through ten times as many.
KEPT_LEVELS: Final = 100

_QUOTE, _BACKSLASH = b'"\\'
#: Of either bracket, [ or {, with the bit that they differ in.
_OPEN, _CLOSE = b"{}"

T = TypeVar("T")


def read(decode: Callable[[bytes | msgspec.Raw], T], data: bytes | msgspec.Raw) -> T:
    """What `decode` makes of the document, or of what is left of it where it is nested too deep for it."""
    try:
        return decode(data)
    except RecursionError:
        return decode(shallow(bytes(data)))


def shallow(document: bytes) -> bytes:
    """
    The JSON document with null for every object and array that lies deeper than `KEPT_LEVELS`.

    What is no JSON becomes no JSON. Cost: O(bytes), 10 ms per MB.
    """
    text = np.frombuffer(document, dtype=np.uint8)
    quotes = text == _QUOTE
    if b"\\" in document:
        quotes &= ~_escaped(text)
    is_text = np.logical_xor.accumulate(quotes)
    brackets = text | 0x20
    steps = (brackets == _OPEN).astype(np.int8)
    steps -= brackets == _CLOSE
    steps[is_text] = 0
    levels = np.cumsum(steps, dtype=np.int32)
    begins = np.flatnonzero((levels == KEPT_LEVELS + 1) & (steps > 0)).tolist()
    ends = np.flatnonzero((levels == KEPT_LEVELS) & (steps < 0)).tolist()
    kept, done = [], 0
    for begin, end in zip(begins, [*ends, len(document)], strict=False):
        kept.append(document[done:begin])
        done = end + 1
    return b"null".join([*kept, document[done:]])


def _escaped(text: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Characters after every second backslash of a run, the first one included."""
    found = np.zeros(len(text) + 1, dtype=np.bool_)
    places = np.flatnonzero(text == _BACKSLASH)
    is_first = np.diff(places, prepend=-2) != 1
    firsts = np.maximum.accumulate(np.where(is_first, places, 0))
    found[places[(places - firsts) % 2 == 0] + 1] = True
    return found[:-1]
