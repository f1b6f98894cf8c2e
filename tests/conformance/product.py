"""The product, asked as the recorded questions were: every plugin about every node on its own."""

import json
from collections.abc import Iterator
from random import Random

import numpy as np

from scheduler.daemon.assembly.profiles import build_profiles, exempt_namespaces
from scheduler.daemon.settings.loading import default_settings, parse_settings
from scheduler.engine.core.decide import CycleError, ScheduleResult, decide
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.interface import FeasibleNodes, NodeFilter, PodContext, PreFilterResult
from scheduler.engine.framework.kinds import STORES, kinds
from scheduler.engine.framework.node_trial import FilterTrials
from scheduler.engine.framework.post_filter import UnfitPod
from scheduler.engine.framework.profile import Profile
from scheduler.engine.framework.status import Code, Skip, Status
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics
from scheduler.engine.plugins.default_preemption.candidates import Candidate, candidate_at
from scheduler.engine.plugins.default_preemption.plugin import ineligibility
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.audit import differences
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.matching import NamespaceRule
from scheduler.engine.syntax.selectors import EVERYTHING
from tests.conformance.traces import Json


class LiveCluster:
    """A ClusterState fed with API objects, as informers feed it. Kinds that no plugin reads are passed over."""

    def __init__(
        self, exempt_namespaces: frozenset[str] = frozenset(), semantics: Semantics = DEFAULT_SEMANTICS
    ) -> None:
        # The reference lets annotations of every namespace be about others.
        self.state = ClusterState(exempt_namespaces, annotating=NamespaceRule(frozenset(), EVERYTHING))
        self.decoder = PodDecoder(semantics)
        self._decode = {row.kind: row.decode for row in kinds(semantics=semantics)}
        self._uids: dict[tuple[str, str], str] = {}

    def apply(self, obj: Json) -> None:
        """Create or replace. Another uid under the same name is another pod."""
        kind, data = obj["kind"], json.dumps(obj).encode()
        if kind == "Pod":
            self._apply_pod(self.decoder.decode(data))
        elif kind == "Node":
            self.state.nodes.upsert(decode_node(data))
        elif kind in STORES:
            STORES[kind].upsert(self.state, self._decode[kind](data))

    def delete(self, kind: str, namespace: str | None, name: str) -> None:
        """Remove, if it is there."""
        if kind == "Pod":
            self.state.remove_pod(self._uids.pop((namespace or "", name), ""))
        elif kind == "Node":
            self.state.nodes.remove(name)
        elif kind in STORES:
            STORES[kind].remove(self.state, kind, f"{namespace}/{name}" if namespace else name)

    def _apply_pod(self, pod: Pod) -> None:
        known = self._uids.get((pod.namespace, pod.name))
        if known is not None and known != pod.uid:
            self.state.remove_pod(known)
        self._uids[pod.namespace, pod.name] = pod.uid
        if pod.is_terminal or not pod.node_name:
            self.state.remove_pod(pod.uid)
        else:
            self.state.upsert_pod(pod)

    def remember(self, pod: Pod) -> None:
        """Note that the pod was placed without `apply`."""
        self._uids[pod.namespace, pod.name] = pod.uid

    def pod(self, obj: Json) -> Pod:
        """Return the object as a pod that is not placed."""
        return self.decoder.decode(json.dumps(obj).encode())

    def view(self) -> ClusterView:
        """Return the state as plugins see it."""
        return ClusterView(self.state)


class ProductSubject:
    """The product's state, plugins and decision."""

    def __init__(self, config: Json | None, semantics: Semantics = DEFAULT_SEMANTICS) -> None:
        if config is None:
            settings = default_settings(semantics)
        else:
            settings = parse_settings(json.dumps(config), "config", semantics)
        self.cluster = LiveCluster(exempt_namespaces(settings), semantics)
        profiles = build_profiles(settings, self.cluster.view())
        self.profile = profiles[settings.profiles[0].scheduler_name]

    def apply(self, obj: Json) -> None:
        """Create or replace."""
        self.cluster.apply(obj)

    def delete(self, kind: str, namespace: str | None, name: str) -> None:
        """Remove."""
        self.cluster.delete(kind, namespace, name)

    def evaluate(self, pod: Json) -> Json:
        """Return the decision with each plugin's part of it; change nothing."""
        view = self.cluster.view()
        decided = self.cluster.pod(pod)
        decision = decide(decided, view, self.profile, Random(0))
        if isinstance(decision, CycleError):
            return {"error": decision.message}
        answer = _answer(PodContext(decided, view.label_set(decided)), view, self.profile)
        if "error" in answer:
            # A single feasible node is never scored, but the recorded questions score it all the same.
            return {"error": answer["error"]}
        if isinstance(decision, FitError):
            answer["message"] = decision.message()
            answer["preemption"] = _preemption(decided, decision, view, self.profile)
        if not self.cluster.state.nominated:
            # A decision counts nominated pods too, which the plugins asked one by one do not see.
            _check_agreement(decided, decision, answer)
        answer["decided"] = decision.node_name if isinstance(decision, ScheduleResult) else None
        return answer

    def differences(self) -> list[str]:
        """Return the counts that differ from a recount."""
        return differences(self.cluster.state)


