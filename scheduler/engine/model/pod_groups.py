"""
Groups of pods that are placed as one, and how a pod names its group.

There are three ways, and the first that a pod uses counts: `spec.schedulingGroup` and PodGroup of `scheduling.k8s.io`
(kubernetes 1.36 and 1.37); the label and PodGroup of scheduler-plugins' coscheduling; two labels or annotations of our
own, for which a cluster needs no kind; `group_forms` turns the labels and annotations of other projects into these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from scheduler.engine.model.group_forms import (
    GROUP_FROM,
    JOB_SET,
    LEADER_WORKER_SET,
    Rank,
    rank_by,
    with_kueue_levels,
    workload_group,
)
from scheduler.engine.model.group_topology import (
    ANYWHERE,
    PART,
    PART_MIN_COUNT,
    PART_PREFERRED_TOPOLOGY,
    PART_REQUIRED_TOPOLOGY,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    Part,
    Topology,
    parse_topology,
)
from scheduler.engine.model.json_fields import UNREAD, At, Reader, ResourceVersion, namespace_and_name
from scheduler.engine.model.wire import Wire
from scheduler.engine.syntax.names import label_value_faults
from scheduler.engine.syntax.selectors import escaped

#: The group's name, as label or annotation of its members.
GROUP: Final = "affinity-scheduler.io/pod-group"
#: How many members have to exist before any is placed; the members of a group agree on it.
MIN_COUNT: Final = "affinity-scheduler.io/pod-group-min-count"
#: A number by which a member has its place among the others, as label or annotation; before what its workload says.
RANK: Final = "affinity-scheduler.io/pod-group-rank"
#: Seconds after which the members on nodes are evicted if others are lost and wait in vain; an annotation of members.
RELEASE_AFTER: Final = "affinity-scheduler.io/pod-group-release-after-seconds"
#: The condition that says whether a PodGroup that was placed still has enough members on nodes.
WHOLE: Final = "affinity-scheduler.io/Whole"
#: The label of scheduler-plugins' coscheduling.
COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"

#: The condition that says whether a PodGroup of scheduling.k8s.io was placed, by the version of its API.
CONDITION_TYPES: Final = {"v1alpha2": "PodGroupScheduled", "v1beta1": "PodGroupInitiallyScheduled"}

#: Labels and annotations that need a part, and a group.
_PART_KEYS: Final = frozenset({PART_MIN_COUNT, PART_REQUIRED_TOPOLOGY, PART_PREFERRED_TOPOLOGY})
GROUP_KEYS: Final = _PART_KEYS | {
    *(GROUP, PART, RANK, MIN_COUNT, RELEASE_AFTER, REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY)
}

#: Most members that a group may ask for.
LIMIT_MEMBERS: Final = 5_000
LIMIT_RANK: Final = 999_999
#: A week.
_LIMIT_AFTER_S: Final = 604_800


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

    `min_count`: given for a group of our own alone; 0 otherwise. `problem`: why name or a number do not parse, in which
    case the pod is in no group of other pods, and is not placed. `release_after_s`: 0 for never.
    `topology`: of the group; counts unless its object asks for one. `part`: None in a group without parts.
    `is_min_count_derived`: whether `min_count` follows from the pod's workload, so that others' may differ. `rank`: of
    the pod among the members, in the order of ranks; empty if it has none.
    """

    key: GroupKey
    min_count: int = 0
    problem: str = ""
    release_after_s: int = 0
    topology: Topology = ANYWHERE
    part: Part | None = None
    is_min_count_derived: bool = False
    rank: Rank = field(default=(), compare=False)


