"""After any sequence of changes and queries, the state answers as plain dictionaries do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.engine.framework.interface import PodContext
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.nodes import Node, decode_node
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import AffinityTerm, Toleration
from scheduler.engine.plugins.inter_pod_affinity.filtering import full_domains, limiting_terms
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.audit import differences
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.columns import PerDomain
from scheduler.engine.state.counts import KeyDomains
from scheduler.engine.state.existing_terms import ExistingPodTerm, TermKind
from scheduler.engine.state.label_sets import LabelSet
from scheduler.engine.state.matching import NamespaceRule, PodMatcher
from scheduler.engine.syntax.selectors import EVERYTHING, NOTHING, Requirement, Selector
from tests.support import build
from tests.support.plain_state import Labelled, PlainPod, PlainState
from tests.support.plugins import plugin_named

ANNOTATION = "affinity-scheduler.io/affinity"
NODES = ("a", "b", "c", "d")
#: Pods may be seen on the last one, which never comes.
NODE_NAMES = st.sampled_from((*NODES, *NODES, "unknown"))
NAMESPACES = ("one", "two", "exempt")
UIDS = tuple(f"uid-{number}" for number in range(10))
KEYS = (build.HOSTNAME, build.ZONE, "rack")
EFFECTS = ("NoSchedule", "PreferNoSchedule")

labels = st.fixed_dictionaries({}, optional={"app": st.sampled_from("xy"), "tier": st.sampled_from("12")})
#: Few, so that questions about each repeat.
asked_labels = st.sampled_from(({"app": "x"}, {"app": "y", "tier": "1"}))
asked_namespaces = st.sampled_from(("one", "one", "exempt"))
node_labels = st.fixed_dictionaries(
    {}, optional={build.ZONE: st.sampled_from(("z1", "z2")), "rack": st.sampled_from(("r1", "r2", "r3"))}
)
taints = st.lists(st.sampled_from(("k=v:NoSchedule", "k=w:NoSchedule", "l:PreferNoSchedule")), max_size=2)
rooms = st.fixed_dictionaries(
    {"cpu": st.sampled_from("1248"), "pods": st.sampled_from(("1", "3", "9"))},
    optional={"example.com/gpu": st.sampled_from("12")},
)
requests = st.fixed_dictionaries(
    {}, optional={"cpu": st.sampled_from(("0", "500m", "2")), "example.com/gpu": st.just("1")}
)
namespaces_selected = st.sampled_from(
    (None, {}, build.selector("team=t"), build.selector("!team"), build.selector("team notin t"))
)
terms = st.builds(
    lambda key, selects, namespaces: build.term(key, selects, namespace_selector=namespaces),
    st.sampled_from(KEYS),
    st.sampled_from(
        [build.selector("app=x"), build.selector("app in x,y", "!tier"), build.selector("tier"), {}]
    ),
    namespaces_selected,
)
weighted = st.tuples(st.integers(1, 100), terms)
limited = st.builds(lambda term, most: {**term, "maxPodsPerDomain": most}, terms, st.integers(1, 4))
affinities = st.one_of(
    st.none(),
    st.builds(
        lambda near, far, liked, disliked: build.affinity(
            required=near, anti_required=far, preferred=liked, anti_preferred=disliked
        ),
        st.lists(terms, max_size=1),
        st.lists(terms, max_size=2),
        st.lists(weighted, max_size=2),
        st.lists(weighted, max_size=1),
    ),
)
selectors = st.builds(
    Selector,
    st.lists(
        st.sampled_from(
            (
                Requirement("app", "In", ("x",)),
                Requirement("app", "NotIn", ("x", "z")),
                Requirement("app", "In", ("y", "z")),
                Requirement("tier", "Exists"),
                Requirement("tier", "DoesNotExist"),
            )
        ),
        max_size=2,
    ).map(tuple),
)
namespace_rules = st.builds(
    NamespaceRule,
    st.frozensets(st.sampled_from(NAMESPACES), max_size=2),
    st.sampled_from((EVERYTHING, NOTHING, Selector((Requirement("team", "In", ("t",)),)))),
)
matchers = st.builds(
    PodMatcher,
    st.lists(st.tuples(namespace_rules, selectors), min_size=1, max_size=2).map(tuple),
    st.sampled_from((frozenset(), frozenset({"exempt"}))),
)
tolerations = st.sampled_from(
    ((), (Toleration("k", "Exists"),), (Toleration("k", "Equal", "v", effect="NoSchedule"),))
)


def _weight(kind: TermKind, weight: int) -> int:
    """Return the weight as in scoring; required affinity has weight 3."""
    return {TermKind.REQUIRED: 3, TermKind.PREFERRED: weight, TermKind.PREFERRED_ANTI: -weight}.get(kind, 0)


def _weight_of_existing(term: ExistingPodTerm) -> int:
    return _weight(term.key.kind, term.key.weight)


def _weight_of_declared(kind: TermKind, term: AffinityTerm) -> int:
    return _weight(kind, term.weight)


class DrawnPod(NamedTuple):
    """What a pod is made of, but for its name."""

    node_name: str
    labels: Mapping[str, str]
    namespace: str
    affinity: build.Json | None
    limits: list[build.Json]
    request: Mapping[str, str]
    assumed: bool
    terminating: bool


drawn_pods = st.builds(
    DrawnPod,
    node_name=NODE_NAMES,
    labels=labels,
    namespace=st.sampled_from(NAMESPACES),
    affinity=affinities,
    limits=st.one_of(st.just([]), st.lists(limited, max_size=2)),
    request=requests,
    assumed=st.booleans(),
    terminating=st.sampled_from((False, False, True)),
)


class States(RuleBasedStateMachine):
    """Adds, changes and removes nodes, namespaces and pods, with queries at any time."""

    def __init__(self) -> None:
        super().__init__()
        self._patched = pytest.MonkeyPatch()

    def teardown(self) -> None:
        self._patched.undo()

    @initialize(
        as_arrays=st.booleans(),
        n_remembered=st.sampled_from((8, 1024)),
        exempt=st.sampled_from((frozenset(), frozenset({"exempt"}))),
        max_derived_bytes=st.sampled_from((None, 0, 6000, 30_000)),
        asked=st.lists(matchers, min_size=3, max_size=3),
        zones=st.lists(st.sampled_from((None, "z1", "z2")), min_size=3, max_size=3),
        drawn=st.lists(drawn_pods, min_size=3, max_size=6),
    )
    def start(
        self,
        as_arrays: bool,
        n_remembered: int,
        exempt: frozenset[str],
        max_derived_bytes: int | None,
        asked: list[PodMatcher],
        zones: list[str | None],
        drawn: list[DrawnPod],
    ) -> None:
        """
        `as_arrays`: weigh terms as if they were very many. `n_remembered`: changes that the log remembers.

        `asked`: few, so that each is asked about again.
        """
        if as_arrays:
            self._patched.setattr("scheduler.engine.state.counts._FEW_TERMS", -1)
            self._patched.setattr("scheduler.engine.state.counts._MANY_TERMS", 5)
            self._patched.setattr("scheduler.engine.state.term_table._FEW_ENTRIES", 2)
            self._patched.setattr("scheduler.engine.state.existing_terms._SHRINKS_AT", 0)
            self._patched.setattr("scheduler.engine.state.term_table._MAX_NAMES", 1)
        self._patched.setattr("scheduler.engine.state.change_log._REMEMBERED", n_remembered)
        self._patched.setattr("scheduler.engine.state.change_log._REMEMBERED_TERMS", 8 * n_remembered)
        # The reference has no notion of namespaces whose annotations reach no other.
        everywhere = NamespaceRule(frozenset(), EVERYTHING)
        self.state = ClusterState(exempt, annotating=everywhere, max_derived_bytes=max_derived_bytes)
        self.view = ClusterView(self.state)
        self.plain = PlainState(exempt)
        self.fit = plugin_named("NodeResourcesFit")
        self._decoder = PodDecoder()
        self._asked = asked
        self._max_derived_bytes = max_derived_bytes
        for name, zone in zip(NODES, zones, strict=False):
            its = {} if zone is None else {build.ZONE: zone}
            made = build.node(name, labels=its, allocatable={"cpu": "4", "pods": "9"})
            self._upsert_node(decode_node(json.dumps(made).encode()))
        for one in drawn:
            self._add_pod(one)

    # What happens.

    @rule(name=st.sampled_from(NODES), its=node_labels, room=rooms, its_taints=taints)
    def upsert_node(
        self, name: str, its: Mapping[str, str], room: Mapping[str, str], its_taints: list[str]
    ) -> None:
        made = build.node(name, labels=its, allocatable=room, taints=its_taints)
        self._upsert_node(decode_node(json.dumps(made).encode()))

    @precondition(lambda self: self.plain.nodes)
    @rule(data=st.data(), room=rooms, cpu=st.sampled_from((500, 3000)))
    def resize_node(self, data: st.DataObject, room: Mapping[str, str], cpu: int) -> None:
        """Change the node's room after it was asked for; the node keeps its labels and taints."""
        self.look_for_room(cpu, gpus=0)
        name = data.draw(st.sampled_from(sorted(self.plain.nodes)))
        resized = decode_node(json.dumps(build.node(name, allocatable=room)).encode())
        self._upsert_node(replace(self.plain.nodes[name], allocatable=resized.allocatable))

    @rule(name=st.sampled_from(NODES))
    def remove_node(self, name: str) -> None:
        """Remove the node; its row becomes a ghost if it has pods."""
        self.plain.nodes.pop(name, None)
        self.state.nodes.remove(name)

    @rule(name=st.sampled_from(NAMESPACES), team=st.sampled_from((None, "t", "u")))
    def upsert_namespace(self, name: str, team: str | None) -> None:
        made = build.namespace(name, labels={} if team is None else {"team": team})
        namespace = KINDS["Namespace"].decode(json.dumps(made).encode())
        self.plain.namespaces[name] = namespace.labels
        self.state.relabel_namespace(name, namespace.labels)

    @rule(name=st.sampled_from(NAMESPACES))
    def remove_namespace(self, name: str) -> None:
        self.plain.namespaces.pop(name, None)
        self.state.relabel_namespace(name, None)

    @rule(drawn=st.lists(drawn_pods, min_size=1, max_size=3))
    def add_pods(self, drawn: list[DrawnPod]) -> None:
        """Add confirmed or assumed pods, or replace one that exists."""
        for one in drawn:
            self._add_pod(one)

    @precondition(lambda self: self.plain.pods)
    @rule(data=st.data(), its=labels)
    def relabel_pod(self, data: st.DataObject, its: Mapping[str, str]) -> None:
        """Relabel a confirmed or an assumed pod."""
        known = self._any_pod(data)
        pod = replace(known.pod, labels=its)
        if known.assumed:
            self.state.update_assumed(pod)
            self.plain.put(pod, known.node_name, assumed=True)
        else:
            self._upsert(pod, known.node_name)

    @precondition(lambda self: self.plain.pods)
    @rule(data=st.data(), node_name=NODE_NAMES)
    def move_pod(self, data: st.DataObject, node_name: str) -> None:
        self._upsert(self._any_pod(data).pod, node_name)

    @precondition(lambda self: self.plain.pods)
    @rule(data=st.data())
    def terminate_pod(self, data: st.DataObject) -> None:
        known = self._any_pod(data)
        self._upsert(replace(known.pod, terminating=True), known.node_name)

    @precondition(lambda self: self.plain.pods)
    @rule(data=st.data())
    def confirm_or_forget(self, data: st.DataObject) -> None:
        """Forget a pod: an assumed one no longer counts, a confirmed one stays."""
        known = self._any_pod(data)
        assert (self.state.forget(known.pod.uid) is not None) is known.assumed
        if known.assumed:
            del self.plain.pods[known.pod.uid]

    @precondition(lambda self: self.plain.pods)
    @rule(data=st.data())
    def remove_pod(self, data: st.DataObject) -> None:
        uid = self._any_pod(data).pod.uid
        del self.plain.pods[uid]
        assert self.state.remove_pod(uid) is not None

    @rule(n_times=st.sampled_from((1, 3)))
    def sweep(self, n_times: int) -> None:
        """Sweep; three sweeps in a row drop every label set without pods, whose number is reused."""
        for _ in range(n_times):
            finished(self.state.sweeping())

    @precondition(lambda self: self.plain.pods)
    @rule(data=st.data())
    def come_and_go(self, data: st.DataObject) -> None:
        """Remove and add the pod more often than a short log remembers."""
        known = self._any_pod(data)
        for _ in range(5):
            self.state.remove_pod(known.pod.uid)
            self.state.upsert_pod(replace(known.pod, node_name=known.node_name))
        known.assumed = False

    # Questions.

    @rule(number=st.integers(0, 2), live_only=st.booleans())
    def count_pods(self, number: int, live_only: bool) -> None:
        """Count on rows, in domains, and in the domains of nodes with a zone."""
        matcher = self._asked[number]
        wanted = self.plain.selected(matcher, live_only=live_only)
        counts = self.view.selected(matcher, live_only=live_only)
        assert self._by_name(counts.by_row) == +wanted
        zoned = {name: n for name, n in wanted.items() if self.plain.domain(name, build.ZONE) is not None}
        for key in KEYS:
            column = self.view.column(key)
            per_domain = counts.per_domain(KeyDomains(column))
            in_domains = self.plain.per_domain(wanted, key)
            assert self._by_domain(per_domain, key) == in_domains
            for least in (1, 2):
                reaching = {
                    n for n in self.plain.nodes if in_domains[self.plain.domain(n, key) or ""] >= least
                }
                assert self._names(per_domain.at_least(least)) == reaching
            among_zoned = counts.per_domain(KeyDomains(column, self.view.eligible((build.ZONE,))))
            assert self._by_domain(among_zoned, key) == self.plain.per_domain(zoned, key)

    @rule(its=asked_labels, namespace=asked_namespaces)
    def sum_terms(self, its: Mapping[str, str], namespace: str) -> None:
        """Sum the weights of preferences, and those of required anti-affinity."""
        label_set, incoming = self._incoming(its, namespace)
        found = self.view.state.counts.term_sums("weights", label_set, _weight_of_existing)
        wanted = self.plain.term_sums(incoming, _weight_of_declared)
        assert self._sums(found.by_key) == wanted
        forbidding = self.view.state.counts.term_sums(
            "forbids", label_set, lambda term: int(term.is_forbidding)
        )
        forbidden = self.plain.term_sums(
            incoming, lambda kind, term: int(kind is TermKind.REQUIRED_ANTI and term.max_pods == 1)
        )
        assert self._sums(forbidding.by_key) == forbidden

    @rule(its=asked_labels, namespace=asked_namespaces)
    def look_for_full_domains(self, its: Mapping[str, str], namespace: str) -> None:
        label_set, incoming = self._incoming(its, namespace)
        context = PodContext(self._pod(its, namespace), label_set)
        full: set[str] = set()
        for mask in full_domains(limiting_terms(context, self.view), self.view):
            full |= self._names(mask)
        assert full == self.plain.full_nodes(incoming)

    @precondition(lambda self: self.plain.pods)
    @rule(data=st.data())
    def count_declaring_pods(self, data: st.DataObject) -> None:
        declared = list(self.state.terms)
        if declared:
            term = data.draw(st.sampled_from(declared))
            wanted = {
                name: n
                for name in {one.node_name for one in self.plain.pods.values()}
                if (n := term.pods_by_row.get(self.state.nodes.row_by_name[name], 0))
            }
            assert self._by_name(self.view.state.counts.declaring(term)) == wanted

    @rule(cpu=st.sampled_from((0, 500, 3000)), gpus=st.sampled_from((0, 1)))
    def look_for_room(self, cpu: int, gpus: int) -> None:
        request = {"cpu": f"{cpu}m", **({"example.com/gpu": str(gpus)} if gpus else {})}
        made = build.pod("room", containers=[build.container(requests=request)])
        pod = self._decoder.decode(json.dumps(made).encode())
        node_filter = self.fit.prefilter(PodContext(pod, self.view.label_set(pod)), self.view)
        wanted = {name: amount for name, amount in (("cpu", cpu), ("example.com/gpu", gpus)) if amount}
        assert self._names(node_filter.mask()) == self.plain.with_room(wanted)

    @rule(its=tolerations, keys=st.sampled_from(((), (build.ZONE,), (build.ZONE, "rack"))))
    def look_for_eligible_nodes(self, its: tuple[Toleration, ...], keys: tuple[str, ...]) -> None:
        for effect in EFFECTS:
            wanted = self.plain.n_untolerated_taints(its, (effect,))
            assert self._by_name(self.view.n_untolerated_taints(its, (effect,))) == +wanted
        refused = self.plain.n_untolerated_taints(its, ("NoSchedule", "NoExecute"))
        assert self._names(self.view.eligible(keys, tolerations=its)) == {
            name
            for name, node in self.plain.nodes.items()
            if not refused[name] and node.labels.keys() >= {*keys}
        }

    # What is always so.

    @invariant()
    def a_recount_finds_the_same(self) -> None:
        if hasattr(self, "state"):
            assert differences(self.state) == []
            assert self.state.n_assumed == sum(one.assumed for one in self.plain.pods.values())
            shown = {uid: placed.pod.labels for uid, placed in self.state.placed.items()}
            assert shown == {uid: one.pod.labels for uid, one in self.plain.pods.items()}
            sizes = [one.n_bytes for one in self.state.derived._entries.values()]
            assert self.state.derived.n_bytes == sum(sizes)
            if self._max_derived_bytes is not None:
                # One value that is larger than the bound stays until another one is as new.
                assert sum(sizes) <= max(self._max_derived_bytes, *sizes, 0)

    def _any_pod(self, data: st.DataObject) -> PlainPod:
        return self.plain.pods[data.draw(st.sampled_from(sorted(self.plain.pods)))]

    def _upsert_node(self, node: Node) -> None:
        self.plain.nodes[node.name] = node
        self.state.nodes.upsert(node)

    def _add_pod(self, drawn: DrawnPod) -> None:
        uid = next((uid for uid in UIDS if uid not in self.plain.pods), UIDS[0])
        asked = {ANNOTATION: json.dumps(build.affinity(anti_required=drawn.limits))} if drawn.limits else {}
        made = build.pod(
            uid,
            uid=uid,
            namespace=drawn.namespace,
            labels=drawn.labels,
            affinity=drawn.affinity,
            terminating=drawn.terminating,
            containers=[build.container(requests=drawn.request)],
            annotations=asked,
        )
        pod = self._decoder.decode(json.dumps(made).encode())
        if drawn.assumed and uid not in self.plain.pods:
            self.state.assume(replace(pod, node_name=drawn.node_name), drawn.node_name)
            self.plain.put(pod, drawn.node_name, assumed=True)
        else:
            self._upsert(pod, drawn.node_name)

    def _upsert(self, pod: Pod, node_name: str) -> None:
        self.state.upsert_pod(replace(pod, node_name=node_name))
        self.plain.put(pod, node_name)

    def _pod(self, its: Mapping[str, str], namespace: str) -> Pod:
        made = build.pod("incoming", labels=its, namespace=namespace)
        return self._decoder.decode(json.dumps(made).encode())

    def _incoming(self, its: Mapping[str, str], namespace: str) -> tuple[LabelSet, Labelled]:
        return self.view.label_set(self._pod(its, namespace)), (namespace, its)

    def _by_name(self, by_row: Any) -> dict[str, int]:
        assert len(by_row) == self.view.n_rows
        return {self.state.nodes.name_of(row): by_row.item(row) for row in np.flatnonzero(by_row).tolist()}

    def _by_domain(self, per_domain: PerDomain, key: str) -> dict[str, int]:
        column = self.view.column(key)
        assert len(per_domain.amounts) == column.n_ids
        assert per_domain.amounts[0] == 0
        found = {value: per_domain.amounts.item(number) for value, number in column.id_by_value.items()}
        assert sum(found.values()) == per_domain.amounts.sum()
        return {value: amount for value, amount in found.items() if amount}

    def _sums(self, by_key: Mapping[str, PerDomain]) -> dict[str, dict[str, int]]:
        found = {key: self._by_domain(per_domain, key) for key, per_domain in by_key.items()}
        return {key: per_domain for key, per_domain in found.items() if per_domain}

    def _names(self, mask: Mask) -> set[str]:
        live = np.flatnonzero(mask & self.view.alive).tolist()
        return {self.state.nodes.name_of(row) for row in live}


States.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestStates = States.TestCase
