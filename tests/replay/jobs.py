"""The jobs of a trace: pods that run together, as API objects with a group or without."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from scheduler.testing import make_node, make_pod
from tests.replay.trace import GPU_MILLI, TraceNode, TracePod
from tests.support.build import Json

GPU: Final = "example.com/gpu-milli"
MODEL: Final = "example.com/gpu-model"
BLOCK, RACK = "example.com/block", "example.com/rack"
_GROUP: Final = "affinity-scheduler.io/pod-group"


@dataclass(frozen=True, slots=True)
class Job:
    """Pods that start together and run for `duration_s`."""

    name: str
    pods: tuple[TracePod, ...]
    created_s: float
    duration_s: float

    @property
    def gpu_milli(self) -> int:
        """Thousandths of GPUs of all pods."""
        return sum(pod.gpu_milli for pod in self.pods)

    def squeezed(self, times: float) -> Job:
        """Return the job as it would come if jobs came so many times as fast; it runs as long."""
        return replace(self, created_s=self.created_s / times)


def jobs_of(pods: Sequence[TracePod]) -> list[Job]:
    """
    Return the jobs in the order of their creation.

    Pods of one job name are a job. Where the trace names no jobs, pods that are created in the same second and ask for
    the same are one. A job runs as long as the longest of its pods.
    """
    each = [replace(pod, replicas=1) for pod in pods for _ in range(pod.replicas)]
    if any(pod.job for pod in pods):
        by_job = groupby(
            sorted(each, key=lambda pod: pod.job or pod.name), key=lambda pod: pod.job or pod.name
        )
        gathered = [tuple(members) for _, members in by_job]
    else:
        alike = groupby(each, key=lambda pod: (pod.created_s, pod.cpu_milli, pod.gpu_milli, pod.models))
        gathered = [tuple(members) for _, members in alike]
    jobs = [
        Job(
            f"job-{number}",
            members,
            max(pod.created_s for pod in members),
            max(pod.duration_s for pod in members),
        )
        for number, members in enumerate(gathered)
    ]
    return sorted(jobs, key=lambda job: job.created_s)


def node_objects(nodes: Iterable[TraceNode], rack_size: int, racks_per_block: int) -> list[Json]:
    """Return the nodes; racks and blocks that the trace does not name are filled in its order."""
    objects = []
    for index, node in enumerate(nodes):
        rack = index // rack_size
        labels = {
            "kubernetes.io/hostname": node.name,
            RACK: node.rack or f"rack-{rack}",
            BLOCK: node.block or f"block-{rack // racks_per_block}",
        }
        if node.model:
            labels[MODEL] = node.model
        room = {GPU: str(GPU_MILLI * node.gpus)}
        if node.cpu_milli:
            room["cpu"] = f"{node.cpu_milli}m"
        if node.memory_mib:
            room["memory"] = f"{node.memory_mib}Mi"
        objects.append(make_node(node.name, labels=labels, allocatable=room))
    return objects


def pod_objects(job: Job, *, grouped: bool) -> list[Json]:
    """
    Return the job's pods, with labels of their group if they are to be placed as one.

    A group is required in one block, and prefers as few racks and hosts as can be.
    """
    objects = []
    for index, pod in enumerate(job.pods):
        requests = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi", GPU: str(pod.gpu_milli)}
        affinity: Json = {}
        if pod.models:
            chosen = {"key": MODEL, "operator": "In", "values": sorted(pod.models)}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [chosen]}]}
            affinity = {
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
            }
        made = make_pod(f"{job.name}-{index}", requests=requests, **affinity)
        made["metadata"]["uid"] = made["metadata"]["name"]
        if grouped and len(job.pods) > 1:
            made["metadata"]["labels"] = {_GROUP: job.name, f"{_GROUP}-min-count": str(len(job.pods))}
            made["metadata"]["annotations"] = {
                f"{_GROUP}-required-topology": BLOCK,
                f"{_GROUP}-preferred-topology": f"{RACK},kubernetes.io/hostname",
            }
        objects.append(made)
    return objects
