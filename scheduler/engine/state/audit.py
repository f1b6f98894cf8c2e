"""
Recounts everything from the placed pods and compares it with the columns and derived values.

Tests run a whole audit at the teardown of every cluster. A running scheduler audits a bounded piece at a time. Its
state may change between two pieces, so each comparison is complete within one piece.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

import numpy as np

from scheduler.engine.model.disks import RESTRICTED, Disk
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.state.change_log import ChangeLog
from scheduler.engine.state.cluster import ClusterState, PlacedPod
from scheduler.engine.state.cluster_view import OutOfTreeKey
from scheduler.engine.state.existing_terms import ExistingPodTerm
from scheduler.engine.state.matching import PodMatcher
from scheduler.engine.state.pod_columns import COUNTED
from scheduler.engine.state.volumes import Volumes

#: Pods looked at in one piece, 2 µs each.
_PODS_PER_PIECE: Final = 1000
#: Costs of a row, and of a derived value at 5,000 nodes, beside their pods; counted in pods.
_ROW_COST: Final = 6
_VALUE_COST: Final = 100
#: The cost of a term that a pod declares, counted in pods: 4 µs for its key.
_TERM_COST: Final = 2
#: Parts of a matcher that are tried on label sets in one comparison, 2 µs each. Finding the label sets that it selects
#: costs a quarter of that.
_TRIED_AT_ONCE: Final = 500
_LABEL_SETS_PER_POD: Final = 4

#: Terms, or derived values, that a round holds at a time. A round may take an hour, and dead ones may be large.
_HELD: Final = 16

T = TypeVar("T")

#: The cost of one comparison, in pods looked at, and its differences.
_Comparison = tuple[int, list[str]]


def differences(state: ClusterState) -> list[str]:
    """Return where counts and a recount differ, one line each; empty if they are equal. O(pods x derived values)."""
    return [
        *(text for _, texts in _comparisons(state) for text in texts),
        *_disks(state),
        *_volumes(state),
        *state.devices.differences(),
    ]


class Audit:
    """
    Compares in small pieces, round after round; the state may change between two pieces, not during one.

    `pods_per_piece`: a piece ends after the comparison that reaches this number of pods.
    """

    def __init__(self, state: ClusterState, pods_per_piece: int = _PODS_PER_PIECE) -> None:
        self._state = state
        self._pods_per_piece = pods_per_piece
        self._round: Iterator[_Comparison] = iter(())

    def step(self) -> list[str]:
        """Return the differences of the next piece, one line each; a piece never spans two rounds."""
        lines: list[str] = []
        left = self._pods_per_piece
        while left > 0:
            compared = next(self._round, None)
            if compared is None:
                self._round = _comparisons(self._state)
                return lines
            cost, texts = compared
            left -= cost
            lines += texts
        return lines


def _comparisons(state: ClusterState) -> Iterator[_Comparison]:
    nodes = state.nodes
    yield nodes.n_rows // 10, list(_totals(state))
    for row in range(nodes.n_rows):
        pods = state.placed_on(row)
        yield _ROW_COST + 2 * len(pods), list(_row(state, row))
        for placed in list(pods):
            yield 1 + _TERM_COST * len(placed.terms), list(_declared(state, placed))
    for term in _few_at_a_time(lambda: state.terms):
        for row in list(term.pods_by_row):
            yield 1 + len(state.placed_on(row)), list(_term(state, term, row))
    for group in state.groups.listed():
        members = (*state.groups.placed(group), *state.groups.pending(group))
        yield _ROW_COST + len(members), list(_group(state, group))
    yield _ROW_COST, list(_ending(state))
    for key in _few_at_a_time(state.derived.keys):
        if isinstance(key, OutOfTreeKey):
            continue  # computed by code that is not ours, which may raise or answer differently each time
        matcher = key[0] if isinstance(key, tuple) and isinstance(key[0], PodMatcher) else None
        n_parts = len(matcher.parts) if matcher else 0
        cost = _VALUE_COST + n_parts + (len(state.label_sets) // _LABEL_SETS_PER_POD if matcher else 0)
        yield cost, [f"{key}: the derived value differs"] if state.derived.differs(key) else []
        if matcher is not None and n_parts:
            n_label_sets = max(1, _TRIED_AT_ONCE // n_parts)
            for first in range(0, len(state.label_sets), n_label_sets):
                yield cost + n_label_sets * n_parts, list(_selection(state, matcher, first, n_label_sets))


def _few_at_a_time(them: Callable[[], Iterable[T]]) -> Iterator[T]:
    """Yield each of the items; while items come and go, some are left out or come twice. O(items) for each few."""
    n_yielded = 0
    while few := list(islice(them(), n_yielded, n_yielded + _HELD)):
        n_yielded += len(few)
        yield from few


def _totals(state: ClusterState) -> Iterator[str]:
    nodes = state.nodes
    n_on_rows = sum(len(state.placed_on(row)) for row in range(nodes.n_rows))
    if n_on_rows != len(state.placed):
        yield f"{len(state.placed)} pods placed, {n_on_rows} found on rows"
    if nodes.n_live != int(np.count_nonzero(nodes.alive)):
        yield f"{nodes.n_live} live nodes kept, {int(np.count_nonzero(nodes.alive))} recounted"
    n_pods = state.pods.n_by_label_set(state.label_sets.n_numbers)
    for label_set in state.label_sets:
        if label_set.n_pods != n_pods[label_set.number]:
            yield f"{dict(label_set.labels)}: {label_set.n_pods} pods kept, {n_pods[label_set.number]} in columns"


def _disks(state: ClusterState) -> Iterator[str]:
    """Compare the mounted disks with those of all pods. O(pods), so not while a scheduler runs."""
    recounted: Counter[tuple[Disk, int]] = Counter()
    for placed in state.placed.values():
        recounted.update((disk, placed.row) for disk in placed.pod.spec.disks if disk.plugin in RESTRICTED)
    if state.disks.on_rows() != recounted:
        yield "mounted disks differ from those of placed pods"


def _volumes(state: ClusterState) -> Iterator[str]:
    """Compare the volumes with a new table of the same objects. O(objects), so not while a scheduler runs."""
    fresh = Volumes(state.nodes, ChangeLog())
    for placed in state.placed.values():
        fresh.count_pod(placed.pod, state.nodes.name_of(placed.row), 1)
    for obj in state.volumes.objects():
        fresh.upsert(obj)
    yield from state.volumes.wrongly_assumed()
    if state.volumes.attached.counts() != fresh.attached.counts():
        yield f"volumes {state.volumes.attached.counts()} attached, {fresh.attached.counts()} recounted"
    if state.volumes.free.names() != fresh.free.names():
        yield f"volumes {state.volumes.free.names()} free, {fresh.free.names()} recounted"


def _row(state: ClusterState, row: int) -> Iterator[str]:
    """Compare the row's columns with its pods."""
    pods, nodes, name = state.placed_on(row), state.nodes, state.nodes.name_of(row)
    requested: Counter[str] = Counter()
    non_zero = [0, 0]
    for placed in pods:
        usage = state.usage_of(placed.pod)
        requested.update(usage.requested)
        non_zero = [total + more for total, more in zip(non_zero, usage.non_zero, strict=True)]
        for volume in placed.pod.spec.claim_volumes:
            claim_key = f"{placed.pod.namespace}/{volume.claim_name(placed.pod.name)}"
            if name not in state.volumes.users(claim_key):
                yield f"{name}: {placed.pod.key} is not among the users of claim {claim_key}"
        pod, columns = placed.pod, state.pods.at(placed.slot)
        kept = state.groups.has_placed(pod), state.groups.has_ending(pod)
        if kept != (pod.group is not None and not pod.terminating, pod.group is not None and pod.terminating):
            yield f"{name}: {pod.key} differs from the members of its group on nodes"
        taken = [usage.requested.get(resource, 0) for resource in COUNTED]
        counted = (placed.label_set.number, row, pod.priority, pod.start_rank, taken, not pod.terminating)
        if columns != counted:
            yield f"{name}: {placed.pod.key} differs from its columns"
    if nodes.pod_count[row] != len(pods):
        yield f"{name}: {nodes.pod_count[row]} pods kept, {len(pods)} recounted"
    if nodes.non_zero[:, row].tolist() != non_zero:
        yield f"{name}: non-zero {nodes.non_zero[:, row].tolist()} kept, {non_zero} recounted"
    for resource in sorted({*nodes.resource_names(), *requested}):
        if nodes.requested_at(resource, row) != requested[resource]:
            yield f"{name}: {resource} differs, {requested[resource]} recounted"
    yield from _ports(state, row, pods)
    for term, n_pods in Counter(term for placed in pods for term in placed.terms).items():
        if state.terms.get(term.key) is not term or term.pods_by_row.get(row, 0) != n_pods:
            yield f"{term.key} on {name}: declared {n_pods} times, kept otherwise"


