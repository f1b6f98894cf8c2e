"""Misfortunes, drawn from a seed: of the server, of the wires, of clocks, of whole instances."""

from __future__ import annotations

import asyncio
import random

from scheduler.devcluster.faults import Action, Fault, Faults
from tests.chaos.instance import KILL_POINTS, Instance
from tests.chaos.journal import Journal

_BINDINGS = r"/pods/[^/]+/binding$"
_STATUS = r"/pods/[^/]+/status$"
_LEASE = "leases.coordination.k8s.io"
_KINDS = ("pods", "nodes", "namespaces")


class Misfortune:
    """
    What goes wrong next.

    Args:
        faults: the server's.
        instances: ours.
        journal: is told what happens.
        chance: draws.
    """

    def __init__(
        self, faults: Faults, instances: list[Instance], journal: Journal, chance: random.Random
    ) -> None:
        self._faults, self._instances = faults, instances
        self._journal, self._chance = journal, chance

    def strike(self) -> None:
        """One thing goes wrong."""
        kinds = (
            (36, self._request), (22, self._stream), (10, self._doubt), (8, self._wire), (4, self._clock),
            (12, self._death), (3, self._history),
        )  # fmt: skip
        kind = self._chance.choices([one for _, one in kinds], [weight for weight, _ in kinds])[0]
        self._journal.tell(kind())

    def end(self) -> None:
        """Nothing goes wrong from now on."""
        self._faults.clear()
        for instance in self._instances:
            instance.doom = None
            instance.restart_after_s = 1.0
            instance.wire.thaw()

    def _request(self) -> str:
        chance = self._chance
        target = chance.choice(({"path": _BINDINGS}, {"path": _BINDINGS}, {"path": _STATUS}, {"kind": _LEASE},
                                {"kind": "events.events.k8s.io"}, {"kind": chance.choice(_KINDS), "verb": "watch"},
                                {"kind": chance.choice(_KINDS)}, {}))  # fmt: skip
        action = chance.choice(_REQUEST_FAULTS)
        if action in (Action.LOSE_ANSWER, Action.RESPOND_AFTER) and "path" not in target:
            # A watch has no answer to lose; what takes effect is a write.
            target |= {"verb": chance.choice(("create", "update", "patch"))}
        refused = action is Action.RESPOND
        code = chance.choice((500, 503, 504, 429, 429) if refused else (500, 503, 504))
        fault = Fault(
            action=action,
            times=chance.choice((1, 1, 2, 4, 8, 40)),
            code=code,
            retry_after_s=chance.choice((0, 1, 3)) if code == 429 else 0,
            delay_s=chance.choice((0.0, 0.05, 0.5, 3.0, 12.0)),
            kind=target.get("kind", ""),
            verb=target.get("verb", ""),
            path=target.get("path", ""),
        )
        self._faults.add(fault)
        return str(fault)

    def _stream(self) -> str:
        chance = self._chance
        fault = Fault(
            action=chance.choice(_STREAM_FAULTS),
            kind=chance.choice(_KINDS),
            after_events=chance.choice((0, 1, 3)),
            times=chance.choice((1, 1, 2)),
            delay_s=chance.choice((0.05, 0.5, 2.0, 8.0)),
        )
        self._faults.add(fault)
        return str(fault)

    def _doubt(self) -> str:
        """A bind takes effect, its answer says otherwise or never comes, and the watch is late to tell."""
        for_s = self._chance.choice((1.0, 5.0, 15.0))
        times = self._chance.choice((1, 2, 5))
        action = self._chance.choice((Action.LOSE_ANSWER, Action.RESPOND_AFTER))
        code = self._chance.choice((500, 503, 504))
        self._faults.add(
            *[Fault(action=Action.STALL_STREAM, kind="pods", delay_s=for_s)] * len(self._instances),
            Fault(action=action, path=_BINDINGS, code=code, times=times),
        )
        return f"{times} binds are in doubt, and watches of pods {for_s} s late"

    def _wire(self) -> str:
        instance = self._chance.choice(self._instances)
        for_s = self._chance.choice((0.1, 1.0, 4.0, 12.0, 20.0))
        match self._chance.choice(("freeze", "cut", "cut off")):
            case "freeze":
                instance.wire.freeze()
                text = f"{instance.name}: nothing arrives for {for_s} s"
            case "cut":
                instance.wire.cut()
                return f"{instance.name}: every connection breaks"
            case _:
                instance.wire.cut(refuse=True)
                text = f"{instance.name}: the server cannot be reached for {for_s} s"
        asyncio.get_running_loop().call_later(for_s, instance.wire.thaw)
        return text

    def _clock(self) -> str:
        instance = self._chance.choice(self._instances)
        if self._chance.random() < 0.3:
            leap_s = self._chance.choice((0.5, 5.0, 20.0))
            instance.leapt_s += leap_s
            return f"{instance.name}: {leap_s} s pass at once"
        instance.wall_offset_s = self._chance.choice((-1e8, -3600.0, -10.0, 0.0, 10.0, 1e8))
        return f"{instance.name}: the wall clock is off by {instance.wall_offset_s} s"

    def _death(self) -> str:
        instance = self._chance.choice(self._instances)
        instance.restart_after_s = self._chance.choice((0.1, 1.0, 5.0, 20.0))
        if self._chance.random() < 0.15 and instance.life is not None:
            instance.life.scheduler.stop()
            return f"{instance.identity} gets SIGTERM"
        instance.doom = (self._chance.choice(KILL_POINTS), self._chance.randrange(3))
        return f"{instance.name} is to die: {instance.doom}"

    def _history(self) -> str:
        self._faults.add(
            Fault(action=Action.RESPOND, verb="watch", kind=self._chance.choice(_KINDS), code=410)
        )
        return "a version is too old"


_REQUEST_FAULTS = (Action.RESPOND, Action.DELAY, Action.LOSE_ANSWER, Action.RESPOND_AFTER, Action.DROP)
_STREAM_FAULTS = (
    Action.END_STREAM, Action.CUT_STREAM, Action.STALL_STREAM, Action.EXPIRE_STREAM, Action.REPEAT_EVENT,
)  # fmt: skip
