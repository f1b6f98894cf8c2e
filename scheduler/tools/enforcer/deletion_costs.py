"""
Which replica should go first when its ReplicaSet gets smaller, as `controller.kubernetes.io/pod-deletion-cost`.

The pods of a domain stand on each other, the oldest at the bottom: the third of its domain has height 3. The highest
pod goes first, which keeps domains as equal as they can be: the least skew, and the most room below a maximum per
domain. Where domains have weights, the k-th pod of a domain is as high as the number of all pods at which it is due.
Selected pods that are not of the ReplicaSet are at the bottom, since the ReplicaSet cannot delete them.

A cost is the negative height by the pod's first rule. Within a domain, the next rule says which pod is on top. So a
pod that comes or goes changes few costs. Rules, in order: hard spread constraints, required anti-affinity with a
limit, soft constraints, preferred weights. Pods without one, or of another controller, have no cost of ours.

Source: pkg/controller/controller_utils.go, ActivePodsWithRanks (kubernetes 1.36): of pods that are equally ready, the
one with the lowest cost goes first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import Shares
from scheduler.engine.state.batches import Pieces, batches
from scheduler.engine.state.cluster import ClusterState, PlacedPod
from scheduler.engine.state.columns import ABSENT, LabelColumn
from scheduler.engine.state.domain_limits import weights_in_use
from scheduler.tools.explain.declared_rules import NO_DEFAULTS, DeclaredRule, rules_of

#: How often the loop checks: a check looks at all pods, 0.5 µs each, and at those of ReplicaSets with rules.
COST_PERIOD_S: Final = 5.0
_WINDOW_S: Final = 60.0
#: How long a pod is left alone after a write that failed.
_RETRY_S: Final = 30.0
#: Heights by weights are tenths of a pod. Costs are of 32 bits.
_TENTHS: Final = 10
_HIGHEST: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class WriteDeletionCost:
    """Write the cost into the pod's annotations; if that fails, call `on_failed`. In a dry run, only report it."""

    pod: Pod
    cost: str