def _declared(state: ClusterState, placed: PlacedPod) -> Iterator[str]:
    """Compare the terms that the pod is counted with and those that it declares, unless it has left meanwhile."""
    if state.placed.get(placed.pod.uid) is placed:
        declared = tuple(state.terms.keys(placed.label_set, placed.pod.spec))
        if tuple(term.key for term in placed.terms) != declared:
            name = state.nodes.name_of(placed.row)
            yield f"{name}: {placed.pod.key} declares other terms than it is counted with"


def _group(state: ClusterState, key: GroupKey) -> Iterator[str]:
    """Compare the members of a group as they are kept with the pods themselves."""
    placed, pending = tuple(state.groups.placed(key)), tuple(state.groups.pending(key))
    for pod in placed:
        known = state.placed.get(pod.uid)
        if known is None or known.pod.group is None or known.pod.group.key != key or known.pod.terminating:
            yield f"group {key.text}: {pod.key} is kept as placed"
    for pod in pending:
        known = state.placed.get(pod.uid)
        if pod.group is None or pod.group.key != key or (known is not None and not known.assumed):
            yield f"group {key.text}: {pod.key} is kept as pending"
    ready = {pod.uid for pod in (*placed, *(pod for pod in pending if not pod.gates and not pod.terminating))}
    if state.groups.n_ready(key) != len(ready):
        yield f"group {key.text}: {state.groups.n_ready(key)} members ready kept, {len(ready)} recounted"
    if not placed and not pending and state.groups.get(key) is None:
        yield f"group {key.text} is kept without members"


