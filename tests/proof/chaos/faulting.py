"""Faults drawn from a seed: of the server, connections, clocks and instances."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.proof.chaos.happenings import Cut, Freeze, Kill, Leap, Misfortune, Terminate, WallClock
from tests.proof.chaos.instance import EVICTION_KILL_POINTS, KILL_POINTS, RESERVATION_KILL_POINTS

_BINDINGS = r"/pods/[^/]+/binding$"
_PODS = r"/pods/[^/]+$"
_STATUS = r"/pods/[^/]+/status$"
_LEASE = "leases.coordination.k8s.io"
_KINDS = ("pods", "nodes", "namespaces")


@dataclass(frozen=True, slots=True)
class Targets:
    """The watches, paths and verbs of requests of claims that faults are about, and the answers that refuse them."""

    watched: tuple[str, ...]
    paths: str
    verbs: tuple[str, ...]
    codes: tuple[int, ...]


class FaultGenerator:
    """
    Draws faults of these instances.

    With `evicts` they evict pods, in the midst of which they are hurt too. With `targets` faults are about claims, and
    deaths between Reserve and Bind; in some runs nominations are lost too, which as upstream hold nothing up.
    """

    def __init__(
        self,
        instances: Sequence[str],
        chance: random.Random,
        *,
        evicts: bool = False,
        targets: Targets | None = None,
    ) -> None:
        self._instances, self._chance, self._targets = instances, chance, targets
        self._watched = targets.watched if targets else _KINDS
        self._kill_points = KILL_POINTS + EVICTION_KILL_POINTS * evicts
        if targets:
            # At once, while pods wait there; most often where something is reserved.
            self._kill_points += (*RESERVATION_KILL_POINTS * 2, "status arrived", "", "", "")
        kinds: tuple[tuple[int, Callable[[], list[Misfortune]]], ...] = (
            (30, self._request), (22, self._stream), (10, self._doubt), (8, self._slowness), (8, self._wire),
            (4, self._clock), (10, self._death), (3, self._history),
        )  # fmt: skip
        if targets:
            kinds = ((16, self._death), (9, self._stream), (11, self._claims))
            if chance.random() < 0.3:
                kinds = (*kinds, (4, self._nomination))
        if evicts:
            kinds = (*kinds, (25, self._eviction))
        self._kinds = [strike for _, strike in kinds]
        # Every run has its own weights, and none of them is 0.
        self._weights = [weight * chance.choice((0.1, 1, 1, 3)) for weight, _ in kinds]

    def draw(self) -> list[Misfortune]:
        """Return the next faults, which begin at the same moment."""
        return self._chance.choices(self._kinds, self._weights)[0]()

    def _request(self) -> list[Misfortune]:
        chance = self._chance
        target = chance.choice(({"path": _BINDINGS}, {"path": _BINDINGS}, {"path": _STATUS}, {"kind": _LEASE},
                                {"kind": "events.events.k8s.io"}, {"kind": chance.choice(_KINDS), "verb": "watch"},
                                {"kind": chance.choice(_KINDS)}, {}))  # fmt: skip
        action = chance.choice(REQUEST_FAULTS)
        if action in (Effect.LOSE_ANSWER, Effect.RESPOND_AFTER) and "path" not in target:
            # Only a write can take effect and lose its answer.
            target |= {"verb": chance.choice(("create", "update", "patch"))}
        answers = action in (Effect.RESPOND, Effect.RESPOND_AFTER)
        code = chance.choice((500, 503, 504, 429, 429) if action is Effect.RESPOND else (500, 503, 504))
        waits = action in (Effect.DELAY, Effect.LOSE_ANSWER)
        delay_s = chance.choice((0.0, 0.05, 0.5, 3.0, 12.0))
        retry_after_s = chance.choice((0, 1, 3))
        return [
            Fault(
                action=action,
                times=chance.choice((1, 1, 2, 4, 8, 40)),
                code=code if answers else 500,
                retry_after_s=retry_after_s if answers and code == 429 else 0,
                delay_s=delay_s if waits else 0.0,
                kind=target.get("kind", ""),
                verb=target.get("verb", ""),
                path=target.get("path", ""),
            )
        ]

    def _stream(self) -> list[Misfortune]:
        chance = self._chance
        action = chance.choice(_STREAM_FAULTS)
        delay_s = chance.choice((0.05, 0.5, 2.0, 8.0))
        return [
            Fault(
                action=action,
                kind=chance.choice(self._watched),
                after_events=chance.choice((0, 1, 3)),
                times=chance.choice((1, 1, 2)),
                delay_s=delay_s if action is Effect.STALL_STREAM else 0.0,
            )
        ]

    def _doubt(self) -> list[Misfortune]:
        """Return faults by which binds take effect, their answers are errors or lost, and watches are late."""
        for_s = self._chance.choice((1.0, 5.0, 15.0))
        times = self._chance.choice((1, 2, 5))
        action = self._chance.choice((Effect.LOSE_ANSWER, Effect.RESPOND_AFTER))
        code = self._chance.choice((500, 503, 504))
        late = Fault(action=Effect.STALL_STREAM, kind="pods", delay_s=for_s, times=len(self._instances))
        return [late, Fault(action=action, path=_BINDINGS, code=code, times=times)]

    def _slowness(self) -> list[Misfortune]:
        """Return a fault that delays binds."""
        delay_s, times = self._chance.choice((0.2, 1.0, 3.0)), self._chance.choice((3, 10, 30))
        return [Fault(action=Effect.DELAY, path=_BINDINGS, delay_s=delay_s, times=times)]

    def _wire(self) -> list[Misfortune]:
        instance = self._chance.choice(self._instances)
        for_s = self._chance.choice((0.1, 1.0, 4.0, 12.0, 20.0))
        return [self._chance.choice((Freeze(instance, for_s), Cut(instance), Cut(instance, for_s)))]

    def _clock(self) -> list[Misfortune]:
        instance = self._chance.choice(self._instances)
        if self._chance.random() < 0.3:
            return [Leap(instance, self._chance.choice((0.5, 5.0, 20.0)))]
        return [WallClock(instance, self._chance.choice((-1e8, -3600.0, -10.0, 0.0, 10.0, 1e8)))]

    def _death(self) -> list[Misfortune]:
        instance = self._chance.choice(self._instances)
        returns_after_s = self._chance.choice((0.1, 1.0, 5.0, 20.0))
        if self._chance.random() < 0.15:
            return [Terminate(instance, returns_after_s)]
        return [
            Kill(instance, self._chance.choice(self._kill_points), self._chance.randrange(3), returns_after_s)
        ]

    def _eviction(self) -> list[Misfortune]:
        """Return a fault of deletions, or of what is written of their pods before."""
        chance = self._chance
        action = chance.choice(REQUEST_FAULTS)
        waits = action in (Effect.DELAY, Effect.LOSE_ANSWER)
        return [
            Fault(
                action=action,
                verb="delete" if (deletes := chance.random() < 0.7) else "patch",
                path=_PODS if deletes else _STATUS,
                code=chance.choice((500, 503, 504, 409) if action is Effect.RESPOND else (500, 503, 504)),
                delay_s=chance.choice((0.05, 0.5, 3.0, 12.0)) if waits else 0.0,
                times=chance.choice((1, 1, 2, 8)),
            )
        ]

    def _claims(self) -> list[Misfortune]:
        """Return a fault of requests about claims."""
        assert self._targets is not None
        return [
            self._lost(self._chance.choice(self._targets.verbs), self._targets.paths, self._targets.codes)
        ]

    def _nomination(self) -> list[Misfortune]:
        return [self._lost("patch", _STATUS, (503,))]

    def _lost(self, verb: str, path: str, codes: Sequence[int]) -> Fault:
        chance = self._chance
        action = chance.choice((*REQUEST_FAULTS, Effect.LOSE_ANSWER))
        return Fault(
            action=action,
            verb=verb,
            path=path,
            code=chance.choice(codes) if action is Effect.RESPOND else 503,
            delay_s=chance.choice((0.05, 1.0, 12.0)) if action in (Effect.DELAY, Effect.LOSE_ANSWER) else 0.0,
            times=chance.choice((1, 2, 8)),
        )

    def _history(self) -> list[Misfortune]:
        verb = self._chance.choice(("watch", "watch", "list"))
        kind = self._chance.choice(_KINDS)
        return [Fault(action=Effect.RESPOND, verb=verb, kind=kind, code=410)]


REQUEST_FAULTS = (Effect.RESPOND, Effect.DELAY, Effect.LOSE_ANSWER, Effect.RESPOND_AFTER, Effect.DROP)
_STREAM_FAULTS = (
    Effect.END_STREAM, Effect.CUT_STREAM, Effect.STALL_STREAM, Effect.EXPIRE_STREAM, Effect.REPEAT_EVENT,
)  # fmt: skip