class DeletionCosts:
    """Decides which costs to write. It reads the state alone."""

    def __init__(
        self,
        state: ClusterState,
        *,
        writes_per_minute: int,
        acts: bool,
        exempt_namespaces: frozenset[str],
        is_protected: Callable[[Pod], bool],
    ) -> None:
        """
        `writes_per_minute`: the most writes of 60 s. `acts`: whether costs are written, else each is returned once.
        `exempt_namespaces`: as in the scheduler's configuration. `is_protected`: returns whether a pod gets no cost.
        """
        self.acts = acts
        self._state, self._limit = state, writes_per_minute
        self._exempt_namespaces, self._is_protected = exempt_namespaces, is_protected
        #: The last write for a pod, with the version that the pod then had, by UID.
        self._written: dict[str, WriteDeletionCost] = {}
        self._retry_s: dict[str, float] = {}
        self._past: deque[float] = deque()

    def check(self, now_s: float) -> Pieces[list[WriteDeletionCost]]:
        """
        Return the costs to write now, the first pods to go first. O(pods).

        A piece is a rule of a ReplicaSet, or some pods. A pod that is gone before the end gets no cost. The next check
        finds what else has changed.
        """
        while self._past and self._past[0] + _WINDOW_S <= now_s:
            self._past.popleft()
        placed = self._state.placed
        self._written = {uid: each for uid, each in self._written.items() if uid in placed}
        self._retry_s = {uid: at_s for uid, at_s in self._retry_s.items() if at_s > now_s and uid in placed}
        wanted: list[tuple[int, str]] = []
        for pods in (yield from self._replicas()):
            costs = yield from self._costs(pods)
            wanted += [
                (cost, uid)
                for uid, cost in costs.items()
                if uid in placed and self._is_news(placed[uid].pod, cost)
            ]
        chosen = sorted(each for each in wanted if each[1] in placed)[: self._limit - len(self._past)]
        self._past.extend([now_s] * len(chosen))
        writes = [WriteDeletionCost(placed[uid].pod, str(cost)) for cost, uid in chosen]
        self._written |= {write.pod.uid: write for write in writes}
        return writes

    def on_failed(self, uid: str, now_s: float) -> None:
        """Leave the pod alone for a while."""
        self._written.pop(uid, None)
        self._retry_s[uid] = now_s + _RETRY_S

    def _is_news(self, pod: Pod, cost: int) -> bool:
        """Return whether the cost has to be written: not over a user's, and not until a watch shows the last one."""
        if (pod.deletion_cost and not pod.is_deletion_cost_ours) or pod.uid in self._retry_s:
            return False
        if pod.deletion_cost == str(cost):
            return False
        written = self._written.get(pod.uid)
        return written is None or not (
            written.pod.resource_version == pod.resource_version
            or (not self.acts and written.cost == str(cost))
        )

    def _replicas(self) -> Pieces[list[list[PlacedPod]]]:
        """Return the pods of each ReplicaSet whose pods may have rules, without terminating ones."""
        replicas: dict[tuple[str, str], list[PlacedPod]] = {}
        for few in batches(list(self._state.placed.values())):
            for placed in few:
                pod = placed.pod
                if pod.owner is None or pod.owner.kind != "ReplicaSet" or pod.terminating:
                    continue
                affinity = pod.spec.affinity
                if pod.spec.spread or affinity.required_anti or affinity.preferred_anti:
                    replicas.setdefault((pod.namespace, pod.owner.name), []).append(placed)
            yield
        return [pods for pods in replicas.values() if len(pods) > 1 and not self._is_protected(pods[0].pod)]

    def _costs(self, pods: Sequence[PlacedPod]) -> Pieces[dict[str, int]]:
        """Return the cost of each of the ReplicaSet's pods by UID; none without a rule."""
        first = pods[0]
        label_sets = self._state.label_sets
        rules = [rule for rule in self._rules(first.pod) if label_sets.matches(rule.matcher, first.label_set)]
        ranked = sorted(pods, key=lambda placed: (placed.pod.created, placed.pod.uid))
        heights: dict[str, int] = {}
        for rule in reversed(rules):
            heights = self._heights(rule, ranked)
            ranked.sort(key=lambda placed: heights[placed.pod.uid])
            yield
        return {uid: -height for uid, height in heights.items()}

    def _rules(self, pod: Pod) -> list[DeclaredRule]:
        """Return the rules by which the pods of a domain have an order, the first one first."""
        rules = rules_of(pod, self._state, self._exempt_namespaces, NO_DEFAULTS)
        return sorted(
            (rule for rule in rules if rule.kind == "topologySpread" or rule.is_limiting),
            key=lambda rule: (not rule.is_hard, rule.kind != "topologySpread"),
        )

    def _heights(self, rule: DeclaredRule, ranked: Sequence[PlacedPod]) -> dict[str, int]:
        """Return the height of each pod: the last pod of a domain in `ranked` is the highest. 0 without a domain."""
        column = self._state.nodes.column(rule.topology_key)
        live = self._state.counts.selected(rule.matcher, live_only=True)
        below = column.per_domain(live.by_row).amounts
        own = Counter(column.ids.item(placed.row) for placed in ranked)
        n_there = {domain: max(0, below.item(domain) - n_pods) for domain, n_pods in own.items()}
        height_of = _height_of(rule.shares, column)
        heights = {}
        for placed in ranked:
            domain = column.ids.item(placed.row)
            n_there[domain] += 1
            heights[placed.pod.uid] = 0 if domain == ABSENT else height_of(domain, n_there[domain])
        return heights


def _height_of(shares: Shares | None, column: LabelColumn) -> Callable[[int, int], int]:
    """
    Return the function from a domain and a pod's position in it to the pod's height.

    With weights, the height is the total number of pods, in tenths, at which the domain's share is position - 0.5.
    """
    if shares is None or not shares.weights:
        return lambda _, position: position
    weights = weights_in_use(shares, column)
    total = sum(weights.values())

    def height(domain: int, position: int) -> int:
        weight = weights.get(column.value_of(domain), 0)
        due = _TENTHS * (2 * position - 1) * total // (2 * weight) if weight else _HIGHEST
        return min(due, _HIGHEST) + (0 if weight else position)

    return height
