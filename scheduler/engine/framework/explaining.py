"""
The optional part of the plugin contract by which a filter plugin explains its refusals.

The package `explain` groups the nodes and tries the changes, and knows no plugin. For a plugin without `explain` it
shows only the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, NamedTuple

import msgspec
import numpy as np

from scheduler.engine.model.changes import Changes, RemovePod
from scheduler.engine.model.disruption_budgets import guarding, refusing
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.arrays import Amounts, Fractions, Mask, Rows
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.columns import ABSENT, LabelColumn
from scheduler.engine.state.existing_terms import ExistingPodTerm
from scheduler.engine.state.matching import PodMatcher
from scheduler.engine.syntax import words

#: For names of the cluster, of which many are alike without being meant, such as the labels of a block and a rack.
did_you_mean: Final = partial(words.did_you_mean, cutoff=0.9)
#: The end of a sentence about nodes that no longer exist.
NONE_IS_LEFT: Final = ", of which none is left"
#: The most pods that one proposal may remove.
MOST_REMOVED: Final = 50
#: Pods of at least this priority are system-critical (scheduling.k8s.io, SystemCriticalPriority).
_SYSTEM_CRITICAL: Final = 2_000_000_000


class ExplainContext:
    """The refused pod and its cluster, read only."""

    def __init__(
        self, pod: Pod, state: ClusterState, kept: Collection[str] = (), owner: Hashable = None
    ) -> None:
        """`kept`: the UIDs of pods that no change takes away. `owner`: as of `owned_by`."""
        self.pod = pod
        self._kept = kept
        self.view: ClusterView = ClusterView(state, owner)
        self._state = state
        self._held_by: dict[str, str] = {}

    def owned_by(self, owner: Hashable) -> ExplainContext:
        """Return the context for an out-of-tree plugin. `owner`: see `OutOfTreeKey`."""
        return ExplainContext(self.pod, self._state, self._kept, owner)

    @property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of every known namespace."""
        return self._state.label_sets.namespace_labels

    def placed_pods(self) -> Iterator[Pod]:
        """Return the placed pods."""
        return (placed.pod for placed in self._state.placed.values())

    def placed(self, uid: str) -> tuple[Pod, str] | None:
        """Return a placed pod and the name of its node; None if no node has it."""
        placed = self._state.placed.get(uid)
        return None if placed is None else (placed.pod, self._state.nodes.name_of(placed.row))

    def must_stay(self, pod: Pod) -> bool:
        """
        Return whether it is useless, harmful or impossible to remove the placed pod.

        True if its controller puts it back, or replaces it by a pod like the explained one; if it is system-critical;
        or if it runs only in thought.
        """
        if pod.is_bound_to_node or pod.priority >= _SYSTEM_CRITICAL or pod.uid in self._kept:
            return True
        is_sibling = pod.owner is not None and (pod.namespace, pod.owner) == (
            self.pod.namespace,
            self.pod.owner,
        )
        # One that is being deleted has its replacement already.
        return is_sibling and not pod.terminating

    def held_by(self, pod: Pod) -> str:
        """Return the PodDisruptionBudget that refuses the placed pod's eviction now; empty if there is none."""
        if pod.uid not in self._held_by:
            budgets = () if pod.terminating else self._state.budgets.within(pod.namespace)
            self._held_by[pod.uid] = refusing(guarding(pod, budgets), {})
        return self._held_by[pod.uid]

    def pods_on(self, row: int) -> Iterable[Pod]:
        """Return the pods on the row."""
        return [placed.pod for placed in self._state.placed_on(row)]

    def selected_pods(self, matcher: PodMatcher) -> Iterator[tuple[Pod, int]]:
        """Return the placed pods that the matcher selects, and their rows."""
        selected = self._state.label_sets.selected(matcher)
        return ((p.pod, p.row) for p in self._state.placed.values() if selected[p.label_set.number])

    def selected_on(self, matcher: PodMatcher, row: int) -> Iterator[Pod]:
        """Return the pods on the row that the matcher selects."""
        matches = self._state.label_sets.matches
        return (p.pod for p in self._state.placed_on(row) if matches(matcher, p.label_set))

    def declaring_on(self, term: ExistingPodTerm, row: int) -> Iterator[Pod]:
        """Return the pods on the row that declare the term."""
        return (p.pod for p in self._state.placed_on(row) if term in p.terms)


