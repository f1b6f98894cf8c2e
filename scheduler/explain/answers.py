"""
What an explanation says, as values; their JSON is the stable form that `-o json` prints.

Field names are camelCase without the `n_` that marks numbers here: `n_nodes` is `nodes`. Fields are never left out and
never change their meaning within `affinity-scheduler.io/v1`; new ones may come. Lists of pods, groups, rules and
domains are bounded, with the full number beside them.

    {"apiVersion": "affinity-scheduler.io/v1", "kind": "Explanation",
     "namespace", "pod", "node" ("" while it has none), "schedulerName", "profile",
     "state": "unschedulable" | "schedulable" | "bound" | "gated" | "failed" | "finished",
     "message": the text of the event, "nodes": live nodes, "feasible": those that fit,
     "groups": [{"plugin", "reason", "where", "nodes", "examples": [node names], "removable"}], "moreGroups",
     "rules": [{"kind": "requiredAffinity" | "requiredAntiAffinity" | "existingAntiAffinity" | "topologySpread",
                "declaredBy": Pods or null for the pod itself, "topologyKey", "selects", "namespaces",
                "nodes": refused by it, "pods": Pods, "pending": Pods, "skew": null or {...},
                "domains": [{"domain", "nodes", "pods", "most", "allowed"}], "moreDomains"}], "moreRules",
     "suggestions": [{"changes": [{"change": ..., ...}], "node": where the pod would go}],
     "scores": [{"node", "total", "scores": {plugin: weighted points}}],
     "recorded": the annotation's record or null, "notes": [texts]}

    Pods: {"total", "shown": [{"namespace", "name", "node", "domain"}]}
    most: pods that a domain may have for the pod to be let in; null where the rule asks for pods.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from scheduler.core.recording import DecisionRecord, RankedNode

API_VERSION: Final = "affinity-scheduler.io/v1"

State = Literal["unschedulable", "schedulable", "bound", "gated", "failed", "finished"]
RuleKind = Literal["requiredAffinity", "requiredAntiAffinity", "existingAntiAffinity", "topologySpread"]


def json_name(field: str) -> str:
    """The JSON name of a field: camelCase, numbers without their `n_`."""
    first, *rest = field.removeprefix("n_").split("_")
    return first + "".join(word.capitalize() for word in rest)


class Answer(msgspec.Struct, frozen=True, rename=json_name):
    """A part of an explanation."""


class PodRef(Answer, frozen=True):
    """A pod by name, the node it is on, and that node's value of the topology key in question."""

    namespace: str
    name: str
    node: str = ""
    domain: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Pods(Answer, frozen=True):
    """Some pods by name, and how many there are."""

    n_total: int = 0
    shown: tuple[PodRef, ...] = ()


class NodeGroup(Answer, frozen=True):
    """Nodes that the same plugin refuses first, for the same reason, in the same place."""

    plugin: str
    reason: str
    where: str
    n_nodes: int
    examples: tuple[str, ...]
    #: Whether removing pods could lift the refusal.
    removable: bool


class Domain(Answer, frozen=True):
    """One domain of a rule: its nodes that count, the pods that the rule counts there, and whether it is open."""

    domain: str
    n_nodes: int
    n_pods: int
    most: int | None
    allowed: bool


class Skew(Answer, frozen=True):
    """The numbers of a spread constraint: `fewest` pods in any domain, 0 where there are too few domains."""

    max_skew: int
    min_domains: int
    n_domains: int
    fewest: int
    counts_itself: bool


class Rule(Answer, frozen=True):
    """An affinity term or spread constraint that refuses nodes, whose it is, and the pods that matter to it."""

    kind: RuleKind
    declared_by: Pods | None
    topology_key: str
    selects: str
    namespaces: str
    n_nodes: int
    #: The blocking pods; of required affinity and spread those that the rule counts.
    pods: Pods
    #: Pods that a required affinity asks for, and that have no node themselves.
    pending: Pods
    skew: Skew | None
    domains: tuple[Domain, ...]
    n_more_domains: int


class _Change(Answer, frozen=True, tag_field="change", tag=lambda name: name[0].lower() + name[1:]):
    """One thing that would have to be otherwise."""


class RemovePod(_Change, frozen=True):
    """The pod leaves its node."""

    namespace: str
    pod: str
    node: str
    uid: str
    terminating: bool = False


class RunPod(_Change, frozen=True):
    """A pod of these labels runs on the node, or in its domain."""

    namespace: str
    labels: dict[str, str]
    node: str

    def __hash__(self) -> int:
        return hash((self.namespace, self.node, frozenset(self.labels.items())))


class AddRoom(_Change, frozen=True):
    """The node has that much more of a resource; milli-units of cpu, whole units of all else."""

    node: str
    resource: str
    amount: int


class TolerateTaint(_Change, frozen=True):
    """The pod tolerates the taint."""

    key: str
    value: str
    effect: str


class RemoveTaint(_Change, frozen=True):
    """The node loses the taint."""

    node: str
    key: str
    value: str
    effect: str


class Uncordon(_Change, frozen=True):
    """The node is schedulable again."""

    node: str


class LabelNode(_Change, frozen=True):
    """The node has the label; None takes it away."""

    node: str
    key: str
    value: str | None


class LabelNamespace(_Change, frozen=True):
    """The namespace has the label."""

    namespace: str
    key: str
    value: str


class AllowSkew(_Change, frozen=True):
    """The pod's spread constraint over the key allows that skew."""

    topology_key: str
    max_skew: int


Change = (
    RemovePod
    | RunPod
    | AddRoom
    | TolerateTaint
    | RemoveTaint
    | Uncordon
    | LabelNode
    | LabelNamespace
    | AllowSkew
)


class Suggestion(Answer, frozen=True):
    """Changes that, all made, let the pod onto `node`: tried, and none of them can be left out."""

    changes: tuple[Change, ...]
    node: str


class Explanation(Answer, frozen=True, kw_only=True):
    """Everything; see the module."""

    api_version: str = API_VERSION
    kind: str = "Explanation"
    namespace: str
    pod: str
    node: str = ""
    scheduler_name: str
    profile: str
    state: State
    message: str
    n_nodes: int
    n_feasible: int = 0
    groups: tuple[NodeGroup, ...] = ()
    n_more_groups: int = 0
    rules: tuple[Rule, ...] = ()
    n_more_rules: int = 0
    suggestions: tuple[Suggestion, ...] = ()
    scores: tuple[RankedNode, ...] = ()
    recorded: DecisionRecord | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether there is nothing to mend: the pod has a node, could have one, or needs none any more."""
        return self.state in ("schedulable", "bound", "finished")
