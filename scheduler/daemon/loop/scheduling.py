"""
The scheduling loop: stimuli into the machine, instructions out, a few cycles at a time.

It decides nothing. Other tasks run between two slices of work: no relist, burst of cycles or event that wakes thousands
of pods holds the event loop for longer than a few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from scheduler.daemon.loop.upkeep import SWEEP_PAUSE_S, SWEEP_PERIOD_S, YoungCollector
from scheduler.daemon.writes.inbox import Inbox
from scheduler.engine.core.machine import Machine
from scheduler.engine.model.instructions import Bind, Instruction, WriteReservation
from scheduler.engine.model.stimuli import CycleDue, CycleEnded, SweepDue, TimePassed
from scheduler.engine.state.batches import UNITS_PER_STEP

#: Limits of a slice of stimuli: their number, about 40 µs each, and its time.
_STIMULI_PER_SLICE: Final = 100
_SLICE_S: Final = 0.004

#: Limits of a burst of cycles: their number, its time, and the time of the whole iteration. A single cycle between
#: other work finds cold CPU caches and costs a fifth more CPU; bursts of 2 ms cost spread pods a tenth of their speed.
#: Binds start after the burst for the same reason.
_CYCLES_PER_BURST: Final = 16
_BURST_S: Final = 0.004
_ITERATION_S: Final = 0.006

#: How often a loop with work checks again if it is ready. Most causes end with a nudge; the others, such as a Lease
#: that was renewed late, cost up to this time.
_READY_CHECK_S: Final = 1.0
#: A watch shows a bind within milliseconds of its answer, if it is not broken.
_CONFIRMATION_S: Final = 0.5


class SchedulingLoop:
    """
    Feeds the machine until stopped.

    `execute` starts an instruction without blocking; its result returns through the inbox. `is_ready` returns whether
    cycles may run now, `max_binding` the limit on binds in flight. `clock_s` is the time since the epoch, `now_s` a
    monotonic clock. `on_handled` is called with the type and seconds of every handled stimulus, `on_cycle` with the
    seconds of every cycle that had a pod.
    """

    def __init__(
        self,
        machine: Machine,
        inbox: Inbox,
        execute: Callable[[Instruction], None],
        *,
        is_ready: Callable[[], bool],
        max_binding: Callable[[], int],
        clock_s: Callable[[], float],
        now_s: Callable[[], float],
        on_handled: Callable[[str, float], None],
        on_cycle: Callable[[float], None],
    ) -> None:
        self._machine = machine
        self._inbox = inbox
        self._execute = execute
        self._is_ready = is_ready
        self._max_binding = max_binding
        self._clock_s, self._now_s = clock_s, now_s
        self._on_handled = on_handled
        self._on_cycle = on_cycle
        self._young_collector = YoungCollector()
        #: When to stop waiting for binds and evictions in flight; None before `stop`.
        self._give_up_at_s: float | None = None
        #: When to stop waiting for the watch to show the binds.
        self._confirmed_by_s = 0.0
        self._sweep_at_s = now_s() + SWEEP_PERIOD_S
        #: The time that a cycle in pieces has taken so far.
        self._cycle_s = 0.0
        #: When the last iteration of `run` began; there is at least one per sweep period.
        self._iteration_began_s = now_s()

    def stop(self, grace_s: float) -> None:
        """
        Start no further cycle; `run` returns once binds and evictions are answered, or after `grace_s`.

        For a moment it waits for the watch to show the binds too, so that `Scheduler` can hand over.
        """
        self._give_up_at_s = self._now_s() + grace_s
        self._confirmed_by_s = self._now_s() + min(grace_s, _CONFIRMATION_S)
        self._inbox.nudge()

    def is_stalled(self, after_s: float) -> bool:
        """Return True if there is work and no iteration began for `after_s`, which must exceed a sweep period."""
        has_work = len(self._inbox) > 0 or self._may_cycle()
        return has_work and self._now_s() - self._iteration_began_s > after_s

    async def run(self) -> None:
        """Handle stimuli and run cycles until `stop` is called and binds and evictions are answered."""
        while True:
            self._iteration_began_s = self._now_s()
            goes_on = self._machine.has_backlog
            if goes_on:
                # Stimuli wait until the machine has finished the last one.
                self._go_on()
            else:
                self._handle_stimuli()
                self._handle_timers()
            if self._is_finished():
                return
            if goes_on or self._machine.has_backlog:
                # After a cycle in pieces too: others have waited for its end.
                await asyncio.sleep(0)
            elif self._may_cycle():
                self._run_cycles()
                # The binds of these cycles start now, and informers read.
                await asyncio.sleep(0)
            elif len(self._inbox):
                await asyncio.sleep(0)
            else:
                await self._inbox.wait(self._idle_s())

    def _is_finished(self) -> bool:
        if self._give_up_at_s is None:
            return False
        now_s, machine = self._now_s(), self._machine
        # Of a group, all members are bound or none.
        is_writing = machine.n_binding > 0 or machine.preemptions.is_evicting or machine.is_in_cycle
        is_late = machine.n_unconfirmed > 0 and now_s < self._confirmed_by_s
        return not (is_writing or is_late) or now_s >= self._give_up_at_s

    def _go_on(self) -> None:
        """Do a step of the machine's backlog, or a slice of a cycle in pieces."""
        is_in_cycle = self._machine.is_in_cycle
        if not is_in_cycle:
            self._machine.step()
            self._young_collector.count(UNITS_PER_STEP)
            return
        began_s = now_s = self._now_s()
        while is_in_cycle and now_s < began_s + _SLICE_S:
            for instruction in self._machine.step():
                self._execute(instruction)
            self._young_collector.count()
            now_s, is_in_cycle = self._now_s(), self._machine.is_in_cycle
        self._cycle_s += now_s - began_s
        if not is_in_cycle:
            self._end_cycle(self._cycle_s, now_s)

    def _end_cycle(self, used_s: float, now_s: float) -> None:
        self._on_cycle(used_s)
        self._machine.handle(CycleEnded(used_s), now_s)

    def _handle_stimuli(self) -> None:
        started_s = self._now_s()
        ends_s = started_s + _SLICE_S
        for _ in range(min(_STIMULI_PER_SLICE, len(self._inbox))):
            (stimulus,) = self._inbox.take(1)
            for instruction in self._machine.handle(stimulus, started_s):
                self._execute(instruction)
            handled_s = self._now_s()
            self._on_handled(type(stimulus).__name__, handled_s - started_s)
            self._young_collector.count()
            started_s = handled_s
            if started_s >= ends_s or self._machine.has_backlog:
                return

    def _run_cycles(self) -> None:
        """
        Run a burst of cycles, then start their binds.

        Other instructions, which report a pod without a node, are executed at once: their attempt has ended.
        """
        started_s = self._now_s()
        ends_s = min(started_s + _BURST_S, self._iteration_began_s + _ITERATION_S)
        binds: list[Bind | WriteReservation] = []
        for _ in range(_CYCLES_PER_BURST):
            instructions = self._machine.handle(CycleDue(self._clock_s()), started_s)
            decided_s = self._now_s()
            if self._machine.is_in_cycle:
                self._cycle_s = decided_s - started_s
            else:
                # Without instructions too: the time of a turn whose attempt goes on counts.
                self._end_cycle(decided_s - started_s, decided_s)
            for instruction in instructions:
                if isinstance(instruction, Bind | WriteReservation):
                    binds.append(instruction)
                else:
                    self._execute(instruction)
            self._young_collector.count()
            started_s = self._now_s()
            if started_s >= ends_s or self._machine.has_backlog or not self._may_cycle():
                break
        for bind in binds:
            self._execute(bind)

    def _handle_timers(self) -> None:
        if self._machine.has_backlog:
            return
        now_s = self._now_s()
        wake_s = self._machine.next_wake_s(now_s)
        if wake_s is not None and wake_s <= now_s:
            for instruction in self._machine.handle(TimePassed(), now_s):
                self._execute(instruction)
        if now_s >= self._sweep_at_s:
            self._machine.handle(SweepDue(), now_s)
            pause_s = SWEEP_PAUSE_S if self._machine.is_sweeping else SWEEP_PERIOD_S
            self._sweep_at_s = now_s + pause_s

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
        wake_times_s = [at_s for at_s in (self._sweep_at_s, wake_s, self._give_up_at_s) if at_s is not None]
        if self._confirmed_by_s > now_s:
            wake_times_s.append(self._confirmed_by_s)
        if self._machine.has_work():
            wake_times_s.append(now_s + _READY_CHECK_S)
        return max(0.0, min(wake_times_s) - now_s)