class PodsPerRow(NamedTuple):
    """How many pods each row has, and a function that returns the pods of a row."""

    counts: Amounts
    on: Callable[[int], Iterable[Pod]]

    def within(self, rows: Mask) -> Iterator[tuple[Pod, int]]:
        """Yield the pods on these rows, and their rows."""
        return (
            (pod, row) for row in np.flatnonzero(rows & (self.counts > 0)).tolist() for pod in self.on(row)
        )


@dataclass(frozen=True, kw_only=True)
class BlockingRule:
    """
    A rule about pods per domain of a topology key that refuses nodes. Arrays have one entry per node row.

    A refused row needs the label if it lacks the key; otherwise pods have to leave, or `other_changes` are needed.
    """

    #: The rule's kind in the explanation's JSON.
    kind: str
    topology_key: str
    #: The column of the key; `column.key` is empty if no node has it.
    column: LabelColumn
    #: The selectors and namespaces of the rule, as text.
    selects: str
    namespaces: str
    #: Live rows that the rule refuses.
    refused: Mask
    #: Rows whose pods count.
    eligible: Mask
    #: The pods that the rule counts.
    pods: PodsPerRow
    #: How many of them must leave the row's domain before the rule admits the pod; 0 if that would not help.
    n_to_remove: Amounts
    #: The most pods that a domain may already have; None for a rule that requires pods.
    max_existing: int | None = None
    #: For a rule about shares, its numbers, and by domain the most pods once the pod is there; otherwise None.
    share: Share | None = None
    max_per_domain: Amounts | None = None
    #: The pods that declare the rule; None if the pod itself declares it.
    declaring: PodsPerRow | None = None
    #: Matches the pods that the rule requires; None for other rules.
    required_pods: PodMatcher | None = None
    #: The numbers of a rule that compares domains; None for other rules.
    skew: Skew | None = None
    #: Returns what would lift the refusal of a row that has the key, besides the removal of pods.
    other_changes: Callable[[int], Changes] | None = None

    @cached_property
    def lacks_key(self) -> Mask:
        """The refused rows that lack the topology key."""
        return self.refused & np.equal(self.column.ids[: len(self.refused)], ABSENT)

    @cached_property
    def in_domains(self) -> Amounts:
        """How many pods the rule counts in each domain."""
        return self.column.per_domain(self.pods.counts).amounts

    def pods_beside(self, row: int) -> Iterator[tuple[Pod, int]]:
        """Yield the counted pods in the domain of a row that has the topology key, and their rows."""
        ids = self.column.ids[: len(self.refused)]
        return self.pods.within(np.equal(ids, ids[row]))