def _ending(state: ClusterState) -> Iterator[str]:
    """Compare the members that end with the pods on nodes; whether all of these are kept is compared by row."""
    for pod in state.groups.ending():
        known = state.placed.get(pod.uid)
        if known is None or not known.pod.terminating or known.pod.group != pod.group:
            yield f"{pod.key} is kept as a member that ends"


def _ports(state: ClusterState, row: int, pods: Collection[PlacedPod]) -> Iterator[str]:
    ports = (port for placed in pods for port in state.usage_of(placed.pod).host_ports)
    recounted = Counter((port.protocol, port.port, port.ip) for port in ports)
    held = {
        (protocol, number, ip): count
        for (protocol, number), rows in state.nodes.ports.items()
        for ip, count in rows.get(row, {}).items()
    }
    if held != recounted:
        yield f"{state.nodes.name_of(row)}: host ports {held} kept, {dict(recounted)} recounted"


def _term(state: ClusterState, term: ExistingPodTerm, row: int) -> Iterator[str]:
    """Compare how often the term is declared on the row."""
    if state.terms.get(term.key) is not term:
        return  # its last pod has left since the round began
    recounted = sum(placed.terms.count(term) for placed in state.placed_on(row))
    kept = term.pods_by_row.get(row, 0)
    if kept != recounted:
        yield f"{term.key} on {state.nodes.name_of(row)}: declared {kept} times kept, {recounted} recounted"


def _selection(state: ClusterState, matcher: PodMatcher, first: int, n_label_sets: int) -> Iterator[str]:
    """Compare the label sets, some from the `first` on, that the index finds with the ones that match."""
    selected = state.label_sets.selected(matcher)
    for label_set in islice(state.label_sets, first, first + n_label_sets):
        if state.label_sets.matches(matcher, label_set) != selected[label_set.number]:
            yield f"{matcher}: {label_set.namespace} {dict(label_set.labels)} is wrongly in or out"