def _answer(context: PodContext, view: ClusterView, profile: Profile) -> Json:
    filters: dict[str, NodeFilter] = {}
    narrowed: frozenset[str] | None = None
    rejected: Json = {}
    for plugin in profile.filters:
        result = plugin.prefilter(context, view)
        if isinstance(result, Status):
            rejected[plugin.name] = as_json(result)
        elif isinstance(result, PreFilterResult):
            narrowed = result.node_names if narrowed is None else narrowed & result.node_names
            filters[plugin.name] = result.node_filter
        elif not isinstance(result, Skip):
            filters[plugin.name] = result
    if rejected:
        return {"prefilter": rejected, "filter": {}, "feasible": [], "score": {}, "total": {}}
    mask = view.alive.copy()
    for node_filter in filters.values():
        mask &= node_filter.mask()
    if narrowed is not None:
        mask &= np.array([name in narrowed for name in names(view)], dtype=np.bool_)
    answer: Json = {
        "filter": {name: by_node for name, f in filters.items() if (by_node := refused(f, view))},
        "feasible": [name for name, fits in zip(names(view), mask, strict=True) if fits],
        **scores(context, view, profile, mask),
    }
    return answer if narrowed is None else {**answer, "prefilterNodes": sorted(narrowed)}


def node_filters(context: PodContext, profile: Profile, view: ClusterView) -> dict[str, NodeFilter]:
    """Return the filters of the plugins that neither skip the pod nor reject it."""
    results = ((plugin.name, plugin.prefilter(context, view)) for plugin in profile.filters)
    return {
        name: result.node_filter if isinstance(result, PreFilterResult) else result
        for name, result in results
        if not isinstance(result, Skip | Status)
    }


def names(view: ClusterView) -> Iterator[str]:
    return (view.nodes.name_of(row) for row in range(view.n_rows))


def refused(node_filter: NodeFilter, view: ClusterView) -> Json:
    statuses = node_filter.statuses()
    by_row = ((row, statuses.at(row)) for row in np.flatnonzero(view.alive).tolist())
    return {view.nodes.name_of(row): as_json(status) for row, status in by_row if status is not None}


def as_json(status: Status) -> Json:
    return {"code": status.code.value, "reasons": list(status.reasons)}


def scores(context: PodContext, view: ClusterView, profile: Profile, mask: Mask) -> Json:
    feasible = FeasibleNodes(mask)
    rows = np.flatnonzero(mask)
    feasible_names = [view.nodes.name_of(row) for row in rows.tolist()]
    score: dict[str, dict[str, int]] = {}
    total = dict.fromkeys(feasible_names, 0)
    for weighted in profile.scorers if feasible_names else ():
        scorer = weighted.plugin.prescore(context, view, feasible)
        if isinstance(scorer, Skip):
            continue
        if isinstance(scorer, Status):
            return {"error": f'running PreScore plugin "{weighted.plugin.name}": {scorer.message}'}
        points_by_row = scorer.normalized(scorer.raw())[rows].tolist()
        score[weighted.plugin.name] = dict(zip(feasible_names, points_by_row, strict=True))
        for name, points in zip(feasible_names, points_by_row, strict=True):
            total[name] += weighted.weight * points
    return {"score": score, "total": total}


def _preemption(pod: Pod, decision: FitError, view: ClusterView, profile: Profile) -> Json:
    """Return the victims on every node, each node asked on its own, and the nodes that would be chosen."""
    context = PodContext(pod, view.label_set(pod))
    filters = node_filters(context, profile, view)
    unfit = UnfitPod(context, decision, FilterTrials(list(filters.items())), pod.priority)
    eligible = ineligibility(unfit, view) is None
    rows = np.flatnonzero(decision.unschedulable_rows(view.alive)).tolist() if eligible else []
    answers = [candidate_at(row, unfit, view) for row in rows]
    candidates = {
        view.nodes.name_of(one.row): {
            "victims": sorted(victim.key for victim in one.victims),
            "pdbViolations": one.n_violations,
        }
        for one in answers
        if isinstance(one, Candidate)
    }
    result = decision.postfilter
    assert result is not None
    winner = result.nominated_node_name
    if candidates:
        assert winner in candidates
        assert sorted(victim.key for victim in result.victims) == candidates[winner]["victims"]
    return {"eligible": eligible, "candidates": candidates, "winners": [winner] if candidates else []}


def _check_agreement(pod: Pod, decision: ScheduleResult | FitError, answer: Json) -> None:
    """Assert that the decision agrees with its parts, each asked on its own."""
    total = answer["total"]
    if isinstance(decision, FitError):
        assert answer["feasible"] == []
        assert decision.prefilter is None or decision.prefilter.code is not Code.ERROR
        return
    assert decision.node_name in answer["feasible"]
    if pod.nominated_node_name in answer["feasible"]:
        assert (decision.n_feasible, decision.node_name) == (1, pod.nominated_node_name)
        return
    assert decision.n_feasible == len(answer["feasible"])
    assert total[decision.node_name] == max(total.values())
