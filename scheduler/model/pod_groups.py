"""
Groups of pods that are placed as one, and how a pod names its group.

Three ways, the first that a pod has counts: `spec.schedulingGroup` and PodGroup of `scheduling.k8s.io` (kubernetes 1.36
and 1.37); the label and PodGroup of scheduler-plugins' coscheduling; two labels or annotations of our own, for which a
cluster needs no kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from scheduler.syntax.selectors import escaped

#: The group's name, as label or annotation of its members.
GROUP: Final = "affinity-scheduler.io/pod-group"
#: How many members have to exist before any is placed; the members of a group agree on it.
MIN_COUNT: Final = "affinity-scheduler.io/pod-group-min-count"
#: The label of scheduler-plugins' coscheduling.
COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"

#: Most members that a group may ask for.
LIMIT_MEMBERS: Final = 5_000


class GroupKind(StrEnum):
    """Where a group is described; the value is the API group of its PodGroup."""

    KUBERNETES = "scheduling.k8s.io"
    COSCHEDULING = "scheduling.x-k8s.io"
    #: Its members say themselves how many they are.
    OWN = "affinity-scheduler.io"


class GroupKey(NamedTuple):
    """The identity of a group, which is in the namespace of its members."""

    kind: GroupKind
    namespace: str
    name: str

    @property
    def text(self) -> str:
        """Return `namespace/name`, as messages show it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class GroupReference:
    """
    What a pod says of its group.

    `min_count`: given for a group of our own alone; 0 otherwise. `problem`: why the minimum does not parse, in which
    case the pod is not placed.
    """

    key: GroupKey
    min_count: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """
    A PodGroup object.

    `min_count`: members of which all are placed or none; 1 without a gang. `topology_key`: a node label of which all
    members share the value; empty for none. `was_scheduled`: its status says that it was placed once.
    """

    key: GroupKey
    min_count: int
    topology_key: str = ""
    was_scheduled: bool = False
    uid: str = ""
    generation: int = 0


def group_reference(
    namespace: str, scheduling_group: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> GroupReference | None:
    """Return the group that a pod names, None if it names none. 0.2 µs for a pod without a group."""
    if scheduling_group:
        return GroupReference(GroupKey(GroupKind.KUBERNETES, namespace, scheduling_group))
    if name := labels.get(COSCHEDULING_GROUP, ""):
        return GroupReference(GroupKey(GroupKind.COSCHEDULING, namespace, name))
    name = labels.get(GROUP) or annotations.get(GROUP, "")
    if not name:
        return None
    key, text = GroupKey(GroupKind.OWN, namespace, name), labels.get(MIN_COUNT) or annotations.get(MIN_COUNT)
    if text is not None and text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= LIMIT_MEMBERS:
        return GroupReference(key, int(text))
    found = "none" if text is None else f'"{escaped(text[:64])}"'
    return GroupReference(
        key, problem=f"{MIN_COUNT} of the pod: found {found}, expected 1 to {LIMIT_MEMBERS}"
    )
