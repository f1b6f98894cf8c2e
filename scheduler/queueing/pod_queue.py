"""
The pods waiting to be scheduled: which one is next, and what makes a rejected one worth another try.

    add ---> ACTIVE ------ pop -----> IN_FLIGHT ---- done ---> OUTSIDE
              ^  ^                     ^   |  |
              |  |                     |   |  |
              |  +----- BACKOFF -------+   |  |
              |            ^  ^------------+  |
              |            |                  v
              +------------+----------- UNSCHEDULABLE

    from            when                                                      to
    --------------  --------------------------------------------------------  -----------------------------
    OUTSIDE         add, update                                               ACTIVE
    ACTIVE          pop                                                       IN_FLIGHT
    BACKOFF         backoff over, activate                                    ACTIVE
    BACKOFF         pop while no pod is active (not after an error)           IN_FLIGHT
    IN_FLIGHT       put_back after an error                                   BACKOFF
    IN_FLIGHT       put_back of a rejected pod                                UNSCHEDULABLE
    IN_FLIGHT       the same, with an event since the pop that helps          BACKOFF
    IN_FLIGHT       the same, and it helps a pending plugin                   ACTIVE
    IN_FLIGHT       done                                                      OUTSIDE
    UNSCHEDULABLE   event or update that helps, timeout                       BACKOFF, ACTIVE if it is over
    UNSCHEDULABLE   event or update that helps a pending plugin, activate     ACTIVE
    GATED           the same, but no timeout and only the gating plugin's     as UNSCHEDULABLE
                    events
    any             delete                                                    OUTSIDE (IN_FLIGHT: once done)

    Into ACTIVE and BACKOFF leads through the PreEnqueue checks: where one fails the pod is GATED instead.

Rules of the house:
 1. A pod is in one place, and `_move` puts it there.
 2. What orders or indexes a pod (plugins, counts, timestamp, priority) changes only while nothing holds it.
 3. `pop` increments attempts; `put_back` increments one failure count and starts a new timestamp.
 4. What may move thousands of pods moves some of them; while `is_behind`, `go_on` moves the next. Whatever changes the
    queue first finishes what is left, so that it makes no difference who goes on, nor when.

Source: pkg/scheduler/backend/queue/scheduling_queue.go (kubernetes 1.36). Different here: pods are known by
UID; a gated pod that fails its checks again is not counted again in `incoming` and `unschedulable_by`; a pod
deleted while active or backing off leaves `unschedulable_by`, where upstream forgets it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import floor
from typing import Final

from scheduler.framework.events import (
    BACKOFF_COMPLETE,
    FORCE_ACTIVATE,
    POP_FROM_BACKOFF_Q,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    ClusterEvent,
    Resource,
    pod_update_actions,
)
from scheduler.model.pods import Pod
from scheduler.queueing.backoff import Backoff
from scheduler.queueing.in_flight import InFlightPods
from scheduler.queueing.places import READY_OR_SOON, WAITING_FOR_EVENT, Places
from scheduler.queueing.pre_enqueue import PreEnqueue, PreEnqueueCheck
from scheduler.queueing.queued_pod import Place, QueuedPod
from scheduler.queueing.requeue import Registrations, Requeue, RequeueRules
from scheduler.queueing.steps import Steps

#: The timeout of unschedulable pods is looked at every so often, on multiples of this (upstream's ticker).
UNSCHEDULABLE_FLUSH_PERIOD_S: Final = 30


class PodQueue:
    """
    All pending pods of all profiles.

    Attributes:
        incoming: (queue, event label) -> pods that entered; `scheduler_queue_incoming_pods_total`.
        unschedulable_by: (plugin, profile) -> queued pods it rejected; `scheduler_unschedulable_pods`.
    """

    def __init__(
        self,
        registrations: Registrations,
        *,
        pre_enqueue: Mapping[str, Sequence[PreEnqueueCheck]] | None = None,
        initial_backoff_s: float = 1.0,
        max_backoff_s: float = 10.0,
        max_in_unschedulable_s: float = 300.0,
        pop_from_backoff: bool = True,
    ) -> None:
        self.incoming: Counter[tuple[str, str]] = Counter()
        self.unschedulable_by: Counter[tuple[str, str]] = Counter()
        self._rules = RequeueRules(registrations)
        self._pre_enqueue = PreEnqueue(pre_enqueue or {})
        self._backoff = Backoff(initial_backoff_s, max_backoff_s, whole_seconds=pop_from_backoff)
        self._max_in_unschedulable_s = max_in_unschedulable_s
        self._pop_from_backoff = pop_from_backoff
        #: Every pod that is not OUTSIDE, in-flight ones included.
        self._pods: dict[str, QueuedPod] = {}
        self._places = Places(pop_from_backoff=pop_from_backoff)
        self._in_flight = InFlightPods()
        #: Moves that an event or the time has ordered.
        self._steps = Steps()
        #: In-flight pods that left the cluster or were bound: they are not put back.
        self._deleted_in_flight: set[str] = set()
        self._n_arrivals = 0
        self._last_flush_tick = 0

    @property
    def is_behind(self) -> bool:
        """Whether pods still have to move because of what was told."""
        return bool(self._steps)

    def go_on(self) -> None:
        """A bounded number of them have moved: about 3 ms."""
        self._steps.go_on()

    def get(self, uid: str) -> QueuedPod | None:
        """The pod, wherever it is, or None if it is OUTSIDE."""
        return self._pods.get(uid)

    def pods(self) -> Iterable[QueuedPod]:
        """Every pod that is not OUTSIDE, in-flight ones included; to be read before the next change."""
        return self._pods.values()

    def depths(self) -> dict[str, int]:
        """See `Places.depths`."""
        return self._places.depths()

    def add(self, pod: Pod, now_s: float) -> None:
        """The pending pod is active, or gated. A pod that is known already is updated."""
        self._steps.finish()
        known = self._pods.get(pod.uid)
        if known is None:
            self._enter(pod, UNSCHEDULABLE_POD_ADD, now_s)
        else:
            self.update(known.pod, pod, now_s)

    def update(self, old: Pod, new: Pod, now_s: float) -> None:
        """
        The queue holds `new`; a rejected or gated pod moves if that may help it, an unknown one is added.

        Of a pod in flight only the change is recorded. Not for pods that are assumed or assigned.
        """
        self._steps.finish()
        queued = self._pods.get(new.uid)
        if queued is None:
            self._enter(new, UNSCHEDULABLE_POD_UPDATE, now_s)
            return
        self._places.release(queued)
        queued.pod = new
        self._places.hold(queued)
        if queued.place is Place.IN_FLIGHT:
            self._deleted_in_flight.discard(new.uid)
            for event in _own_events(old, new):
                self._in_flight.record(event, old, new)
        elif queued.place in WAITING_FOR_EVENT:
            self._reconsider_updated(queued, old, now_s)

    def delete(self, uid: str) -> None:
        """The pod, gone or assigned, is OUTSIDE; one in flight only after its `done` or `put_back`."""
        self._steps.finish()
        queued = self._pods.get(uid)
        if queued is None:
            return
        if queued.place is Place.IN_FLIGHT:
            self._deleted_in_flight.add(uid)
            return
        self._places.release(queued)
        self._count_rejecters(queued, -1)
        del self._pods[uid]
        queued.place = Place.OUTSIDE

    def pop(self, now_s: float) -> QueuedPod | None:
        """
        The pod to try now, in flight from here to `done` or `put_back`; None if there is none, or `is_behind` yet.

        Pods whose backoff is over become active before. If none is active, the rejected pod whose backoff
        ends first is popped early (a setting); a pod that failed with an error never is. Cost: O(log n).
        """
        self._steps.finish()
        self._steps.begin(self._completing_backoffs(now_s))
        if self._steps:
            return None
        queued = self._places.active.first()
        if queued is None and self._pop_from_backoff:
            queued = self._places.rejected_backoff.first()
            if queued is not None:
                self.incoming[Place.ACTIVE.value, POP_FROM_BACKOFF_Q] += 1
        if queued is None:
            return None
        self._places.release(queued)
        self._count_rejecters(queued, -1)
        queued.attempts += 1
        queued.place = Place.IN_FLIGHT
        self._in_flight.add(queued.uid)
        return queued

    def can_pop(self) -> bool:
        """Whether `pop` gives a pod, or comes nearer to it, without any backoff having to end. Cost: O(1)."""
        ready, soon = self._places.active, self._places.rejected_backoff
        return bool(self._steps or len(ready) or (self._pop_from_backoff and len(soon)))

    def done(self, uid: str) -> None:
        """The pod is no longer in flight nor known: its binding cycle has begun, or it is dropped."""
        if uid in self._in_flight:
            self._in_flight.remove(uid)
            self._deleted_in_flight.discard(uid)
            self._pods.pop(uid).place = Place.OUTSIDE

    def put_back(
        self, queued: QueuedPod, rejecting: frozenset[str], pending: frozenset[str], now_s: float
    ) -> None:
        """
        A pod whose attempt failed waits for an event, for its backoff, or not at all.

        No plugin in `rejecting` and `pending` means an error: a retry after backoff. Otherwise every event
        since the pop is played back through the hints of these plugins; if none helps, the pod is
        unschedulable. Nothing is queued if the pod was deleted in flight or is in a queue again. A pod whose
        binding failed was done already: the caller first sets `queued.pod` to the newest copy.
        """
        self._steps.finish()
        uid = queued.uid
        if uid in self._deleted_in_flight:
            self.done(uid)
            return
        known = self._pods.get(uid, queued)
        if known is not queued or queued.place not in (Place.IN_FLIGHT, Place.OUTSIDE):
            return
        queued.rejecting, queued.pending = rejecting, pending
        if queued.rejecters:
            queued.unschedulable_count += 1
            queued.error_count = 0
        else:
            queued.error_count += 1
        queued.after_flush = False
        self._count_rejecters(queued, +1)
        self._stamp(queued, now_s)
        decision = self._rules.replay(queued, self._in_flight.events_since_pop(uid))
        self._in_flight.remove(uid)
        self._pods[uid] = queued
        if decision is Requeue.SKIP:
            self._move(queued, Place.UNSCHEDULABLE, SCHEDULE_ATTEMPT_FAILURE, now_s)
        else:
            self._requeue(queued, decision, SCHEDULE_ATTEMPT_FAILURE, now_s)

    def on_event(
        self,
        event: ClusterEvent,
        old: object,
        new: object,
        now_s: float,
        *,
        only: Callable[[Pod], bool] | None = None,
    ) -> None:
        """
        Pods that a change from `old` to `new` may help are active or back off; in-flight ones hear of it later.

        A pending pod's own update is for `update`. `only` restricts which pods move now, not those in flight.
        Wildcard events are not for here. Cost: O(pods moved + kinds of pods rejected by a plugin that registered
        the event); pods of one spec are one kind, unless a hint reads their labels for this event.
        """
        plugins = self._rules.interested_plugins(event)
        if not plugins:
            return
        self._in_flight.record(event, old, new)
        self._steps.begin(self._waking(event, old, new, now_s, only))

    def activate(self, uids: Iterable[str], now_s: float) -> None:
        """The pods are active, whatever rejected them, or gated; in-flight ones are to retry after backoff."""
        self._steps.finish()
        for uid in uids:
            queued = self._pods.get(uid)
            if queued is None or queued.place is Place.ACTIVE:
                continue
            if queued.place is Place.IN_FLIGHT:
                self._in_flight.record(FORCE_ACTIVATE, None, queued.pod)
            else:
                self._move(queued, Place.ACTIVE, FORCE_ACTIVATE.label, now_s)

    def flush(self, now_s: float) -> None:
        """
        Pods whose backoff is over are active; every 30 s those unschedulable for too long get another try.

        Cost: O(pods moved).
        """
        self._steps.finish()
        self._steps.begin(self._flushing(now_s))

    def next_wake_s(self, now_s: float) -> float | None:
        """When `flush` next has something to move, not before `now_s`; None if it never has."""
        heads = (self._places.rejected_backoff.first(), self._places.error_backoff.first())
        wakes = [self._backoff.over_s(head) for head in heads if head]
        if longest := self._places.unschedulable.rejected.first():
            tick = floor(self._overdue_s(longest) / UNSCHEDULABLE_FLUSH_PERIOD_S) + 1
            wakes.append(tick * UNSCHEDULABLE_FLUSH_PERIOD_S)
        return max(now_s, min(wakes)) if wakes else None

    def _overdue_s(self, queued: QueuedPod) -> float:
        return queued.timestamp_s + self._max_in_unschedulable_s

    def _enter(self, pod: Pod, event: ClusterEvent, now_s: float) -> None:
        queued = QueuedPod(pod, now_s, arrival=0)
        self._stamp(queued, now_s)
        self._pods[pod.uid] = queued
        self._move(queued, Place.ACTIVE, event.label, now_s)

    def _stamp(self, queued: QueuedPod, now_s: float) -> None:
        """Start the pod's wait at `now_s`, behind all others of that moment."""
        self._n_arrivals += 1
        queued.arrival = self._n_arrivals
        queued.timestamp_s = now_s
        queued.backoff_until_s = self._backoff.expiry_s(queued)

    def _reconsider_updated(self, queued: QueuedPod, old: Pod, now_s: float) -> None:
        for event in _own_events(old, queued.pod):
            decision = self._rules.decide(queued, event, old, queued.pod)
            self._requeue(queued, decision, event.label, now_s)
            if queued.place in READY_OR_SOON:
                return

    def _requeue(self, queued: QueuedPod, decision: Requeue, label: str, now_s: float) -> None:
        if decision is Requeue.SKIP:
            return
        waits = decision is Requeue.AFTER_BACKOFF and self._backoff.is_backing_off(queued, now_s)
        self._move(queued, Place.BACKOFF if waits else Place.ACTIVE, label, now_s)

    def _waking(
        self, event: ClusterEvent, old: object, new: object, now_s: float, only: Callable[[Pod], bool] | None
    ) -> Iterator[None]:
        """One step for each question to hints, and for each pod that moves."""
        changed = old if new is None else new
        own = self._pods.get(changed.uid) if isinstance(changed, Pod) else None
        waiting = self._places.unschedulable
        for family in waiting.concerned(self._rules.interested_plugins(event)):
            changes = own if own is not None and waiting.family_of(own) is family else None
            for asked, concerned in self._rules.questions(family, changes, event, old, new):
                decision = self._rules.decide(asked, event, old, new)
                yield
                if decision is not Requeue.SKIP:
                    for queued in [queued for queued in concerned if only is None or only(queued.pod)]:
                        self._requeue(queued, decision, event.label, now_s)
                        yield

    def _flushing(self, now_s: float) -> Iterator[None]:
        yield from self._completing_backoffs(now_s)
        tick = floor(now_s / UNSCHEDULABLE_FLUSH_PERIOD_S)
        if tick == self._last_flush_tick:
            return
        self._last_flush_tick = tick
        rejected = self._places.unschedulable.rejected
        while (queued := rejected.first()) and self._overdue_s(queued) < now_s:
            self._requeue(queued, Requeue.AFTER_BACKOFF, UNSCHEDULABLE_TIMEOUT.label, now_s)
            queued.after_flush = queued.place is not Place.GATED
            yield

    def _completing_backoffs(self, now_s: float) -> Iterator[None]:
        for pods in (self._places.rejected_backoff, self._places.error_backoff):
            while (queued := pods.first()) and not self._backoff.is_backing_off(queued, now_s):
                self._move(queued, Place.ACTIVE, BACKOFF_COMPLETE, now_s)
                yield

    def _move(self, queued: QueuedPod, to: Place, label: str, now_s: float) -> None:
        """Put `queued` into `to` or GATED. From one of UNSCHEDULABLE and GATED to the other is no arrival."""
        origin = queued.place
        self._places.release(queued)
        if self._must_pass(origin, to):
            self._run_pre_enqueue(queued)
            if queued.gating_plugin:
                to = Place.GATED
        queued.place = to
        if to is Place.ACTIVE and queued.initial_attempt_s is None:
            queued.initial_attempt_s = now_s
        self._places.hold(queued)
        if to not in WAITING_FOR_EVENT:
            self.incoming[to.value, label] += 1
        elif origin not in WAITING_FOR_EVENT:
            self.incoming[Place.UNSCHEDULABLE.value, label] += 1

    def _must_pass(self, origin: Place, to: Place) -> bool:
        """Whether PreEnqueue runs: once on the way to `pop`, so before BACKOFF if pods may leave it early."""
        if self._pop_from_backoff:
            return to is Place.BACKOFF or (to is Place.ACTIVE and origin is not Place.BACKOFF)
        return to is Place.ACTIVE

    def _run_pre_enqueue(self, queued: QueuedPod) -> None:
        """A plugin that gates `queued` is one of those that reject it."""
        plugin = self._pre_enqueue.gating_plugin(queued.pod, queued.gating_plugin)
        queued.gating_plugin = plugin
        if plugin and plugin not in queued.rejecters:
            queued.rejecting |= {plugin}
            self.unschedulable_by[plugin, queued.profile] += 1

    def _count_rejecters(self, queued: QueuedPod, change: int) -> None:
        for plugin in queued.rejecters:
            self.unschedulable_by[plugin, queued.profile] += change


def _own_events(old: Pod, new: Pod) -> list[ClusterEvent]:
    return [ClusterEvent(Resource.UNSCHEDULABLE_POD, action) for action in pod_update_actions(old, new)]
