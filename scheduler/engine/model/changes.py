"""
Changes to the cluster or to a pod that may let the pod schedule: what explanations propose and try.

They are part of an explanation's JSON (`scheduler.tools.explain.formats.explanation`), which is stable.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class _Change(
    msgspec.Struct,
    frozen=True,
    rename="camel",
    tag_field="change",
    tag=lambda name: name[0].lower() + name[1:],
):
    """One change to the cluster or the pod."""


class RemovePod(_Change, frozen=True):
    """The pod leaves its node."""

    namespace: str
    pod: str
    node: str
    uid: str
    terminating: bool = False


class RunPod(_Change, frozen=True):
    """A pod with these labels runs on the node, or in its domain."""

    namespace: str
    labels: dict[str, str]
    node: str

    def __hash__(self) -> int:
        return hash((self.namespace, self.node, frozenset(self.labels.items())))


class AddRoom(_Change, frozen=True):
    """The node has this much more of a resource: milli-units of cpu, whole units of the others."""

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
    """The node has the label; None removes it."""

    node: str
    key: str
    value: str | None


class LabelNamespace(_Change, frozen=True):
    """The namespace has the label."""

    namespace: str
    key: str
    value: str


class AllowSkew(_Change, frozen=True):
    """The pod's spread constraint on the key has this maxSkew."""

    topology_key: str
    max_skew: int


class AddMatchLabelKey(_Change, frozen=True):
    """The pod's required terms of the field that have the topology key get the label key in their matchLabelKeys."""

    field: Literal["podAntiAffinity", "topologySpreadConstraints"]
    topology_key: str
    label_key: str


class RecreateWithMatchLabelKey(_Change, frozen=True):
    """The running pods with the pod's anti-affinity terms by the topology key are recreated, with the label key."""

    topology_key: str
    label_key: str
    pods: int


class HonorPolicy(_Change, frozen=True):
    """The pod's required spread constraints on the key have the policy Honor in the field."""

    topology_key: str
    field: Literal["nodeTaintsPolicy", "nodeAffinityPolicy"]


class RollOutInPlace(_Change, frozen=True):
    """The Deployment's rollout takes an old pod away before it makes a new one: maxSurge 0, maxUnavailable 1."""

    namespace: str
    deployment: str


class UnselectNode(_Change, frozen=True):
    """The claim is without the annotation that selects the node, which is gone, for its volume."""

    namespace: str
    claim: str
    node: str


class TolerateDeviceTaint(_Change, frozen=True):
    """The claim's request tolerates the taint of devices."""

    namespace: str
    claim: str
    request: str
    key: str
    value: str
    effect: str


class DropDeviceConstraint(_Change, frozen=True):
    """The claim is without its constraints on the attribute."""

    namespace: str
    claim: str
    attribute: str


#: Changes of the pod itself; all others change the cluster.
PodChange = TolerateTaint | AllowSkew | AddMatchLabelKey | HonorPolicy

#: The easiest to make first, and lasting ones before others: of suggestions of one size those come first.
Change = (
    LabelNamespace
    | UnselectNode
    | RollOutInPlace
    | HonorPolicy
    | AddMatchLabelKey
    | Uncordon
    | TolerateTaint
    | RemoveTaint
    | LabelNode
    | RunPod
    | RemovePod
    | AllowSkew
    | TolerateDeviceTaint
    | DropDeviceConstraint
    | AddRoom
    | RecreateWithMatchLabelKey
)
#: Changes that are made together.
Changes = tuple[Change, ...]