class GroupCondition(Wire, frozen=True):
    """status.conditions[] of a PodGroup, as far as it is written back."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class TopologyConstraint(Wire, frozen=True):
    """spec.schedulingConstraints.topology[] of a PodGroup."""

    key: str = ""


class DisruptionMode(Wire, frozen=True):
    """spec.disruptionMode of a PodGroup as v1beta1 has it; in v1alpha2 it is a text."""

    all: dict[str, object] | None = None


def _at_least_one(min_count: int) -> int:
    return max(1, min_count)


def _required(levels: tuple[TopologyConstraint, ...]) -> Topology:
    return Topology(required=tuple(level.key for level in levels if level.key))


def _is_disrupted_whole(mode: str | DisruptionMode | None) -> bool:
    return mode.all is not None if isinstance(mode, DisruptionMode) else mode == "PodGroup"


@dataclass(frozen=True, slots=True)
class PodGroup:
    """
    A PodGroup object, or what the members of a group of our own say.

    `min_count`: fewer members are not placed; 1 without a gang. `api_version`: of scheduling.k8s.io; empty
    if we do not write its status. `priority`: the group's own, None if it has none. `is_disrupted_whole`: whether all
    its members are evicted or none.
    """

    key: Annotated[GroupKey, UNREAD]
    min_count: Annotated[int, At("spec.schedulingPolicy.gang.minCount", parse=_at_least_one)]
    topology: Annotated[
        Topology,
        At("spec.schedulingConstraints.topology", of=tuple[TopologyConstraint, ...], parse=_required),
    ] = ANYWHERE
    api_version: Annotated[str, UNREAD] = ""
    resource_version: ResourceVersion = ""
    generation: Annotated[int, At("metadata.generation")] = 0
    conditions: Annotated[tuple[GroupCondition, ...], At("status.conditions")] = ()
    priority: Annotated[int | None, At("spec.priority")] = None
    is_disrupted_whole: Annotated[
        bool, At("spec.disruptionMode", of=str | DisruptionMode | None, parse=_is_disrupted_whole)
    ] = False

    @property
    def victim_priority(self) -> int | None:
        """
        Return the priority as which each member is evicted; None for its own. See `PodGroups.victim_priority`.

        Source: framework/preemption/types.go, newDomainForWorkloadPreemption (kubernetes 1.36, v1alpha2), where members
        that are evicted one by one have their own; kubernetes/kubernetes#139030 (1.37, v1beta1).
        """
        if self.is_disrupted_whole:
            return self.priority or 0
        return self.priority if self.api_version != "v1alpha2" else None

    @property
    def scheduled_condition(self) -> GroupCondition | None:
        """Return the condition that says whether the group was placed; None if there is none."""
        return self.condition_of("")

    def condition_of(self, condition_type: str) -> GroupCondition | None:
        """Return the condition of the type, empty for `scheduled_condition`; None if there is none."""
        types = (condition_type,) if condition_type else CONDITION_TYPES.values()
        return next((condition for condition in self.conditions if condition.type in types), None)

    @property
    def was_scheduled(self) -> bool:
        """Return whether the status says that the group was placed once; no server takes that back."""
        condition = self.scheduled_condition
        return condition is not None and condition.status == "True"


def _place_of(kind: GroupKind) -> At:
    def key(namespace: str, name: str) -> GroupKey:
        return GroupKey(kind, *namespace_and_name(namespace, name))

    return At("metadata.namespace", ("metadata.name",), parse=key)


GROUPS: Final = {
    GroupKind.KUBERNETES: Reader(PodGroup, key=_place_of(GroupKind.KUBERNETES)),
    GroupKind.COSCHEDULING: Reader(
        PodGroup,
        key=_place_of(GroupKind.COSCHEDULING),
        min_count=At("spec.minMember", parse=_at_least_one),
        priority=UNREAD,
        is_disrupted_whole=UNREAD,
    ),
}


def group_reference(
    namespace: str, scheduling_group: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> GroupReference | None:
    """Return the group that a pod names, None if it names none."""
    own_annotations, source, fault = annotations, annotations.get(GROUP_FROM), ""
    if source in (LEADER_WORKER_SET, JOB_SET):
        annotations = workload_group(GROUP, MIN_COUNT, labels, annotations)
    elif source is not None:
        fault = f'{GROUP_FROM} of the pod: found "{escaped(source[:64])}", expected {LEADER_WORKER_SET} or {JOB_SET}'
    key = _key(namespace, scheduling_group, labels, annotations)
    if key is None and source is not None:
        fault = fault or f'{GROUP_FROM} of the pod: found "{source}", expected a label with the name of one'
    if key is None:
        fault = fault or _key_without_group(labels, annotations)
        return (
            GroupReference(GroupKey(GroupKind.OWN, namespace, " (malformed)"), problem=fault)
            if fault
            else None
        )
    annotations = with_kueue_levels(labels, annotations)
    said = {**annotations, **labels}
    min_count, problem = 0, ""
    release_after_s = _number(annotations.get(RELEASE_AFTER), _LIMIT_AFTER_S)
    if not release_after_s and RELEASE_AFTER in annotations:
        problem = _problem(RELEASE_AFTER, annotations[RELEASE_AFTER], _LIMIT_AFTER_S)
    if key.kind is GroupKind.OWN:
        text = said.get(MIN_COUNT)
        min_count = _number(text, LIMIT_MEMBERS)
        problem = problem if min_count else _problem(MIN_COUNT, text, LIMIT_MEMBERS)
        if label_value_faults(key.name):
            problem = f'{GROUP} of the pod: found "{escaped(key.name[:64])}", expected a valid label value'
    topology, level_fault = parse_topology(REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY, said)
    rank = said.get(RANK)
    if rank is not None and rank != "0" and not _number(rank, LIMIT_RANK):
        problem = _problem(RANK, rank, LIMIT_RANK, least=0)
    part, part_fault = _part(said)
    if part is None and not part_fault:
        part_fault = _key_without_part(labels, own_annotations)
    problem = _contradicting_key(labels, own_annotations) or problem or fault or level_fault or part_fault
    if not problem:
        return GroupReference(
            key,
            min_count,
            release_after_s=release_after_s,
            topology=topology,
            part=part,
            is_min_count_derived=MIN_COUNT not in labels and MIN_COUNT not in own_annotations,
            rank=rank_by(labels, rank),
        )
    # No name of a group has a space: the pod is no member of the group that others name well.
    apart = GroupKey(key.kind, namespace, f"{escaped(key.name[:64])} (malformed)")
    return GroupReference(apart, problem=problem)


def _key_without_group(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the problem of the first label or annotation about a group of a pod that names none; empty without one."""
    if GROUP_KEYS.isdisjoint(labels) and GROUP_KEYS.isdisjoint(annotations):
        return ""
    key = min(GROUP_KEYS.intersection((*labels, *annotations)))
    if key == GROUP:
        return f'{GROUP} of the pod: found "", expected the name of a group'
    return f"{GROUP} of the pod: found none, expected the name of a group beside {key}"


