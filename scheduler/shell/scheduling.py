"""
The loop around the machine: stimuli in, instructions carried out, a few cycles at a time.

It decides nothing. Between two slices of work every other task gets its turn, so that no list page, relist, burst of
cycles or event that wakes thousands of pods holds the event loop for longer than a few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from scheduler.core.machine import Machine
from scheduler.model.instructions import Bind, Instruction
from scheduler.model.stimuli import CycleDue, SweepDue, TimePassed
from scheduler.queueing.incremental_work import UNITS_PER_STEP
from scheduler.shell.inbox import Inbox
from scheduler.shell.upkeep import Young

#: Stimuli handled before others get their turn, about 40 µs each, and for how long at most.
_STIMULI_AT_ONCE: Final = 100
_SLICE_S: Final = 0.004

#: Cycles in a row, for how long at most, and together with the stimuli that were handled before. Alone, a decision
#: finds the caches full of what sent the bind before it, and a pod costs a fifth more CPU (5,000 nodes, hostname
#: anti-affinity: 0.78 ms instead of 0.6). It matters most where cycles are slow: on a machine that takes 0.2 ms for
#: each, spread pods came at 0.85 of the speed of plain ones when stopped after 2 ms, at 0.93 after 4. For the same
#: reason binds are carried out behind the last of them: spread pods took 517 µs instead of 551, plain ones 467 and 485.
_CYCLES_AT_ONCE: Final = 16
_CYCLES_S: Final = 0.004
_TURN_S: Final = 0.006

#: How often a loop that has work and may not begin it looks whether it may now. Most of what lets it is announced by a
#: nudge; what is not, such as a Lease that was renewed late, costs a second.
_LOOK_AGAIN_S: Final = 1.0

#: How often what no pod uses any more is dropped.
_SWEEP_PERIOD_S: Final = 60.0


class Outbox(Protocol):
    """Carries instructions out; answers come back through the inbox."""

    def carry_out(self, instruction: Instruction) -> None:
        """Starts what is ordered; never blocks."""
        ...


class SchedulingLoop:
    """Feeds the machine until stopped."""

    def __init__(
        self,
        machine: Machine,
        inbox: Inbox,
        outbox: Outbox,
        *,
        is_ready: Callable[[], bool],
        max_binding: Callable[[], int],
        now_s: Callable[[], float],
        on_handled: Callable[[str, float], None],
    ) -> None:
        self._machine = machine
        self._inbox = inbox
        self._outbox = outbox
        self._is_ready = is_ready
        self._max_binding = max_binding
        self._now_s = now_s
        self._on_handled = on_handled
        self._young = Young()
        #: Second at which waiting for binds in flight ends; None while not stopping.
        self._give_up_at_s: float | None = None
        self._sweep_at_s = now_s() + _SWEEP_PERIOD_S
        #: When the loop last came round, which it does at least once a sweep.
        self._turned_at_s = now_s()

    def stop(self, grace_s: float) -> None:
        """No cycle begins any more; `run` returns once the binds in flight are answered, at most after `grace_s`."""
        self._give_up_at_s = self._now_s() + grace_s
        self._inbox.nudge()

    def is_stalled(self, after_s: float) -> bool:
        """Whether there is something to do, and the loop has not come round for so long; more than a sweep period."""
        has_to_turn = len(self._inbox) > 0 or self._may_cycle()
        return has_to_turn and self._now_s() - self._turned_at_s > after_s

    async def run(self) -> None:
        """Until `stop`, and the answers to the binds in flight."""
        while True:
            self._turned_at_s = self._now_s()
            if self._machine.has_backlog:
                # Nothing else is handled before, so that all is as if it had been done at once.
                self._machine.step()
                self._young.handled(UNITS_PER_STEP)
            else:
                self._handle_waiting()
                self._keep_time()
            if self._is_finished():
                return
            if self._machine.has_backlog:
                await asyncio.sleep(0)
            elif self._may_cycle():
                self._cycle()
                # Binds ordered by these cycles start now, and informers read what has arrived meanwhile.
                await asyncio.sleep(0)
            elif len(self._inbox):
                await asyncio.sleep(0)
            else:
                await self._inbox.wait(self._idle_s())

    def _is_finished(self) -> bool:
        if self._give_up_at_s is None:
            return False
        return self._machine.n_binding == 0 or self._now_s() >= self._give_up_at_s

    def _handle_waiting(self) -> None:
        started_s = self._now_s()
        ends_s = started_s + _SLICE_S
        for _ in range(min(_STIMULI_AT_ONCE, len(self._inbox))):
            (stimulus,) = self._inbox.take(1)
            for instruction in self._machine.handle(stimulus, started_s):
                self._outbox.carry_out(instruction)
            handled_s = self._now_s()
            self._on_handled(type(stimulus).__name__, handled_s - started_s)
            self._young.handled()
            started_s = handled_s
            if started_s >= ends_s or self._machine.has_backlog:
                return

    def _cycle(self) -> None:
        """
        Cycles in a row, then the binds that they order: these start when this turn is over, whenever they were ordered.

        Who found no node is told of at once, since that is when the attempt ends.
        """
        started_s = self._now_s()
        ends_s = min(started_s + _CYCLES_S, self._turned_at_s + _TURN_S)
        binds: list[Bind] = []
        for _ in range(_CYCLES_AT_ONCE):
            for instruction in self._machine.handle(CycleDue(), started_s):
                if isinstance(instruction, Bind):
                    binds.append(instruction)
                else:
                    self._outbox.carry_out(instruction)
            self._young.handled()
            started_s = self._now_s()
            if started_s >= ends_s or self._machine.has_backlog or not self._may_cycle():
                break
        for bind in binds:
            self._outbox.carry_out(bind)

    def _keep_time(self) -> None:
        if self._machine.has_backlog:
            return
        now_s = self._now_s()
        wake_s = self._machine.next_wake_s(now_s)
        if wake_s is not None and wake_s <= now_s:
            self._machine.handle(TimePassed(), now_s)
        if now_s >= self._sweep_at_s:
            self._sweep_at_s = now_s + _SWEEP_PERIOD_S
            self._machine.handle(SweepDue(), now_s)

    def _may_cycle(self) -> bool:
        return (
            self._give_up_at_s is None
            and self._machine.has_work()
            and self._machine.n_binding < self._max_binding()
            and self._is_ready()
        )

    def _idle_s(self) -> float:
        now_s = self._now_s()
        wake_s = self._machine.next_wake_s(now_s)
        moments = [at_s for at_s in (self._sweep_at_s, wake_s, self._give_up_at_s) if at_s is not None]
        if self._machine.has_work():
            moments.append(now_s + _LOOK_AGAIN_S)
        return max(0.0, min(moments) - now_s)
