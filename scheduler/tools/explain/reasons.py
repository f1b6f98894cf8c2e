"""What of a message is equal for all pods that wait for the same reason."""

from __future__ import annotations

import re
from typing import Final

#: The part of PostFilter in the message of a pod that fits nowhere: what is done with its claims, then preemption.
_POSTFILTER: Final = re.compile(
    r" (?:(?:no new claims to deallocate|still not schedulable|(?:deallocation|deletion) of ResourceClaim completed)"
    r"(?:, |$)|preemption: ).*",
    re.DOTALL,
)
_TOTAL: Final = re.compile(r"^0/\d+ nodes are available: ")
#: A count of nodes in the message of a FitError: it begins an entry. Other numbers say what is asked for.
_COUNT: Final = re.compile(r"(^|, )\d+ (?=\D)")


def refusals_in(message: str) -> str:
    """Return the message without its part on preemption."""
    return _POSTFILTER.sub("", message)


def reason_in(message: str) -> str:
    """Return the message without numbers of nodes and without its part on preemption."""
    refusals = refusals_in(message)
    entries = _TOTAL.sub("", refusals)
    return (refusals if entries == refusals else _COUNT.sub(r"\1", entries)).rstrip(".")