def _key_without_part(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the problem of the first label or annotation about a part of a pod that names none; empty without one."""
    keys = _PART_KEYS.intersection((*labels, *annotations))
    return f"{PART} of the pod: found none, expected the name of a part beside {min(keys)}" if keys else ""


def _contradicting_key(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the problem of the first key whose label and annotation differ; empty without one."""
    for key in sorted(GROUP_KEYS.intersection(labels)):
        label, annotation = labels[key], annotations.get(key, labels[key])
        if label != annotation:
            return (
                f'{key} of the pod: found "{escaped(label[:64])}" as label and "{escaped(annotation[:64])}" as'
                " annotation, expected one value"
            )
    return ""


def group_minimum(namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> int:
    """Return the minimum that a member of a group of our own says; 0 for other pods, and if it is malformed."""
    group = group_reference(namespace, "", labels, annotations)
    return 0 if group is None else group.min_count


def _part(said: Mapping[str, str]) -> tuple[Part | None, str]:
    """Return the part that a pod names, None if it names none, and why it does not parse, else empty."""
    name = said.get(PART)
    if name is None:
        return None, ""
    if not name or label_value_faults(name):
        return None, f'{PART} of the pod: found "{escaped(name[:64])}", expected a valid label value'
    text = said.get(PART_MIN_COUNT)
    min_count = 1 if text is None else _number(text, LIMIT_MEMBERS)
    if not min_count:
        return None, _problem(PART_MIN_COUNT, text, LIMIT_MEMBERS)
    topology, fault = parse_topology(PART_REQUIRED_TOPOLOGY, PART_PREFERRED_TOPOLOGY, said)
    return Part(name, min_count, topology), fault


def _key(
    namespace: str, scheduling_group: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> GroupKey | None:
    if scheduling_group:
        return GroupKey(GroupKind.KUBERNETES, namespace, scheduling_group)
    if name := labels.get(COSCHEDULING_GROUP, ""):
        return GroupKey(GroupKind.COSCHEDULING, namespace, name)
    own = labels.get(GROUP, annotations.get(GROUP))
    return GroupKey(GroupKind.OWN, namespace, own) if own else None


def _number(text: str | None, most: int) -> int:
    """Return the number from 1 to `most`, 0 for another text."""
    if text is None or not (text.isascii() and text.isdigit()):
        return 0
    # As many digits as no limit has.
    number = int(text) if len(text) < 10 else 0
    return number if number <= most else 0


def _problem(name: str, text: str | None, most: int, *, least: int = 1) -> str:
    shown = "none" if text is None else f'"{escaped(text[:64])}"'
    return f"{name} of the pod: found {shown}, expected {least} to {most}"
