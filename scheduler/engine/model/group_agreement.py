"""
Whether the pending members of a group agree on its settings.

Members on nodes need not: a workload whose template changes has members of both templates, and the new ones are placed
by what the new template says. Pending members of an older template of their workload do not count either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from scheduler.engine.model.group_topology import (
    PART_MIN_COUNT,
    PART_PREFERRED_TOPOLOGY,
    PART_REQUIRED_TOPOLOGY,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    Topology,
)
from scheduler.engine.model.pod_groups import MIN_COUNT, RELEASE_AFTER, GroupReference
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.revisions import REVISION_KEY

#: The labels with the template of a pod, by a Deployment and by a StatefulSet.
_REVISIONS: Final = (REVISION_KEY, "controller-revision-hash")

#: The name of a setting, and the part of the group that it is about (empty for the whole group).
_Setting = tuple[str, str]


def of_newest_template(pods: Collection[Pod]) -> Collection[Pod]:
    """Return the pods without those of a workload that has a newer pod of another template."""
    if all(len({pod.labels.get(label) for pod in pods}) < 2 for label in _REVISIONS):
        return pods
    newest: list[Pod] = []
    revisions: dict[tuple[str, str], str] = {}
    # Among pods of one second, the later in the order of arrival is newer.
    for pod in sorted(pods, key=lambda pod: pod.created)[::-1]:
        revision = next(filter(None, map(pod.labels.get, _REVISIONS)), "")
        if revision and pod.owner is not None:
            # A Deployment's pods are owned by a ReplicaSet for each template, whose name ends with the revision.
            workload = (pod.owner.kind, pod.owner.name.removesuffix(f"-{revision}"))
            if revisions.setdefault(workload, revision) != revision:
                continue
        newest.append(pod)
    return newest[::-1]


def disagreement(pods: Collection[Pod]) -> str:
    """
    Return the first setting on which two of the pods, members of one group, differ; empty if they agree.

    A pod that says nothing about levels or times follows the others.
    """
    firsts: dict[GroupReference, Pod] = {}
    for pod in of_newest_template(pods):
        if pod.group is not None and not pod.group.problem:
            firsts.setdefault(pod.group, pod)
    values: dict[_Setting, tuple[object, Pod]] = {}
    for group, pod in firsts.items():
        for setting, value in _settings(group):
            other, by = values.setdefault(setting, (value, pod))
            if other != value:
                name, part = setting
                of_part = f" of part {part}" if part else ""
                return (
                    f"{name}{of_part}: {by.name} says {_text(other)}, {pod.name} says {_text(value)},"
                    " expected one value for all members of the group"
                )
    return ""


def _settings(group: GroupReference) -> Iterator[tuple[_Setting, object]]:
    if group.min_count and not group.is_min_count_derived:
        yield (MIN_COUNT, ""), group.min_count
    if group.release_after_s:
        yield (RELEASE_AFTER, ""), group.release_after_s
    yield from _levels(group.topology, "", REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY)
    if group.part is not None:
        name = group.part.name
        yield (PART_MIN_COUNT, name), group.part.min_count
        yield from _levels(group.part.topology, name, PART_REQUIRED_TOPOLOGY, PART_PREFERRED_TOPOLOGY)


def _levels(
    topology: Topology, part: str, required: str, preferred: str
) -> Iterator[tuple[_Setting, object]]:
    if topology:
        yield (required, part), topology.required
        yield (preferred, part), topology.preferred


def _text(value: object) -> str:
    if isinstance(value, tuple):
        value = ",".join(value)
    return f'"{value}"' if value != "" else "nothing"
