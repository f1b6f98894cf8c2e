"""Draws inputs by seed, for the tests: seeds of the corpus, with bytes and pieces of them replaced."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Final

#: Longer inputs cost time and find nothing that shorter ones do not.
MAX_BYTES: Final = 8192
_ODD: Final = (
    b"", b"null", b"true", b"-1", b"0", b"1e999", b"9" * 40, b'""', b"{}", b"[]", b"[" * 300, b"{" * 300, b"\xff",
    b"\x00", b"\n", b"\\ud800", b"&a", b"*a", b"<<: *a", b"\xc2\x85", "\u0661".encode(), b"!!python/object:a",
    b"---\n", b"%",
)  # fmt: skip
_WORD: Final = re.compile(rb"[\w./-]+|\s+|[^\w\s]")


def drawn(seeds: Sequence[bytes], seed: int) -> Iterator[bytes]:
    """Yield the seeds, then mutants of them without end."""
    yield from seeds
    rng = random.Random(seed)
    words = [_WORD.findall(each) for each in seeds]
    while True:
        parts = list(rng.choice(words))
        for _ in range(rng.choice((1, 1, 2, 4, 8))):
            at = rng.randrange(len(parts) + 1)
            match rng.randrange(5):
                case 0:
                    parts[at : at + rng.choice((1, 2, 10))] = []
                case 1:
                    parts.insert(at, rng.choice(_ODD))
                case 2:
                    parts[at : at + 1] = [rng.choice(_ODD)]
                case 3:
                    other = rng.choice(words)
                    start = rng.randrange(len(other) + 1)
                    parts[at:at] = other[start : start + rng.choice((1, 3, 30))]
                case _:
                    parts[at : at + 1] = [rng.randbytes(rng.choice((1, 2, 4)))]
        yield b"".join(parts)[:MAX_BYTES]
