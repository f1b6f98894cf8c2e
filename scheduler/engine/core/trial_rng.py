"""Random numbers of a trial: a question on trial draws none of the machine's, so that it changes no later decision."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

#: The constants of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
_GAMMA: Final = 0x9E3779B97F4A7C15
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB
_MASK: Final = (1 << 64) - 1


class TrialRng:
    """The generator SplitMix64. `identity`: of the trial; equal identities give equal numbers."""

    def __init__(self, identity: str) -> None:
        self._state = int.from_bytes(blake2b(identity.encode(), digest_size=8).digest(), "big")

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to `stop` - 1; a bias of `stop` / 2**64 is left in."""
        self._state = (self._state + _GAMMA) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * _MIX_1) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * _MIX_2) & _MASK
        return (mixed ^ (mixed >> 31)) % stop
