"""The members of groups that exist, by group; a cluster without groups has no entry here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Final

from scheduler.engine.model.group_agreement import disagreement, of_newest_template
from scheduler.engine.model.group_topology import ANYWHERE, Topology
from scheduler.engine.model.pod_groups import GroupKey, GroupKind, PodGroup
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.rule_guard import not_for_rules, refuse_rule
from scheduler.engine.state.sparse_dicts import discard_member

_NONE: Final[Mapping[str, Pod]] = {}


class PodGroups:
    """
    Groups and their members. Writers: ClusterState for the placed members, the machine for all else.

    An assumed pod is both pending and placed until a watch shows it bound.
    """

    def __init__(self) -> None:
        #: PodGroup objects.
        self._objects: dict[GroupKey, PodGroup] = {}
        #: Groups that have, or had, members of another priority than their own.
        self._unequal: set[GroupKey] = set()
        #: Groups that are evicted as a whole: a member was evicted, and others still run.
        self._being_evicted: set[GroupKey] = set()
        #: The kinds of groups that the cluster has; without its kind, a label of a pod means nothing.
        self._served: set[GroupKind] = {GroupKind.OWN, GroupKind.KUBERNETES}
        self._pending: dict[GroupKey, dict[str, Pod]] = {}
        #: Groups that have, or had, pending members that describe the group differently.
        self._unlike: set[GroupKey] = set()
        #: Members on nodes that are not terminating.
        self._placed: dict[GroupKey, dict[str, Pod]] = {}
        #: Members on nodes that are terminating.
        self._ending: dict[GroupKey, dict[str, Pod]] = {}
        #: The UIDs of the members that are placed or could be.
        self._ready: dict[GroupKey, set[str]] = {}
        #: The UIDs of the pending members with scheduling gates.
        self._gated: dict[GroupKey, set[str]] = {}
        #: Group that was placed once -> the most members that it needed then: a member that comes back beside others
        #: need not wait for members that have finished or were replaced since.
        self._whole: dict[GroupKey, int] = {}
        #: By group and part (empty for none): how many members have finished while the group had others.
        self._finished: dict[GroupKey, Counter[str]] = {}
        #: Groups whose members were evicted to be placed again, until they are.
        self._released: set[GroupKey] = set()

    def key_of(self, pod: Pod) -> GroupKey | None:
        """Return the group with which the pod is placed, None for a pod that is placed on its own."""
        group = pod.group
        if group is None or group.key.kind not in self._served:
            return None
        known = self._objects.get(group.key)
        if known is None or known.min_count > 1 or known.topology or group.topology or group.part:
            return group.key
        return None

    def without_members(self) -> PodGroups:
        """Return a copy of what is known of the groups, without their members."""
        copy = PodGroups()
        copy._objects, copy._served = dict(self._objects), set(self._served)
        copy._whole, copy._released = dict(self._whole), set(self._released)
        copy._finished = {key: counts.copy() for key, counts in self._finished.items()}
        return copy

    @not_for_rules
    def serve(self, kind: GroupKind, *, is_served: bool = True) -> None:
        """Note that the cluster has this kind of groups, or has it no more; Kubernetes' own counts as there."""
        if is_served:
            self._served.add(kind)
        elif kind is GroupKind.COSCHEDULING:
            self._served.discard(kind)

    @not_for_rules
    def upsert(self, group: PodGroup) -> None:
        """Add the PodGroup or update it."""
        self._served.add(group.key.kind)
        self._objects[group.key] = group
        self._note_priorities(group.key)
        if group.was_scheduled and group.key not in self._released:
            self._whole.setdefault(group.key, group.min_count)

    @not_for_rules
    def remove(self, key: GroupKey) -> None:
        """Forget the PodGroup; its members stay."""
        self._objects.pop(key, None)
        self._note_priorities(key)
        self._drop_if_empty(key)

    def _note_priorities(self, key: GroupKey) -> None:
        self._unequal.discard(key)
        for pod in self._on_nodes(key):
            self._note_priority(key, pod)

    def _note_priority(self, key: GroupKey, pod: Pod) -> None:
        group = self._objects.get(key)
        if group is not None and group.victim_priority not in (None, pod.priority):
            self._unequal.add(key)

    def _on_nodes(self, key: GroupKey) -> Iterator[Pod]:
        """Yield the members on nodes, whether they are terminating or not."""
        return chain(self.placed(key), self._ending.get(key, _NONE).values())

    def get(self, key: GroupKey) -> PodGroup | None:
        """
        Return the group: its object, or what its members say; None if it is not known how many it needs.

        Its topology is what its members say, if the object asks for none. The pending members count, for a workload
        with several templates only those of the newest; without pending members, the members on nodes.
        """
        known = self._objects.get(key)
        if key.kind is not GroupKind.OWN:
            if known is None or known.topology:
                return known
            topology = _topology(self._describing(key))
            return replace(known, topology=topology) if topology else known
        pods = self._describing(key)
        counts = [pod.group.min_count for pod in pods if pod.group is not None and not pod.group.problem]
        return PodGroup(key, max(counts), _topology(pods)) if counts else None

    def _describing(self, key: GroupKey) -> Collection[Pod]:
        """Return members that describe the group as all do. O(1) while pending ones agree, otherwise O(members)."""
        pending = self._pending.get(key)
        if not pending:
            return self._placed.get(key, _NONE).values()
        if key not in self._unlike:
            return [next(iter(pending.values()))]
        return of_newest_template(pending.values())

    def disagreement(self, key: GroupKey) -> str:
        """Return the setting of the group on which its members without a node differ; empty if they agree."""
        placed = self._placed.get(key, _NONE)
        waiting = [pod for pod in self.pending(key) if pod.uid not in placed and not pod.terminating]
        problem = disagreement(waiting)
        return problem and f"pod group {key.text}: {problem}"

    # Preemption.

    def preemptor_priority(self, pod: Pod) -> int:
        """Return the priority with which the pod evicts others: its PodGroup's own, else that of the pod."""
        group = None if pod.group is None else self._objects.get(pod.group.key)
        return pod.priority if group is None or group.priority is None else group.priority

    def victim_priority(self, pod: Pod) -> int:
        """Return the priority as which the pod is evicted: by pods of a higher one alone."""
        if pod.group is None or pod.group.key not in self._unequal:
            return pod.priority
        priority = self._objects[pod.group.key].victim_priority
        return pod.priority if priority is None else priority

    def is_disrupted_whole(self, pod: Pod) -> bool:
        """Return whether the pod is evicted with all members of its group, or stays with them."""
        group = None if pod.group is None else self._objects.get(pod.group.key)
        return group is not None and group.is_disrupted_whole

    def of_unequal_priority(self) -> Iterator[Pod]:
        """Yield the members on nodes of groups with members of another priority than the group's."""
        return (pod for key in self._unequal for pod in self._on_nodes(key))

    def evicted_otherwise(self, preemptor: Pod) -> Iterator[Pod]:
        """Yield members on nodes that go together, not by their own priority, or for a sibling. O(PodGroups)."""
        keys = {key for key, group in self._objects.items() if group.is_disrupted_whole} | self._unequal
        if preemptor.group is not None:
            keys.add(preemptor.group.key)
        return (pod for key in keys for pod in self._on_nodes(key))

    @not_for_rules
    def note_evicted(self, pod: Pod) -> None:
        """Note that a member was evicted: if the group is disrupted as a whole, the others have to follow."""
        if pod.group is not None and self.is_disrupted_whole(pod) and pod.group.key in self._placed:
            self._being_evicted.add(pod.group.key)

    def is_being_evicted(self, key: GroupKey) -> bool:
        """Return whether a member of the group, which is disrupted as a whole, was evicted already."""
        return key in self._being_evicted

    def keys(self) -> Iterable[GroupKey]:
        """Return the groups that have a pending member."""
        return self._pending.keys()

    def listed(self) -> list[GroupKey]:
        """Return the groups about which anything is kept. O(groups)."""
        return list({**self._objects, **self._pending, **self._placed, **self._whole})

    def has_placed(self, pod: Pod) -> bool:
        """Return whether the pod counts as a member on a node."""
        return pod.group is not None and pod.uid in self._placed.get(pod.group.key, _NONE)

    def has_ending(self, pod: Pod) -> bool:
        """Return whether the pod counts as a member on a node that is terminating."""
        return pod.group is not None and pod.uid in self._ending.get(pod.group.key, _NONE)

    def ending(self) -> Iterator[Pod]:
        """Yield the members on nodes that are terminating, of all groups."""
        return chain.from_iterable(members.values() for members in self._ending.values())

    def pending(self, key: GroupKey) -> Iterable[Pod]:
        """Return the members that no watch has shown bound, in the order in which they came."""
        return self._pending.get(key, _NONE).values()

    def placed(self, key: GroupKey) -> Iterable[Pod]:
        """Return the members on nodes that are not terminating."""
        return self._placed.get(key, _NONE).values()

    def n_placed(self, key: GroupKey) -> int:
        """Return the number of members on nodes that are not terminating. O(1)."""
        return len(self._placed.get(key, _NONE))

    def minimum_bound(self, key: GroupKey) -> int:
        """Return how many members the group needs if watches show as many on nodes, else 0. O(1) while it has fewer."""
        placed = self._placed.get(key, _NONE)
        first = next(iter(placed.values()), None)
        group = None if first is None else self.known_by(first, key)
        if group is None or len(placed) < group.min_count:
            return 0
        n_bound = len(placed) - len(placed.keys() & self._pending.get(key, _NONE).keys())
        return group.min_count if n_bound >= group.min_count else 0

    def n_ready(self, key: GroupKey) -> int:
        """Return the number of members that are placed or could be."""
        return len(self._ready.get(key, ()))

    def placed_with(self, key: GroupKey) -> int:
        """Return how many members the group needed when it was placed, at most; 0 if it never was."""
        return self._whole.get(key, 0)

    def is_whole(self, key: GroupKey, min_count: int) -> bool:
        """Return whether the group was placed once when it needed at least so many members."""
        return self._whole.get(key, 0) >= min_count

    @not_for_rules
    def note_whole(self, key: GroupKey, min_count: int) -> None:
        """Note that the group, which needs so many members, is placed: from now on, it was placed once."""
        self._whole[key] = max(min_count, self._whole.get(key, 0))
        self._released.discard(key)

    @not_for_rules
    def note_left(self, key: GroupKey) -> None:
        """Note that no member is left on nodes: unless some have finished, the group is placed as a new one."""
        known = self._objects.get(key)
        if key not in self._finished and (known is None or not known.was_scheduled):
            self._whole.pop(key, None)

    @not_for_rules
    def note_finished(self, pod: Pod) -> None:
        """Note that a member on a node has finished, before it leaves: its group and its part do not wait for it."""
        if pod.group is not None and self.has_placed(pod):
            part = "" if pod.group.part is None else pod.group.part.name
            self._finished.setdefault(pod.group.key, Counter())[part] += 1

    def n_finished(self, key: GroupKey, part: str) -> int:
        """Return how many members of the part have finished."""
        counts = self._finished.get(key)
        return 0 if counts is None else counts[part]

    def n_missing(self, group: PodGroup) -> int:
        """
        Return how many members still have to find places at once; 0 if the group has enough on nodes.

        Members that finished do not come back. In a group that was placed once, nor do replaced ones while others are
        on nodes: as many as exist are placed.
        """
        key, n_running = group.key, self.n_placed(group.key)
        n_missing = group.min_count - n_running
        if self.is_whole(key, group.min_count) and (n_running or group.was_scheduled):
            n_missing = min(n_missing, self.n_ready(key) - n_running)
        elif not n_running and key in self._finished:
            n_missing -= self._finished[key].total()
        return max(0, n_missing)

    @not_for_rules
    def release(self, key: GroupKey) -> None:
        """Note that the group is to be placed again, with as many members as it needs."""
        self._whole.pop(key, None)
        self._released.add(key)

    def is_released(self, key: GroupKey) -> bool:
        """Return whether the group is to be placed again."""
        return key in self._released

    @contextmanager
    def with_notes_kept(self, pod: Pod) -> Iterator[None]:
        """Keep the notes on the pod's group though its last member leaves within the block."""
        notes = (self._released, self._being_evicted)
        key = None if pod.group is None else pod.group.key
        kept = [keys for keys in notes if key in keys]
        finished = None if key is None else self._finished.get(key)
        min_count = None if key is None else self._whole.get(key)
        yield
        if key is not None:
            if min_count is not None:
                self._whole[key] = min_count
            if finished is not None:
                self._finished[key] = finished
            for keys in kept:
                keys.add(key)

    def is_complete(self, pod: Pod) -> bool:
        """Return whether as many members exist as the pod's group needs; True for a pod without a group."""
        if pod.group is None:
            return True
        key = self.key_of(pod)
        if key is None:
            return True
        group = self.known_by(pod, key)
        if group is None or pod.group.problem or self.is_held_by_gate(key):
            return False
        return self.n_ready(key) - self.n_placed(key) >= self.n_missing(group)

    def is_held_by_gate(self, key: GroupKey) -> bool:
        """
        Return whether the group waits since a member has scheduling gates.

        Source: scheduling_queue.go, runPreEnqueuePlugins (kubernetes 1.37, which has v1beta1).
        """
        known = self._objects.get(key)
        return known is not None and known.api_version == "v1beta1" and key in self._gated

    def known_by(self, pod: Pod, key: GroupKey) -> PodGroup | None:
        """Return what `get` returns without its members' topology; this member describes it if members do. O(1)."""
        if key.kind is GroupKind.OWN and pod.group is not None:
            return PodGroup(key, pod.group.min_count)
        return self._objects.get(key)

    def add_pending(self, pod: Pod) -> None:
        """Add or update a member that is not bound."""
        if pod.group is not None:
            refuse_rule("add_pending")
            members = self._pending.setdefault(pod.group.key, {})
            other = next((member for member in members.values() if member.uid != pod.uid), None)
            if other is not None and _described_by(other) != _described_by(pod):
                self._unlike.add(pod.group.key)
            members[pod.uid] = pod
            self._note_ready(pod.group.key, pod.uid)

    def remove_pending(self, pod: Pod) -> None:
        """Forget a member that is bound or gone."""
        if pod.group is not None:
            refuse_rule("remove_pending")
            self._discard(self._pending, pod.group.key, pod.uid)

    def place(self, pod: Pod) -> None:
        """Count a member that came to a node."""
        if pod.group is not None:
            refuse_rule("place")
            members = self._ending if pod.terminating else self._placed
            members.setdefault(pod.group.key, {})[pod.uid] = pod
            self._note_priority(pod.group.key, pod)
            self._note_ready(pod.group.key, pod.uid)

    def displace(self, pod: Pod) -> None:
        """Count out a member that left its node."""
        if pod.group is not None:
            refuse_rule("displace")
            self._discard(self._ending if pod.terminating else self._placed, pod.group.key, pod.uid)

    def _discard(self, members: dict[GroupKey, dict[str, Pod]], key: GroupKey, uid: str) -> None:
        of_group = members.get(key)
        if of_group is not None:
            of_group.pop(uid, None)
            if not of_group:
                del members[key]
                if members is self._placed:
                    self._being_evicted.discard(key)
                elif members is self._pending:
                    self._unlike.discard(key)
        self._note_ready(key, uid)
        self._drop_if_empty(key)

    def _note_ready(self, key: GroupKey, uid: str) -> None:
        pending = self._pending.get(key, _NONE).get(uid)
        is_ready = uid in self._placed.get(key, _NONE) or (pending is not None and _is_ready(pending))
        _note(self._ready, key, uid, is_in=is_ready)
        _note(self._gated, key, uid, is_in=pending is not None and bool(pending.gates))

    def _drop_if_empty(self, key: GroupKey) -> None:
        if key not in self._pending and key not in self._placed and key not in self._objects:
            self._whole.pop(key, None)
            self._released.discard(key)
            self._finished.pop(key, None)


def _note(sets: dict[GroupKey, set[str]], key: GroupKey, uid: str, *, is_in: bool) -> None:
    """Let the UID be in the group's set, or not; an empty set has no entry."""
    if is_in:
        sets.setdefault(key, set()).add(uid)
    elif key in sets:
        discard_member(sets, key, uid)


def _described_by(pod: Pod) -> tuple[int, Topology] | None:
    return None if pod.group is None else (pod.group.min_count, pod.group.topology)


def _topology(pods: Iterable[Pod]) -> Topology:
    """Return the levels of the first member that names any; members agree on them."""
    topologies = (pod.group.topology for pod in pods if pod.group is not None)
    return next(filter(None, topologies), ANYWHERE)


def _is_ready(pod: Pod) -> bool:
    return not pod.gates and not pod.terminating