class Share(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """
    The share of `n_pods` that a domain may have: the pods that a rule selects, and the explained one.

    `percent`: 0 if there are weights, of the domains that have a node. `is_of_minimum`: `n_pods` is instead the minimum
    of the group of the pod that declares the rule. `declaring_takes`: what that pod takes of its domain's share
    although the rule does not select it.
    """

    n_pods: int = msgspec.field(name="pods")
    percent: int
    weights: dict[str, int]
    is_of_minimum: bool = msgspec.field(name="ofMinimum", default=False)
    declaring_takes: int = 0


class Skew(msgspec.Struct, frozen=True, rename="camel"):
    """The numbers of a spread constraint. `fewest`: pods in the emptiest domain; 0 below minDomains."""

    max_skew: int
    min_domains: int
    n_domains: int = msgspec.field(name="domains")
    fewest: int
    counts_itself: bool


@dataclass(frozen=True)
class Repair:
    """
    Changes that would lift one plugin's refusals; `explain` confirms them by a decision.

    `alternatives`: returns the changes that would help on a refused row, best first. `effort`: estimates the number of
    changes for each of some refused rows, infinite if none helps.
    """

    alternatives: Callable[[int], Sequence[Changes]]
    effort: Callable[[Rows], Fractions] = lambda rows: np.ones(len(rows))


class Where(NamedTuple):
    """
    What refused nodes have in common, in words.

    `is_nowhere`: no node or object of the cluster is or has what the pod asks for. `is_misspelt`: one is or has
    something of nearly the same name; the text says so.
    """

    text: str
    is_nowhere: bool = False
    is_misspelt: bool = False

    @classmethod
    def of(cls, said: str | Where) -> Where:
        """Return what a plugin says; a mere text says nothing about the whole cluster."""
        return cls(said) if isinstance(said, str) else said

    @classmethod
    def joined(cls, parts: Iterable[str | Where], separator: str = "; ") -> Where:
        """Return all of the parts that are not empty."""
        said = [part for part in map(cls.of, parts) if part.text]
        text = separator.join(part.text for part in said)
        return cls(text, any(part.is_nowhere for part in said), any(part.is_misspelt for part in said))


@dataclass(frozen=True)
class PluginExplanation:
    """
    The explanation of one plugin's refusals.

    Args:
        rules: the rules that refuse nodes. If there are any, they replace `where` and `repair`.
        where: returns a text, or a `Where`, for each of the given rows, which share a reason; equal ones form a group.
        repair: the changes that would lift refusals.
        proposals: returns changes not tied to one node that may lift refusals.
        admitted: what the admitted nodes have; it is shown if other plugins refuse all of these.
    """

    rules: Sequence[BlockingRule] = ()
    where: Callable[[Rows], Sequence[str | Where]] | None = None
    repair: Repair | None = None
    proposals: Callable[[], Iterable[Changes]] | None = None
    admitted: str = ""


def removal(pod: Pod, node_name: str) -> RemovePod:
    """Return the change that removes the pod from the node."""
    return RemovePod(pod.namespace, pod.name, node_name, pod.uid, pod.terminating)


def removal_of_all(context: ExplainContext, blocks: Callable[[Pod], bool]) -> Callable[[int], list[Changes]]:
    """Return a function of a row: the removal of every blocking pod there; no changes if one of them must stay."""

    def removals(row: int) -> list[Changes]:
        blocking = [pod for pod in context.pods_on(row) if blocks(pod)]
        if not blocking or any(map(context.must_stay, blocking)):
            return []
        node_name = context.view.nodes.name_of(row)
        return [tuple(removal(pod, node_name) for pod in blocking)]

    return removals


class Holding(NamedTuple):
    """Pods that use something together, and how much comes free, by what it is, once the last of them has left."""

    pods: tuple[Pod, ...]
    freed: Mapping[str, int]


def holdings(uses: Iterable[tuple[Iterable[Pod], Mapping[str, int]]]) -> list[Holding]:
    """Return what is used by the same pods as one holding each."""
    freed: dict[tuple[str, ...], Counter[str]] = {}
    pods: dict[tuple[str, ...], tuple[Pod, ...]] = {}
    for using, amounts in uses:
        by_uid = {pod.uid: pod for pod in using}
        uids = tuple(sorted(by_uid))
        pods[uids] = tuple(by_uid[uid] for uid in uids)
        freed.setdefault(uids, Counter()).update(amounts)
    return [Holding(pods[uids], freed[uids]) for uids in pods if uids]


def pods_to_remove(
    context: ExplainContext, held: Iterable[Holding], short: Mapping[str, int]
) -> tuple[Pod, ...]:
    """
    Return few pods that together free the short amounts, chosen greedily; empty if no set of pods does.

    Pods that a budget holds are the last.
    """
    still_short = dict(short)
    left = [holding for holding in held if not any(map(context.must_stay, holding.pods))]
    chosen: dict[str, Pod] = {}

    def cost(holding: Holding) -> tuple[bool, float, int, list[str]]:
        leaving = [pod for pod in holding.pods if pod.uid not in chosen]
        share = _share_freed(holding.freed, still_short) / max(1, len(leaving))
        priority = max((pod.priority for pod in leaving), default=0)
        return any(map(context.held_by, leaving)), -share, priority, [pod.key for pod in leaving]

    while still_short and len(chosen) < MOST_REMOVED:
        helpful = [holding for holding in left if _share_freed(holding.freed, still_short)]
        if not helpful:
            return ()
        best = min(helpful, key=cost)
        left = [holding for holding in helpful if holding is not best]
        chosen |= {pod.uid: pod for pod in best.pods}
        still_short = {
            name: n - best.freed.get(name, 0)
            for name, n in still_short.items()
            if n > best.freed.get(name, 0)
        }
    return () if still_short or len(chosen) > MOST_REMOVED else tuple(chosen.values())


def _share_freed(freed: Mapping[str, int], short: Mapping[str, int]) -> float:
    """Return the sum of the freed share of each short resource."""
    return sum(min(freed.get(name, 0) / amount, 1.0) for name, amount in short.items())


def example_value(values: Sequence[str]) -> str:
    """Return a value for a label that needs one of these values, or any value if there are none."""
    return values[0] if values else "true"
