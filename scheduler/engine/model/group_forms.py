"""
Groups and levels as LeaderWorkerSet, JobSet and Kueue write them on pods, in the words of our own annotations.

Labels of LeaderWorkerSet and JobSet make a group only where the pod asks for that, since their pods run without one
today. Kueue's annotations count for pods that are in a group. What a pod says in our own words goes first.

Of both workloads a part is a leader with its workers, or a job. With their exclusive topology, or where followers are
created once the leader runs, no part can wait for all of its members: then each member counts, and later ones join the
part's domain. Source: the constants of jobset v1alpha2, leaderworkerset v1 and kueue v1beta2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.engine.model.group_topology import (
    PART,
    PART_MIN_COUNT,
    PART_PREFERRED_TOPOLOGY,
    PART_REQUIRED_TOPOLOGY,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
)

#: The kind of workload by whose labels a pod has its group and part; an annotation.
GROUP_FROM: Final = "affinity-scheduler.io/pod-group-from"
LEADER_WORKER_SET: Final = "LeaderWorkerSet"
JOB_SET: Final = "JobSet"

_LWS: Final = "leaderworkerset.sigs.k8s.io"
_JOB_SET: Final = "jobset.sigs.k8s.io"
_KUEUE: Final = "kueue.x-k8s.io"
#: Kueue's annotations about the levels of a group.
KUEUE_LEVELS: Final = (
    f"{_KUEUE}/podset-required-topology",
    f"{_KUEUE}/podset-preferred-topology",
    f"{_KUEUE}/podset-slice-required-topology",
    f"{_KUEUE}/podset-slice-size",
)
#: The annotations that are read, which snapshots keep.
FOREIGN_ANNOTATIONS: Final = (
    f"{_LWS}/size",
    f"{_LWS}/exclusive-topology",
    f"alpha.{_JOB_SET}/exclusive-topology",
    *KUEUE_LEVELS,
)
_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
#: Digits of a number that count.
_DIGITS: Final = 9


def workload_group(
    group: str, min_count: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Mapping[str, str]:
    """
    Return the annotations of a pod that asks for a group of its workload, with ours for what its labels say.

    `group`, `min_count`: the names of the annotations for these. Without a minimum, as many parts are placed as fit.
    """
    source, asked = annotations[GROUP_FROM], dict[str, str]()
    if source == LEADER_WORKER_SET:
        asked[group], asked[PART] = labels.get(f"{_LWS}/name", ""), labels.get(f"{_LWS}/group-index", "")
        asked[PART_REQUIRED_TOPOLOGY] = annotations.get(f"{_LWS}/exclusive-topology", "")
        size = annotations.get(f"{_LWS}/size", "1")
    else:
        job, index = labels.get(f"{_JOB_SET}/replicatedjob-name", ""), labels.get(f"{_JOB_SET}/job-index", "")
        asked[group] = labels.get(f"{_JOB_SET}/jobset-name", "")
        asked[PART] = f"{job}-{index}" if job else ""
        asked[PART_REQUIRED_TOPOLOGY] = annotations.get(f"alpha.{_JOB_SET}/exclusive-topology", "")
        size = "1"
    if asked[PART_REQUIRED_TOPOLOGY]:
        size = "1"
    asked[PART_MIN_COUNT] = size
    asked[min_count] = annotations.get(PART_MIN_COUNT, size)
    return {**{name: text for name, text in asked.items() if text}, **annotations}


def with_kueue_levels(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Mapping[str, str]:
    """
    Return the annotations with ours for the levels and slices that Kueue's name, unless ours name some.

    Kueue applies the levels to each replica of a LeaderWorkerSet, which is a part, and otherwise to the group.
    """
    if not any(name.startswith(_KUEUE) for name in annotations):
        return annotations
    required, preferred = REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY
    if annotations.get(GROUP_FROM) == LEADER_WORKER_SET:
        required, preferred = PART_REQUIRED_TOPOLOGY, PART_PREFERRED_TOPOLOGY
    asked: dict[str, str] = {}
    if required not in annotations and preferred not in annotations:
        asked[required] = annotations.get(f"{_KUEUE}/podset-required-topology", "")
        asked[preferred] = annotations.get(f"{_KUEUE}/podset-preferred-topology", "")
    if sliced := annotations.get(f"{_KUEUE}/podset-slice-required-topology"):
        asked[PART_REQUIRED_TOPOLOGY] = sliced
        if PART not in labels and (GROUP_FROM in annotations or PART not in annotations):
            annotations = {**annotations, **_slice(labels, annotations)}
    return {**{name: text for name, text in asked.items() if text}, **annotations}


def _slice(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return part and size of the slice of a job to which an index belongs; nothing without index or size."""
    size, index = annotations.get(f"{_KUEUE}/podset-slice-size", ""), labels.get(_COMPLETION_INDEX, "")
    if not all(text.isascii() and text.isdigit() for text in (size, index)) or not int(size[:_DIGITS]):
        return {}
    number = str(int(index[:_DIGITS]) // int(size[:_DIGITS]))
    job = annotations.get(PART)
    return {PART: f"{job}-{number}" if job else number, PART_MIN_COUNT: size}


#: The index of a pod's job or replica, and of the pod in it, by the controllers that write them: JobSet,
#: LeaderWorkerSet, Job and StatefulSet, and Kubeflow's training operator. Pods of the former two have labels of the
#: next two as well.
_LABELS: Final = (
    *(f"{_JOB_SET}/job-global-index", f"{_JOB_SET}/job-index", f"{_LWS}/group-index", f"{_LWS}/worker-index"),
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "training.kubeflow.org/replica-index",
)
#: Kubeflow counts each type of replica on its own, and these types have the first rank.
_REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
_FIRST_TYPES: Final = frozenset({"master", "chief", "launcher"})
Rank = tuple[int, ...]


def rank_by(labels: Mapping[str, str], own: str | None) -> Rank:
    """Return the rank of a pod with these labels, in the order of ranks; empty without. `own`: goes before them."""
    texts = [own or "", *(labels.get(name, "") for name in _LABELS)]
    if not any(texts):
        return ()
    numbers = [int(text[:_DIGITS]) if text.isascii() and text.isdigit() else -1 for text in texts]
    return (*numbers[:-1], int(labels.get(_REPLICA_TYPE, "").lower() not in _FIRST_TYPES), numbers[-1])
