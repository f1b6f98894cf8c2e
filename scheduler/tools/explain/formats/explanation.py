"""
The values of an explanation. Their JSON is what `-o json` prints, and is stable.

JSON names are camelCase without the prefix `n_`: `n_nodes` is `nodes`. Within `affinity-scheduler.io/v1`, no field is
ever left out or changes its meaning; new fields may come. Lists of pods, groups, rules and domains are bounded; a field
beside each has the total or the number left out. A change is an object whose field `change` names it
(`engine.model.changes`).
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from scheduler.engine.core.decision_annotation import DecisionRecord, RankedNode
from scheduler.engine.framework.explaining import Share, Skew
from scheduler.engine.model.changes import Changes
from scheduler.engine.syntax.words import counted

API_VERSION: Final = "affinity-scheduler.io/v1"

State = Literal["unschedulable", "schedulable", "bound", "gated", "failed", "finished"]


def json_name(field: str) -> str:
    """Return the JSON name of a field: camelCase, without the prefix `n_`."""
    first, *rest = field.removeprefix("n_").split("_")
    return first + "".join(word.capitalize() for word in rest)


class JsonStruct(msgspec.Struct, frozen=True, rename=json_name):
    """A struct whose JSON fields are named by `json_name`."""


class Document(JsonStruct, frozen=True, kw_only=True):
    """A JSON object of our API; each kind of it names itself in the field `kind`."""

    api_version: str = API_VERSION


class Answer(msgspec.Struct, kw_only=True, rename=json_name):
    """A document that is filled in step by step."""

    api_version: str = API_VERSION


class PodRef(JsonStruct, frozen=True):
    """A pod, its node, and its domain of the rule's topology key."""

    namespace: str
    name: str
    node: str = ""
    domain: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Pods(JsonStruct, frozen=True):
    """A total, and some of the pods by name."""

    n_total: int = 0
    shown: tuple[PodRef, ...] = ()


class NodeGroup(JsonStruct, frozen=True):
    """Nodes that the same plugin refuses first, for the same reason and in the same place."""

    plugin: str
    reason: str
    where: str
    n_nodes: int
    examples: tuple[str, ...]
    #: Whether the node could fit once other pods are removed.
    removable: bool
    #: Of `where`: no node is or has what the pod asks for; and one has something of nearly the same name.
    nowhere: bool = False
    misspelt: bool = False


class DomainCount(JsonStruct, frozen=True):
    """A domain of a rule: its eligible nodes, the pods that the rule counts there, and whether it admits the pod."""

    domain: str
    n_nodes: int
    n_pods: int
    #: The most pods that the domain may already have; None for required affinity.
    most: int | None
    allowed: bool


class Rule(JsonStruct, frozen=True):
    """A rule about pods per domain that refuses nodes, such as an affinity term or a spread constraint."""

    #: Built-in plugins have requiredAffinity, requiredAntiAffinity, existingAntiAffinity and topologySpread.
    kind: str
    #: The running pods with the rule; None if it is the pod's own.
    declared_by: Pods | None
    topology_key: str
    selects: str
    namespaces: str
    #: The nodes that the rule refuses.
    n_nodes: int
    #: The blocking pods; for required affinity and spread, the pods that the rule counts.
    pods: Pods
    #: Pods without a node that a required affinity selects.
    pending: Pods
    skew: Skew | None
    domains: tuple[DomainCount, ...]
    n_more_domains: int
    #: The rule as a sentence.
    text: str = ""
    share: Share | None = None


class Suggestion(JsonStruct, frozen=True):
    """Changes, and each as a sentence, all of which are needed to let the pod schedule to `node`, as a decision did."""

    changes: Changes
    node: str
    texts: tuple[str, ...]


class RefusedMember(JsonStruct, frozen=True):
    """
    The first member of a group that has no place once the others, `placed`, have theirs.

    `domain`: the value of the topology key that the members have to share; empty if they share none.
    """

    namespace: str
    pod: str
    domain: str
    placed: Pods


class Incomplete(JsonStruct, frozen=True):
    """
    A group of which fewer pods exist than it needs.

    `workload`: such as `Deployment default/web`, if one makes all of them; empty otherwise. `n_replicas`: how many it
    has to make.
    """

    n_pods: int
    n_needed: int
    workload: str
    n_replicas: int

    @property
    def text(self) -> str:
        """How many there are."""
        return f"{self.n_pods} of the {counted(self.n_needed, 'pod')} that its group needs exist"

    @property
    def change(self) -> str:
        """What would make the group complete."""
        if self.workload:
            return f"{self.workload} has replicas: {self.n_replicas}"
        return f"{counted(self.n_needed - self.n_pods, 'more pod')} of the group"


class Explanation(Answer, kw_only=True):
    """The explanation of one pod."""

    kind: str = "Explanation"
    namespace: str
    pod: str
    #: Empty while the pod has none.
    node: str = ""
    scheduler_name: str
    profile: str
    state: State
    #: If the pod waits, the text of its event.
    message: str
    #: The live nodes, and those that fit.
    n_nodes: int
    n_feasible: int = 0
    groups: tuple[NodeGroup, ...] = ()
    n_more_groups: int = 0
    rules: tuple[Rule, ...] = ()
    n_more_rules: int = 0
    suggestions: tuple[Suggestion, ...] = ()
    #: Weighted points by plugin.
    scores: tuple[RankedNode, ...] = ()
    #: The decision at the bind, as an annotation of the pod says.
    recorded: DecisionRecord | None = None
    notes: tuple[str, ...] = ()
    #: `namespace/name` of the group with which the pod is placed; `message` is about all its members then.
    group: str = ""
    #: The refused member that `groups` and `rules` are about; None for a pod on its own.
    member: RefusedMember | None = None
    #: Why no scheduler serves the pod; empty if one does or if it is not known.
    unserved: str = ""
    #: Whether the pod is bound to a node that does not exist.
    node_gone: bool = False
    incomplete: Incomplete | None = None

    @property
    def is_ok(self) -> bool:
        """Whether the pod has a node that exists, could have one, or has finished."""
        fits = self.state in ("schedulable", "bound", "finished")
        return fits and not self.unserved and not self.node_gone
