"""The members of a group as the search for their places sees them: by kind, and by which kinds need each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.engine.core.group_devices import claim_forms, is_first_fit_best
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod, PodSpec
from scheduler.engine.model.requests import filter_request
from scheduler.engine.model.terms import usable
from scheduler.engine.state.batches import Pieces, batches
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.matching import PodMatcher, incoming_matcher
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.engine.syntax.selectors import Selector

#: Most pairs of kinds that are compared: whether one needs the other.
_MOST_COMPARED: Final = 100_000


@dataclass(slots=True, eq=False)
class MemberKind:
    """
    Members between which no plugin tells a difference, in order of placing: the first `n_placed` have a place.

    `needs`: selects the pods that all required affinity terms select; None without terms. `keys`: the topology
    keys of these terms. `part`: the name of their part of the group, if it has parts.
    """

    pods: list[Pod]
    needs: PodMatcher | None
    keys: tuple[str, ...]
    part: str
    n_placed: int = 0

    @property
    def first(self) -> Pod:
        """Return one of the members, which stands for all."""
        return self.pods[0]

    @property
    def left(self) -> list[Pod]:
        """Return the members without a place."""
        return self.pods[self.n_placed :]


@dataclass(frozen=True, slots=True)
class Component:
    """Kinds that have to be near each other: in one domain of the topology key, empty for kinds that need not."""

    kinds: tuple[MemberKind, ...]
    key: str

    @property
    def n_pods(self) -> int:
        """Return the number of members."""
        return sum(len(kind.pods) for kind in self.kinds)


def n_needed(groups: PodGroups, key: GroupKey) -> int:
    """Return how many members have to be placed; 1 if enough run, or if it is not known how many are needed."""
    group = groups.get(key)
    return 1 if group is None else max(1, groups.n_missing(group))


def has_minimum(groups: PodGroups, key: GroupKey) -> bool:
    """Return whether as many members are on nodes as the group needs: any other member is a pod like any other."""
    group = groups.get(key)
    return group is not None and groups.n_placed(key) >= group.min_count


def waiting_members(state: ClusterState, key: GroupKey) -> list[Pod]:
    """Return the pending members that a cycle of the group would place; none before it is known what it needs."""
    if state.groups.get(key) is None:
        return []
    pending = state.groups.pending(key)
    return [pod for pod in pending if not (pod.gates or pod.terminating or pod.uid in state.placed)]


def kinds_of(members: Sequence[Pod], view: ClusterView) -> Pieces[list[MemberKind]]:
    """Return the kinds, first the kind that takes the largest share of the cluster."""
    read_keys = set(_label_keys(members))
    by_identity: dict[object, list[Pod]] = {}
    for pods in batches(members):
        for pod in pods:
            by_identity.setdefault(_identity(pod, read_keys, view), []).append(pod)
        yield
    kinds = [_kind(pods) for pods in by_identity.values()]
    return sorted(kinds, key=lambda kind: -_share(kind.first, view))


def components_of(kinds: Sequence[MemberKind], view: ClusterView) -> Pieces[list[Component]]:
    """
    Return the components, the largest first. Of very many kinds, each of the last has its own.

    Two kinds are in one component if the required affinity of one selects pods of the other; its key is that of the
    first such term.
    """
    components: list[Component] = []
    left, n_compared = list(kinds), 0
    while left:
        near, key, left = [left[0]], "", left[1:]
        for kind in near:
            apart: list[MemberKind] = []
            for other in left:
                shared = ""
                if (kind.needs is not None or other.needs is not None) and n_compared < _MOST_COMPARED:
                    n_compared += 1
                    shared = _shared_key(kind, other, view)
                    yield
                (near if shared else apart).append(other)
                key = key or shared
            left = apart
            key = key or _shared_key(kind, kind, view)
        components.append(Component(tuple(near), key))
    return sorted(components, key=lambda component: (not component.key, -component.n_pods))


def shared_key(members: Sequence[Pod], view: ClusterView) -> Pieces[str]:
    """Return the topology key of the component of all members; empty if there are several, or it has none."""
    kinds = yield from kinds_of(members, view)
    components = yield from components_of(kinds, view)
    return components[0].key if len(components) == 1 else ""


def part_of(pod: Pod) -> str:
    """Return the name of the pod's part of its group; empty if it names none."""
    return "" if pod.group is None or pod.group.part is None else pod.group.part.name


def is_selected(needs: PodMatcher | None, pod: Pod, view: ClusterView) -> bool:
    """Return whether the matcher selects the pod."""
    return needs is not None and view.selects(needs, pod)


def has_closed_form(kind: MemberKind, view: ClusterView) -> bool:
    """
    Return whether as many pods of a kind find a place as there can be, in whatever order the nodes are taken.

    True within one domain of their required affinity if at most one other topology key keeps them apart, no volume
    tells nodes apart, and it does not matter which devices they get.
    """
    spec = kind.first.spec
    apart = {
        term.topology_key
        for term in usable(spec.affinity.required_anti)
        if is_selected(incoming_matcher((term,)), kind.first, view)
    }
    apart |= {constraint.topology_key for constraint in spec.spread if constraint.hard}
    if view.state.terms.n_limiting:
        return False
    if len(apart) > 1 or len(kind.keys) > 1 or spec.claim_volumes or spec.disks:
        return False
    return is_first_fit_best(kind.first, view)


def _kind(pods: list[Pod]) -> MemberKind:
    terms = usable(pods[0].spec.affinity.required)
    pods = sorted(pods, key=lambda pod: (-pod.priority, pod.rank))
    keys = tuple(dict.fromkeys(term.topology_key for term in terms))
    return MemberKind(pods, incoming_matcher(terms) if terms else None, keys, part_of(pods[0]))


def _identity(pod: Pod, read_keys: set[str], view: ClusterView) -> object:
    """Return what tells members apart: labels count only where a term of a member or of a placed pod reads them."""
    read = frozenset((key, value) for key, value in pod.labels.items() if key in read_keys)
    terms = frozenset(id(term) for term in view.state.terms.selecting(view.label_set(pod)))
    forms = claim_forms(pod, view)
    return pod.spec, read, terms, pod.priority, forms, part_of(pod)


def _label_keys(members: Sequence[Pod]) -> Iterator[str]:
    specs: Mapping[PodSpec, None] = dict.fromkeys(pod.spec for pod in members)
    for spec in specs:
        for term in spec.affinity.usable_terms():
            yield from (requirement.key for requirement in term.selector.requirements)
        for constraint in spec.spread:
            yield from constraint.match_label_keys
            if isinstance(constraint.selector, Selector):
                yield from (requirement.key for requirement in constraint.selector.requirements)


def _share(pod: Pod, view: ClusterView) -> float:
    shares = [0.0]
    for name, amount in filter_request(pod).items():
        allocatable = view.nodes.allocatable(name)
        total = 0 if allocatable is None else int(allocatable.sum())
        if amount:
            shares.append(amount / total if total > 0 else 1.0)
    return max(shares)


def _shared_key(first: MemberKind, second: MemberKind, view: ClusterView) -> str:
    """Return the key of a term by which one of the kinds needs the other, empty if neither does."""
    for kind, sibling in ((first, second), (second, first)):
        if is_selected(kind.needs, sibling.first, view):
            return kind.keys[0]
    return ""
