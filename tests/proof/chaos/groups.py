"""Groups in a run: their members, what one decision leaves of them, and which are left over."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.asking import NO_SCORES, filled, put
from tests.proof.chaos.journal import Decided, Journal, is_terminal, node_of
from tests.proof.chaos.verdicts import Verdict, Wrong
from tests.reference.cluster import Cluster as Reference


def member_labels(group: str, min_count: int) -> dict[str, str]:
    """Return the labels of a member; none without a group."""
    return {GROUP: group, MIN_COUNT: str(min_count)} if group else {}


def group_of(pod: JsonObject) -> str:
    """Return `namespace/name` of the pod's group; empty for none."""
    meta = pod["metadata"]
    name = (meta.get("labels") or {}).get(GROUP, "")
    return f"{meta['namespace']}/{name}" if name else ""


def is_over(pod: JsonObject) -> bool:
    """Return whether the pod has ended, or is ending."""
    return is_terminal(pod) or "deletionTimestamp" in pod["metadata"]


def is_ready(pod: JsonObject, scheduler_names: frozenset[str]) -> bool:
    """Return whether the pod is ours and could be placed now."""
    spec = pod["spec"]
    waits = not node_of(pod) and not is_over(pod) and not spec.get("schedulingGates")
    return waits and spec["schedulerName"] in scheduler_names


class Members:
    """
    The members of groups that one life of an instance was told to be on nodes, by watches and answers to binds.

    Once none is left, and none has ended on its own, the group is placed as one that never was.
    """

    def __init__(self) -> None:
        #: By UID.
        self._group_of: dict[str, str] = {}
        #: The UIDs of those on nodes, and of those that are on their way or failed to come.
        self._bound: set[str] = set()
        self._decided: set[str] = set()
        #: By group, the most on nodes at one moment.
        self._most: dict[str, int] = {}
        self._finished: set[str] = set()
        #: By group, how many members have finished on nodes: a group waits for so many fewer.
        self._n_finished: Counter[str] = Counter()

    def see(self, pod: Pod) -> None:
        """Note the pod as a watch shows it."""
        group = None if pod.group is None or pod.terminating or pod.is_terminal else pod.group.key.text
        if group != self._group_of.get(pod.uid):
            self._end(pod.uid, is_finished=pod.phase == "Succeeded")
        if group is not None:
            self._group_of[pod.uid] = group
            if pod.node_name:
                self.note_bound(pod.uid)

    def see_deleted(self, uid: str) -> None:
        """Note that the pod is gone; without being asked to end before, it has finished."""
        self._end(uid, is_finished=True)

    def note_decided(self, uid: str) -> None:
        """Note that a node was chosen for the pod."""
        self._decided.add(uid)

    def note_bound(self, uid: str) -> None:
        """Note that the pod is on a node, if it is a member."""
        if (group := self._group_of.get(uid)) is not None:
            self._bound.add(uid)
            n_bound = sum(self._group_of[one] == group for one in self._bound)
            self._most[group] = max(n_bound, self._most.get(group, 0))

    def most_bound(self, group: str) -> int:
        """Return the most members of the group that were on nodes at one moment."""
        return self._most.get(group, 0)

    def n_finished(self, group: str) -> int:
        """Return how many members of the group have finished on nodes."""
        return self._n_finished[group]

    def _end(self, uid: str, *, is_finished: bool) -> None:
        group = self._group_of.pop(uid, None)
        if is_finished and group is not None and uid in self._bound:
            self._n_finished[group] += 1
        self._bound.discard(uid)
        if group is None:
            return
        if is_finished:
            self._finished.add(group)
        elif group not in self._finished and not any(
            self._group_of.get(one) == group for one in self._bound | self._decided
        ):
            self._most.pop(group, None)


def as_decided(decided: Decided, pod: Pod, groups: PodGroups, members: Members) -> Decided:
    """Return the decision with what it leaves of the pod's group, if the pod has one."""
    group = None if pod.group is None else groups.get(pod.group.key)
    if group is None:
        return decided
    name = group.key.text
    n_placed = sum(1 for _ in groups.placed(group.key)) + members.n_finished(name)
    return replace(
        decided,
        group=name,
        n_placed=n_placed,
        min_count=group.min_count,
        most_bound=members.most_bound(name),
    )


def placed_in_part(journal: Journal) -> Iterator[Wrong]:
    """
    Yield decisions after which fewer members have places, or have finished, than the group needs.

    One that once had as many on nodes is placed as it comes.
    """
    for one in journal.decided:
        if max(one.n_placed, one.most_bound) < one.min_count:
            text = f"{one.by} at {one.at_s:.3f}: {one.n_placed} of {one.group}, which needs {one.min_count}"
            yield Wrong(Verdict.HALF, text, one.at_s)


def seconds_in_part(journal: Journal, group: str, min_count: int) -> float:
    """Return the seconds from the first bind of a member to the last that the group needs."""
    bound_s = [
        one.at_s for one in journal.written if one.bound_node and one.obj and group_of(one.obj) == group
    ]
    return bound_s[min_count - 1] - bound_s[0]


def left_groups(objects: Mapping[str, list[JsonObject]], scheduler_names: frozenset[str]) -> Iterator[str]:
    """Yield the groups with members that wait although the reference finds places for as many as they need."""
    members = defaultdict(list)
    for pod in objects["Pod"]:
        if (key := group_of(pod)) and not is_over(pod):
            members[key].append(pod)
    reference = filled(objects)
    for key, pods in members.items():
        waiting = [pod for pod in pods if is_ready(pod, scheduler_names)]
        n_running = sum(bool(node_of(pod)) for pod in pods)
        n_needed = max(1, max(int(pod["metadata"]["labels"][MIN_COUNT]) for pod in pods) - n_running)
        if waiting and len(waiting) >= n_needed:
            places = _places(reference, waiting, n_needed)
            if places:
                yield f"{len(waiting)} of {key}, besides {n_running} on nodes, though {places} would take them"


def _places(reference: Reference, waiting: list[JsonObject], n_needed: int) -> list[str]:
    """Return nodes that take so many of the pods, one after the other; empty if no simple order finds any."""
    for order in (waiting, waiting[::-1]):
        for first in reference.evaluate(order[0], NO_SCORES).get("feasible", ()):
            places = _places_beside(reference, order, first)
            for pod in order:
                put(reference, "Pod", pod)
            if len(places) >= n_needed:
                return places
    return []


def _places_beside(reference: Reference, pods: list[JsonObject], first: str) -> list[str]:
    """Place the first pod on that node, and each other that fits on the first node that takes it."""
    places: list[str] = []
    for pod in pods:
        feasible = reference.evaluate(pod, NO_SCORES).get("feasible") if places else [first]
        if feasible:
            places.append(feasible[0])
            put(reference, "Pod", {**pod, "spec": {**pod["spec"], "nodeName": feasible[0]}})
    return places
