"""
The scheduling queue: the pending pods of all profiles, by what each waits for.

    from            when                                            to
    --------------  ----------------------------------------------  --------------------------------
    (new)           add, or update of an unknown pod                ACTIVE
    ACTIVE          pop                                             (popped)
    BACKOFF         backoff over                                    ACTIVE
    BACKOFF         pop while no pod is active, not after an error  (popped)
    (popped)        put_back of a rejected pod                      UNSCHEDULABLE
    (popped)        put_back after an error                         BACKOFF
    (popped)        give_back of a pod that was not tried           ACTIVE
    UNSCHEDULABLE   event or update that may help, timeout          BACKOFF, or ACTIVE if that is over
    GATED           event or update that may help the gating plugin as UNSCHEDULABLE
    GATED           let_through_each                                as UNSCHEDULABLE
    not ACTIVE      activate_each                                   ACTIVE
    any             delete                                          (gone)

A pod that moves to ACTIVE or BACKOFF has to pass the PreEnqueue checks, unless it comes from BACKOFF. If a check fails,
the pod becomes GATED.

Rules:
 1. A pod is in one sub-queue; `_move` puts it there.
 2. Fields that sort or index a pod change only while no sub-queue holds it.
 3. `pop` increments attempts, which `give_back` undoes; `put_back` increments one failure count and starts a new
    timestamp.
 4. What may move thousands of pods moves at most 100 at once; while `has_backlog`, `step` moves the next. Every
    method that changes the queue joins the backlog or first finishes it, so the result does not depend on when `step`
    is called.
 5. While a namespace is over its share of the time (`namespace_shares`), its active pods come after others of equal
    priority. Otherwise the order is upstream's.

Source: pkg/scheduler/backend/queue/scheduling_queue.go (kubernetes 1.36). Different here:
 - A popped pod is not in the queue: no event can arrive between `pop` and `put_back` of one scheduling cycle, so
   nothing is recorded for pods in flight.
 - A gated pod that fails its checks again is not counted again in `incoming` and `unschedulable_by_plugin`.
 - A pod deleted while active or backing off leaves `unschedulable_by_plugin`; upstream keeps counting it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from math import floor
from typing import Final

from scheduler.engine.framework.events import (
    ASSIGNED_POD_DELETE,
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
from scheduler.engine.framework.interface import PreEnqueuePlugin
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Gate, Semantics
from scheduler.engine.queueing.active_pods import ActivePods
from scheduler.engine.queueing.backoff import Backoff
from scheduler.engine.queueing.namespace_shares import NamespaceShares
from scheduler.engine.queueing.ordered_pods import OrderedPods, by_end_of_backoff
from scheduler.engine.queueing.queued_pod import QueuedPod, SubQueue
from scheduler.engine.queueing.queueing_hints import QueueingHints
from scheduler.engine.queueing.unschedulable_pods import InterestedPlugins, UnschedulablePods
from scheduler.engine.state.batches import IncrementalWork

#: Unschedulable pods are checked for their timeout at multiples of this, as upstream.
UNSCHEDULABLE_FLUSH_PERIOD_S: Final = 30


class PodQueue:
    """
    The pending pods of all profiles.

    Attributes:
        incoming: (queue, event label) -> pods that entered; `scheduler_queue_incoming_pods_total`.
        unschedulable_by_plugin: (plugin, profile) -> pods it rejected; `scheduler_unschedulable_pods`.
    """

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        *,
        initial_backoff_s: float = 1.0,
        max_backoff_s: float = 10.0,
        max_in_unschedulable_s: float = 300.0,
        namespace_share: float = 0.0,
        semantics: Semantics = DEFAULT_SEMANTICS,
    ) -> None:
        """`profiles`: by schedulerName. `namespace_share`: see `NamespaceShares`; upstream's is all of the time."""
        self.incoming: Counter[tuple[str, str]] = Counter()
        self.unschedulable_by_plugin: Counter[tuple[str, str]] = Counter()
        self._hints = QueueingHints(profiles)
        self._pre_enqueue = {name: profile.pre_enqueue for name, profile in profiles.items()}
        self._backoff = Backoff(initial_backoff_s, max_backoff_s)
        self._max_in_unschedulable_s = max_in_unschedulable_s
        self._pods: dict[str, QueuedPod] = {}
        self._active = ActivePods()
        #: Pods that back off after a rejection: these may be popped early.
        self._rejected_backoff = OrderedPods(by_end_of_backoff)
        self._error_backoff = OrderedPods(by_end_of_backoff)
        self._waiting = UnschedulablePods()
        self._pops_early = semantics.enabled(Gate.SCHEDULER_POP_FROM_BACKOFF_Q)
        self._backlog = IncrementalWork()
        self._n_arrivals = 0
        self._last_flush_tick = 0
        self._shares = NamespaceShares(namespace_share)
        #: The namespace of the pod that was popped last, until its cycle is charged.
        self._charged_namespace: str | None = None

    @property
    def has_backlog(self) -> bool:
        """Whether an event or the time has pods still to move."""
        return bool(self._backlog)

    def step(self) -> None:
        """Work off a bounded part of the backlog, about 1 ms."""
        self._backlog.step()

    def get(self, uid: str) -> QueuedPod | None:
        """Return the pod if the queue holds it, else None."""
        return self._pods.get(uid)

    def pods(self) -> Iterable[QueuedPod]:
        """Return a live view of all pods that the queue holds."""
        return self._pods.values()

    def depths(self) -> dict[str, int]:
        """Return the number of pods per `queue` label of `scheduler_pending_pods`."""
        return {
            SubQueue.ACTIVE.value: len(self._active),
            SubQueue.BACKOFF.value: len(self._rejected_backoff) + len(self._error_backoff),
            SubQueue.UNSCHEDULABLE.value: len(self._waiting.rejected),
            SubQueue.GATED.value: self._waiting.n_gated,
        }

    def add(self, pod: Pod, now_s: float) -> None:
        """Add a pending pod that the queue does not hold."""
        self._backlog.finish()
        self._add(pod, UNSCHEDULABLE_POD_ADD, now_s)

    def update(self, old: Pod, new: Pod, now_s: float) -> None:
        """Replace `old`, which is pending; move it if it waits for an event and the change may help; add if unknown."""
        self._backlog.finish()
        queued = self._pods.get(new.uid)
        if queued is None:
            self._add(new, UNSCHEDULABLE_POD_UPDATE, now_s)
            return
        self._take_out(queued)
        queued.pod = new
        self._put_in(queued)
        for action in pod_update_actions(old, new):
            event = ClusterEvent(Resource.UNSCHEDULABLE_POD, action)
            if queued.sub_queue.waits_for_event and self._hints.is_worth_requeuing(queued, event, old, new):
                self._requeue(queued, event.label, now_s)

    def activate_each(self, uids: Iterable[str], now_s: float) -> None:
        """Let each of these pods, which join the backlog, be tried without waiting any longer if PreEnqueue allows."""
        self._backlog.add(self._activating(list(uids), now_s))

    def wake_each(self, uids: Iterable[str], now_s: float) -> None:
        """Let each pod be tried once its backoff is over, if it waits for an event; they join the backlog."""
        self._backlog.add(self._waking(list(uids), now_s, (SubQueue.UNSCHEDULABLE, SubQueue.GATED)))

    def let_through_each(self, uids: Iterable[str], now_s: float) -> None:
        """
        Let each pod be tried once its backoff is over, if a PreEnqueue check kept it when a helpful event came.

        Without this it would hear only of events of the plugin that kept it.
        """
        self._backlog.add(self._waking(list(uids), now_s, (SubQueue.GATED,)))

    def join(self, uid: str, sibling_uid: str, now_s: float) -> None:
        """
        Let a new member of a group back off as the sibling does, if the group is waiting since an attempt failed.

        Source: scheduling_queue.go, addToPodGroupIfExists (kubernetes 1.37).
        """
        queued, sibling = self._pods.get(uid), self._pods.get(sibling_uid)
        if queued is None or sibling is None or queued.attempts or not sibling.attempts:
            return
        self._backlog.finish()
        if sibling.sub_queue is SubQueue.ACTIVE:
            return
        self._take_out(queued)
        self._count_rejection(queued, -1)
        queued.unschedulable_plugins |= sibling.unschedulable_plugins
        self._count_rejection(queued, +1)
        queued.unschedulable_count, queued.error_count = sibling.unschedulable_count, sibling.error_count
        queued.backoff_window_s = sibling.backoff_window_s
        self._put_in(queued)
        if queued.sub_queue is SubQueue.ACTIVE and now_s < queued.backoff_end_s:
            self._move(queued, SubQueue.BACKOFF, UNSCHEDULABLE_POD_ADD.label, now_s)

    def back_off(self, uid: str, now_s: float) -> None:
        """Count the last attempt of the pod, a rejection, as an error: backoffs grow with each of these in a row."""
        self._backlog.finish()
        queued = self._pods.get(uid)
        if queued is not None:
            self._remove(queued)
            queued.error_count = max(queued.error_count, queued.earlier_errors)
            self.put_back(queued, frozenset(), now_s)

    def delete(self, uid: str) -> None:
        """Remove the pod, which is gone or assigned, if the queue holds it."""
        self._backlog.finish()
        queued = self._pods.get(uid)
        if queued is not None:
            self._remove(queued)

    def pop(self, now_s: float) -> QueuedPod | None:
        """
        Remove and return the pod to try now; None if there is none, or while there is a backlog.

        Pods whose backoff is over become active first. If none is active, the rejected pod whose backoff ends
        first is popped early (gate SchedulerPopFromBackoffQ), but never a pod that failed with an error.
        """
        self._backlog.finish()
        self._backlog.add(self._completing_backoffs(now_s))
        if self._backlog:
            return None
        self._restore_priorities(now_s)
        queued = self._active.first()
        if queued is None:
            queued = self._rejected_backoff.first() if self._pops_early else None
            if queued is None:
                return None
            self.incoming[SubQueue.ACTIVE.value, POP_FROM_BACKOFF_Q] += 1
        self._charged_namespace = queued.pod.namespace
        return self._taken(queued)

    def charge(self, used_s: float, now_s: float) -> None:
        """Charge the time of the cycle to the namespace of the pod that was popped last."""
        namespace, self._charged_namespace = self._charged_namespace, None
        if namespace is not None:
            self._shares.charge(namespace, used_s, now_s)
            if self._shares.is_over(namespace, now_s):
                self._active.turn(namespace, is_behind=True)

    @property
    def n_namespaces_deprioritized(self) -> int:
        """Number of namespaces over their share when it was last looked at, once a minute at least."""
        return len(self._active.behind)

    def sweep(self, now_s: float) -> None:
        """Forget the namespaces that have used no time lately."""
        self._restore_priorities(now_s)
        self._shares.sweep(now_s)

    def take(self, uid: str) -> QueuedPod | None:
        """Remove and return a pod to try with its group; None if unknown, or if a PreEnqueue check keeps it."""
        self._backlog.finish()
        queued = self._pods.get(uid)
        if queued is None:
            return None
        if queued.sub_queue.waits_for_event:
            # It waits for an event, such as the end of the pods that are evicted for it.
            self._move(queued, SubQueue.ACTIVE, FORCE_ACTIVATE, queued.timestamp_s)
            if queued.gating_plugin:
                return None
        return self._taken(queued)

    def rank(self, uid: str, group_priority: int) -> None:
        """Order the pod, if the queue holds it, by this priority of its group from now on."""
        queued = self._pods.get(uid)
        if queued is not None and queued.priority != group_priority:
            self._backlog.finish()
            self._take_out(queued)
            queued.group_priority = group_priority
            self._put_in(queued)

    def can_pop(self) -> bool:
        """Return whether `pop` returns a pod, or has a backlog, without waiting for any backoff."""
        has_rejected = self._pops_early and len(self._rejected_backoff)
        return bool(self._backlog or len(self._active) or has_rejected)

    def put_back(self, queued: QueuedPod, unschedulable_plugins: frozenset[str], now_s: float) -> None:
        """
        Take back a popped pod whose attempt failed.

        The pod waits for an event that helps one of the plugins that rejected it. No plugin means an error, and a
        retry after backoff. If the pod was updated since the pop, set `queued.pod` before.
        """
        self._backlog.finish()
        queued.unschedulable_plugins = unschedulable_plugins
        queued.after_flush = queued.is_surplus = False
        if unschedulable_plugins:
            queued.unschedulable_count += 1
            queued.earlier_errors, queued.error_count = queued.error_count, 0
        else:
            queued.error_count += 1
        self._start_wait(queued, now_s)
        self._pods[queued.uid] = queued
        self._count_rejection(queued, +1)
        to = SubQueue.UNSCHEDULABLE if unschedulable_plugins else SubQueue.BACKOFF
        self._move(queued, to, SCHEDULE_ATTEMPT_FAILURE, now_s)

    def give_back(self, queued: QueuedPod) -> None:
        """Put a popped member back at its old place: its group is placed without it, and it is tried alone."""
        queued.is_surplus = True
        self._backlog.finish()
        queued.attempts -= 1
        queued.sub_queue = SubQueue.ACTIVE
        self._pods[queued.uid] = queued
        self._count_rejection(queued, +1)
        self._put_in(queued)

    def on_event(
        self,
        event: ClusterEvent | None,
        old: object,
        new: object,
        now_s: float,
        *,
        kept_out: Callable[[Pod], bool] | None = None,
    ) -> None:
        """
        Requeue the waiting pods that a change from `old` to `new` may help, with `kept_out` those that it selects.

        A change that is no event helps none. A pending pod's own update goes to `update`.
        """
        if event is not None and (plugins := self._hints.interested_plugins(event, old, new)):
            self._backlog.add(self._requeuing(plugins, event, old, new, now_s, kept_out))

    def flush(self, now_s: float) -> None:
        """Activate pods whose backoff is over; every 30 s requeue pods that were unschedulable for too long."""
        self._backlog.finish()
        self._backlog.add(self._flushing(now_s))

    def next_wake_s(self, now_s: float) -> float | None:
        """Return when `flush` next has a pod to move, at least `now_s`; None if no pod waits for time."""
        heads = (self._rejected_backoff.first(), self._error_backoff.first())
        wakes = [head.backoff_end_s for head in heads if head]
        if longest := self._waiting.rejected.first():
            tick = floor(self._timeout_s(longest) / UNSCHEDULABLE_FLUSH_PERIOD_S) + 1
            wakes.append(tick * UNSCHEDULABLE_FLUSH_PERIOD_S)
        return max(now_s, min(wakes)) if wakes else None

    def _activating(self, uids: Sequence[str], now_s: float) -> Iterator[None]:
        for uid in uids:
            queued = self._pods.get(uid)
            if queued is not None and queued.sub_queue is not SubQueue.ACTIVE:
                self._move(queued, SubQueue.ACTIVE, FORCE_ACTIVATE, now_s)
            yield

    def _waking(self, uids: Sequence[str], now_s: float, among: Container[SubQueue]) -> Iterator[None]:
        for uid in uids:
            queued = self._pods.get(uid)
            if queued is not None and queued.sub_queue in among:
                self._requeue(queued, ASSIGNED_POD_DELETE.label, now_s)
            yield

    def _timeout_s(self, queued: QueuedPod) -> float:
        return queued.timestamp_s + self._max_in_unschedulable_s

    def _restore_priorities(self, now_s: float) -> None:
        """O(namespaces behind): few if shares are large, as each has used its share of `BURST_S` in `MEMORY_S`."""
        for namespace in sorted(self._active.behind):
            if not self._shares.is_over(namespace, now_s):
                self._active.turn(namespace, is_behind=False)

    def _add(self, pod: Pod, event: ClusterEvent, now_s: float) -> None:
        queued = QueuedPod(pod, now_s, arrival=0)
        self._start_wait(queued, now_s)
        self._pods[pod.uid] = queued
        self._move(queued, SubQueue.ACTIVE, event.label, now_s)

    def _taken(self, queued: QueuedPod) -> QueuedPod:
        self._remove(queued)
        queued.attempts += 1
        queued.n_together = 1
        return queued

    def _remove(self, queued: QueuedPod) -> None:
        self._take_out(queued)
        queued.sub_queue = SubQueue.NONE
        self._count_rejection(queued, -1)
        del self._pods[queued.uid]

    def _put_in(self, queued: QueuedPod) -> None:
        if (pods := self._holder(queued)) is not None:
            pods.add(queued)

    def _take_out(self, queued: QueuedPod) -> None:
        """Take the pod out of its sub-queue; only until it is put in again may fields change that sort or index it."""
        if (pods := self._holder(queued)) is not None:
            pods.remove(queued)

    def _holder(self, queued: QueuedPod) -> ActivePods | OrderedPods | UnschedulablePods | None:
        match queued.sub_queue:
            case SubQueue.ACTIVE:
                return self._active
            case SubQueue.BACKOFF:
                return self._rejected_backoff if queued.unschedulable_plugins else self._error_backoff
            case SubQueue.UNSCHEDULABLE | SubQueue.GATED:
                return self._waiting
            case SubQueue.NONE:
                return None

    def _start_wait(self, queued: QueuedPod, now_s: float) -> None:
        self._n_arrivals += 1
        queued.arrival = self._n_arrivals
        queued.timestamp_s = now_s
        queued.backoff_window_s = self._backoff.window_s(queued)

    def _requeue(self, queued: QueuedPod, label: str, now_s: float) -> None:
        to = SubQueue.BACKOFF if now_s < queued.backoff_end_s else SubQueue.ACTIVE
        self._move(queued, to, label, now_s)

    def _requeuing(
        self,
        plugins: InterestedPlugins,
        event: ClusterEvent,
        old: object,
        new: object,
        now_s: float,
        kept_out: Callable[[Pod], bool] | None,
    ) -> Iterator[None]:
        changed = old if new is None else new
        own = self._pods.get(changed.uid) if isinstance(changed, Pod) else None
        for equivalents in self._waiting.classes(plugins):
            member = own if own is not None and self._waiting.contains(equivalents, own) else None
            for asked, pods in self._hints.questions(equivalents, member, event, old, new):
                helps = self._hints.is_worth_requeuing(asked, event, old, new)
                yield
                for queued in pods if helps else ():
                    if kept_out is None or kept_out(queued.pod):
                        self._requeue(queued, event.label, now_s)
                        yield

    def _flushing(self, now_s: float) -> Iterator[None]:
        yield from self._completing_backoffs(now_s)
        tick = floor(now_s / UNSCHEDULABLE_FLUSH_PERIOD_S)
        if tick == self._last_flush_tick:
            return
        self._last_flush_tick = tick
        rejected = self._waiting.rejected
        while (queued := rejected.first()) and self._timeout_s(queued) < now_s:
            self._requeue(queued, UNSCHEDULABLE_TIMEOUT, now_s)
            queued.after_flush = queued.sub_queue is not SubQueue.GATED
            yield

    def _completing_backoffs(self, now_s: float) -> Iterator[None]:
        for pods in (self._rejected_backoff, self._error_backoff):
            while (queued := pods.first()) and queued.backoff_end_s <= now_s:
                self._move(queued, SubQueue.ACTIVE, BACKOFF_COMPLETE, now_s)
                yield

    def _move(self, queued: QueuedPod, to: SubQueue, label: str, now_s: float) -> None:
        """Move `queued` to `to`, or to GATED if a PreEnqueue check fails."""
        origin = queued.sub_queue
        self._take_out(queued)
        # A pod from BACKOFF is not checked again: it could have been popped early, without a check.
        if to is not SubQueue.UNSCHEDULABLE and origin is not SubQueue.BACKOFF:
            self._run_pre_enqueue(queued)
            if queued.gating_plugin:
                to = SubQueue.GATED
        queued.sub_queue = to
        if to is SubQueue.ACTIVE and queued.initial_attempt_s is None:
            queued.initial_attempt_s = now_s
        self._put_in(queued)
        if not to.waits_for_event:
            self.incoming[to.value, label] += 1
        elif not origin.waits_for_event:
            self.incoming[SubQueue.UNSCHEDULABLE.value, label] += 1

    def _run_pre_enqueue(self, queued: QueuedPod) -> None:
        """Note the first plugin of the profile whose check the pod fails (runPreEnqueuePlugins)."""
        plugins: Sequence[PreEnqueuePlugin] = self._pre_enqueue.get(queued.profile, ())
        if known := queued.gating_plugin:
            # Most likely it still does.
            plugins = sorted(plugins, key=lambda plugin: plugin.name != known)
        plugin = next((each.name for each in plugins if not each.admits(queued.pod)), "")
        queued.gating_plugin = plugin
        if plugin and plugin not in queued.unschedulable_plugins:
            queued.unschedulable_plugins |= {plugin}
            self.unschedulable_by_plugin[plugin, queued.profile] += 1

    def _count_rejection(self, queued: QueuedPod, change: int) -> None:
        for plugin in queued.unschedulable_plugins:
            self.unschedulable_by_plugin[plugin, queued.profile] += change
