"""What follows from a look at the rules, and how evictions ended. The shell carries out, and answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from scheduler.enforcing.rules import Side
from scheduler.model.pods import Pod


class Origin(Enum):
    """How a rule came to be broken, as far as that was seen. Its words stand in events."""

    #: The declaring pod, or one that its rule selects, had just been placed.
    PLACEMENT = "it was placed so: by a scheduler that does not know the rule, or in a race with one"
    #: Labels of a pod, a namespace or a node changed, a pod left, or pods came elsewhere to one that was the first.
    CHANGE = "it held before; labels have changed since, a pod has left, or its match has come elsewhere"
    #: So at the first look: nobody watched when it happened.
    UNKNOWN = "it was so when watching began"


@dataclass(frozen=True, slots=True)
class Telling:
    """A broken rule in words."""

    side: Side
    enforced: bool
    #: What is required, and what is there instead.
    rule: str
    #: `key=value` of the domain, or the node where it lacks the key.
    domain: str
    other: Pod | None


@dataclass(frozen=True, slots=True)
class Found:
    """A rule of this pod is broken: told once for each pod and rule."""

    pod: Pod
    telling: Telling
    origin: Origin


@dataclass(frozen=True, slots=True)
class Evict:
    """The pod has to go; ends in `Enforcer.answered`, unless nothing is acted upon."""

    pod: Pod
    telling: Telling


@dataclass(frozen=True, slots=True)
class Refused:
    """So many pods would go that none is evicted: told once, until fewer would."""

    n_would_go: int
    n_enforced: int
    n_allowed: int


Order: TypeAlias = Found | Evict | Refused


class Ended(Enum):
    """How an eviction ended."""

    EVICTED = "evicted"
    #: There was no such pod any more.
    GONE = "gone"
    #: A disruption budget forbids it for now.
    BLOCKED = "blocked"
    FAILED = "failed"
