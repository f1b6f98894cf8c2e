"""
The loop around the machine: stimuli in, instructions carried out, one cycle at a time.

It decides nothing. Between two slices of work every other task gets its turn, so that no list page, relist or burst of
cycles holds the event loop for longer than a few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from scheduler.core.machine import Machine
from scheduler.model.instructions import Instruction
from scheduler.model.stimuli import CycleDue, SweepDue, TimePassed
from scheduler.shell.inbox import Inbox

#: Stimuli handled before others get their turn: about 40 µs each.
_STIMULI_AT_ONCE: Final = 100

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
        max_binding: int,
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
        self._stopping = False
        self._sweep_at_s = now_s() + _SWEEP_PERIOD_S

    def stop(self) -> None:
        """No cycle begins any more; `run` returns once the binds in flight are answered."""
        self._stopping = True
        self._inbox.nudge()

    async def run(self) -> None:
        """Until `stop`, and the answers to all binds in flight."""
        while not self._stopping or self._machine.n_binding:
            self._handle_waiting()
            self._keep_time()
            if self._may_cycle():
                started_s = self._now_s()
                for instruction in self._machine.handle(CycleDue(), started_s):
                    self._outbox.carry_out(instruction)
                # Binds ordered by this cycle start now, and informers read what has arrived meanwhile.
                await asyncio.sleep(0)
            elif len(self._inbox):
                await asyncio.sleep(0)
            else:
                await self._inbox.wait(self._idle_s())

    def _handle_waiting(self) -> None:
        for stimulus in self._inbox.take(_STIMULI_AT_ONCE):
            started_s = self._now_s()
            for instruction in self._machine.handle(stimulus, started_s):
                self._outbox.carry_out(instruction)
            self._on_handled(type(stimulus).__name__, self._now_s() - started_s)

    def _keep_time(self) -> None:
        now_s = self._now_s()
        wake_s = self._machine.next_wake_s(now_s)
        if wake_s is not None and wake_s <= now_s:
            self._machine.handle(TimePassed(), now_s)
        if now_s >= self._sweep_at_s:
            self._sweep_at_s = now_s + _SWEEP_PERIOD_S
            self._machine.handle(SweepDue(), now_s)

    def _may_cycle(self) -> bool:
        return (
            not self._stopping
            and self._machine.has_work()
            and self._machine.n_binding < self._max_binding
            and self._is_ready()
        )

    def _idle_s(self) -> float:
        now_s = self._now_s()
        wake_s = self._machine.next_wake_s(now_s)
        until_s = self._sweep_at_s if wake_s is None else min(wake_s, self._sweep_at_s)
        return max(0.0, until_s - now_s)
