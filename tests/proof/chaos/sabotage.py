"""Schedulers with one guard removed each, which the suite has to tell from an intact one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from unittest import mock

import numpy as np

from scheduler.daemon.kube import changes, requests
from scheduler.daemon.kube.store import Store
from scheduler.daemon.loop.app import Scheduler
from scheduler.daemon.writes.binder import Binder
from scheduler.daemon.writes.sending import Doubt
from scheduler.engine.core.nominator import Nominator
from scheduler.engine.core.preemption import Preemptions
from scheduler.engine.core.unfit_pods import UnfitPods
from scheduler.engine.framework.events import ClusterEvent
from scheduler.engine.model.disruption_budgets import DisruptionBudget
from scheduler.engine.model.instructions import Instruction, ProceedWithEviction
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionDue, EvictionStep
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.queueing.queued_pod import QueuedPod
from scheduler.engine.state.arrays import Rows
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.node_table import NodeTable, Usage
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.proof.chaos.happenings import (
    AddBudget,
    AddNamespace,
    AddNode,
    AddPod,
    AddPriorityClass,
    Change,
    Remove,
    Script,
)
from tests.proof.chaos.instance import OURS
from tests.proof.chaos.kinds import Shape
from tests.proof.chaos.run import Outcome, replay, run
from tests.proof.chaos.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Sabotage:
    """A missing guard, the runs that notice it, and their verdict."""

    name: str
    #: The attribute that is replaced, and its replacement.
    guard: tuple[Any, str, Any]
    shape: Shape
    verdict: Verdict
    #: Seeds are tried from here on; one of the first few finds the missing guard.
    first_seed: int
    #: The run's happenings until 12 s, where the drawn ones seldom need the guard; else they are drawn.
    script: Script

    def played(self, seed: int) -> Outcome:
        """Return the run of the seed."""
        if self.script:
            return replay(seed, self.shape, self.script, until_s=12.0)
        return run(seed, self.shape)

    def committed(self) -> mock._patch[Any]:
        """Remove the guard for the duration of the block."""
        return mock.patch.object(*self.guard)


SABOTAGES: list[Sabotage] = []
_T = TypeVar("_T")


def _sabotage(
    owner: Any, attribute: str, shape: Shape, verdict: Verdict, first_seed: int = 0, script: Script = ()
) -> Callable[[_T], _T]:
    """Return a decorator by which a function, whose name says what is missing, replaces the attribute."""

    def enter(instead: _T) -> _T:
        name = str(getattr(instead, "__name__", "")).replace("_", " ")
        SABOTAGES.append(Sabotage(name, (owner, attribute, instead), shape, verdict, first_seed, script))
        return instead

    return enter


_WHOLE_BIND = requests.bind
_WHOLE_ON_EVENT = PodQueue.on_event
_WHOLE_COUNT_USAGE = NodeTable.count_usage
_WHOLE_ON_EVICTION_DUE = UnfitPods.on_eviction_due
_WHOLE_EVICT = Preemptions._evict


_BEGIN: Script = (
    (0.0, AddPriorityClass("low", 10)),
    (0.0, AddPriorityClass("middle", 100)),
    (0.0, AddPriorityClass("high", 1000)),
    (0.0, AddNamespace("red", "x")),
)
_FULL: Script = (
    *_BEGIN,
    (0.0, AddNode("n1", "2", "a")),
    (1.0, AddPod("red/low", "batch", OURS)),
    (1.0, AddPod("red/lower", "batch", OURS)),
)
_SLOW = Fault(action=Effect.DELAY, verb="delete", path=r"/pods/[^/]+$", delay_s=2.0)
#: A node is added between the condition and the deletion of the first victim.
_OTHER_ROOM: Script = (
    *_FULL,
    (3.0, Fault(action=Effect.DELAY, verb="patch", path=r"/pods/[^/]+/status$", delay_s=2.0, times=8)),
    (4.0, AddPod("red/critical", "critical", OURS)),
    (5.0, AddNode("n2", "4", "a")),
)
#: A user deletes the last victim while the first one is being deleted.
_ENDS_BY_ITSELF: Script = (
    *_FULL,
    (3.0, _SLOW),
    (4.0, AddPod("red/critical", "critical", OURS)),
    (5.0, Remove("Pod", "red/low", 30)),
    (5.0, Remove("Pod", "red/lower", 30)),
)
_DENIED: Script = (
    *_FULL,
    (3.0, Fault(action=Effect.RESPOND, verb="delete", path=r"/pods/[^/]+$", code=409, times=8)),
    (4.0, AddPod("red/critical", "critical", OURS)),
)
_NODE_GOES: Script = (
    *_FULL,
    (4.0, AddPod("red/critical", "critical", OURS)),
    (6.0, Remove("Node", "n1")),
)
_SMALL: Script = (
    *_BEGIN,
    (0.0, AddNode("n1", "1", "a")),
    (1.0, AddPod("red/low", "batch", OURS)),
    (3.0, AddPod("red/critical", "critical", OURS)),
)
#: Once the node has grown, a second pod needs the room of the victim of the first one, and is more important.
_NEEDED_BY_TWO: Script = (
    (5.1, AddPod("red/service", "service", OURS)),
    (6.0, Change("Node", "n1", {"status": {"allocatable": {"cpu": "2"}}}, "status")),
)
_WHILE_IT_IS_DELETED: Script = (*_SMALL, (5.0, _SLOW), *_NEEDED_BY_TWO)
#: The watch of each instance stalls before it shows that the victim ends.
_WHILE_ITS_END_IS_NOT_SHOWN: Script = (
    *_SMALL,
    (5.0, Fault(action=Effect.STALL_STREAM, kind="pods", after_events=7, delay_s=10.0, times=2)),
    *_NEEDED_BY_TWO,
)
#: Without the budget the other node has the less important victim.
_PROTECTED: Script = (
    *_BEGIN,
    (0.0, AddBudget("red/batch", 0)),
    (0.0, AddNode("n1", "1", "a")),
    (0.0, AddNode("n2", "1", "a")),
    (1.0, AddPod("red/low", "batch", OURS)),
    (1.0, AddPod("red/service", "service", OURS)),
    (4.0, AddPod("red/critical", "lone critical", OURS)),
)


@_sabotage(Binder, "_settle", Shape.ALONE, Verdict.STRANGE, 2)
async def lost_answers_are_not_settled(_self: Binder, pod: Pod, _node_name: str, _doubt: Doubt) -> str:
    """Take a bind without an answer for failed, without reading the pod."""
    return f'pods "{pod.name}" not found'


@_sabotage(ClusterState, "assume", Shape.ALONE, Verdict.RULE)
def nothing_is_assumed(_self: ClusterState, _pod: Pod, _node_name: str) -> None:
    """Count a decision only when the watch shows it."""


@_sabotage(Scheduler, "_leads", Shape.ELECTED, Verdict.LEASE)
def the_lease_is_no_matter(self: Scheduler) -> bool:
    """Let every instance with full caches bind."""
    self._caught_up = True
    return True


@_sabotage(requests, "bind", Shape.ALONE, Verdict.STRANGE, 28)
def binds_name_no_uid(*, uid: str, **settings: Any) -> requests.Request:
    """Bind any pod of the name."""
    assert uid
    return _WHOLE_BIND(uid="", **settings)


@_sabotage(PodQueue, "on_event", Shape.ALONE, Verdict.LEFT, 9)
def departures_wake_nobody(
    self: PodQueue, event: ClusterEvent, old: object, new: object, now_s: float, **only: Any
) -> None:
    """Drop events of deletions."""
    if new is not None:
        _WHOLE_ON_EVENT(self, event, old, new, now_s, **only)


@_sabotage(PodQueue, "put_back", Shape.ALONE, Verdict.LEFT)
def failures_are_forgotten(
    _self: PodQueue, _queued: QueuedPod, _unschedulable_plugins: frozenset[str], _now_s: float
) -> None:
    """Drop a pod that found no node."""


@_sabotage(Store, "finish_list", Shape.ALONE, Verdict.CACHE, 2)
def lists_end_nothing(self: Store[Any], _changes: list[changes.Change[Any]]) -> None:
    """Keep objects that a relist no longer has."""
    for shard in self._shards:
        shard.unlisted = {}


@_sabotage(NodeTable, "count_usage", Shape.ALONE, Verdict.CRASH)
def ports_stay_taken(self: NodeTable, row: int, usage: Usage, delta: int) -> None:
    """Never free host ports."""
    ports = usage.host_ports if delta > 0 else ()
    _WHOLE_COUNT_USAGE(self, row, Usage(usage.requested, usage.non_zero, ports), delta)


@_sabotage(UnfitPods, "on_eviction_due", Shape.RANKED, Verdict.NEEDLESS, script=_ENDS_BY_ITSELF)
def no_check_before_a_condition(self: UnfitPods, due: EvictionDue) -> list[Instruction]:
    """Write the condition of every victim that was chosen."""
    if due.step is EvictionStep.CONDITION:
        return [ProceedWithEviction(due.preemptor_uid, due.victim_uid)]
    return _WHOLE_ON_EVICTION_DUE(self, due)


@_sabotage(UnfitPods, "on_eviction_due", Shape.RANKED, Verdict.NEEDLESS, script=_OTHER_ROOM)
def no_check_before_a_deletion(self: UnfitPods, due: EvictionDue) -> list[Instruction]:
    """Delete every victim that still runs, for a pod that is still pending."""
    return _WHOLE_ON_EVICTION_DUE(self, replace(due, step=EvictionStep.CONDITION))


@_sabotage(PodQueue, "back_off", Shape.RANKED, Verdict.EARLY, script=_DENIED)
def no_pause_after_a_deletion_that_failed(self: PodQueue, uid: str, now_s: float) -> None:
    """Try a pod at once."""
    self.activate_each((uid,), now_s)


@_sabotage(Nominator, "leave_node", Shape.RANKED, Verdict.STALE, script=_NODE_GOES)
def nominations_outlive_their_node(_self: Nominator, _node_name: str, _now_s: float) -> list[Pod]:
    return []


@_sabotage(Preemptions, "_evict", Shape.RANKED, Verdict.EARLY, script=_WHILE_ITS_END_IS_NOT_SHOWN)
def ends_of_victims_are_not_awaited(
    self: Preemptions, running: Any, victims: list[Pod]
) -> Iterator[Instruction]:
    """Try a pod once its evictions are answered, whatever watches show."""
    evictions = list(_WHOLE_EVICT(self, running, victims))
    running.unseen.clear()
    return iter(evictions)


@_sabotage(Preemptions, "_evict", Shape.RANKED, Verdict.AGAIN, script=_WHILE_IT_IS_DELETED)
def victims_are_evicted_for_each_preemptor(
    self: Preemptions, running: Any, victims: list[Pod]
) -> Iterator[Instruction]:
    """Evict a pod again that is being evicted for another one."""
    for victim in victims:
        self._records.at(victim.uid).evicted_by = ""
    return _WHOLE_EVICT(self, running, victims)


@_sabotage(Preemptions, "is_terminating", Shape.RANKED, Verdict.AGAIN, script=_WHILE_ITS_END_IS_NOT_SHOWN)
def victims_that_the_server_deletes_are_evicted_again(_self: Preemptions, victim: Pod) -> bool:
    """Forget what the API server deletes until a watch shows it."""
    return victim.terminating


@_sabotage(ClusterView, "label_sets_of", Shape.RANKED, Verdict.VICTIM, script=_PROTECTED)
def budgets_are_no_matter(_self: ClusterView, _budget: DisruptionBudget) -> Rows:
    """Find no label set that a PodDisruptionBudget protects."""
    return np.zeros(0, dtype=np.intp)
