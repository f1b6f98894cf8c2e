"""The jobs of a trace: pods that run together, as API objects with a group or without."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from scheduler.sdk.testing import make_node, make_pod
from tests.proof.replay.trace import GPU_MILLI, TraceNode, TracePod
from tests.support.build import HOSTNAME, Json

GPU: Final = "example.com/gpu-milli"
MODEL: Final = "example.com/gpu-model"
BLOCK, RACK = "example.com/block", "example.com/rack"
_GROUP: Final = "affinity-scheduler.io/pod-group"


class Placing(Enum):
    """How the pods of a job are placed: as one in one block, as one in as few blocks as can be, or each for itself."""

    IN_ONE_BLOCK = auto()
    IN_FEW_BLOCKS = auto()
    POD_BY_POD = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Pods that start together and run for `duration_s`, infinite if they never end."""

    name: str
    pods: tuple[TracePod, ...]
    created_s: float
    duration_s: float

    @property
    def gpu_milli(self) -> int:
        """Thousandths of GPUs of all pods."""
        return sum(pod.gpu_milli for pod in self.pods)

    @property
    def pod_names(self) -> list[str]:
        """Return the names of the pods in their order."""
        return [f"{self.name}-{index}" for index in range(len(self.pods))]

    def squeezed(self, times: float) -> Job:
        """Return the job as it would come if jobs came so many times as fast; it runs as long."""
        return replace(self, created_s=self.created_s / times)


def jobs_of(pods: Sequence[TracePod]) -> list[Job]:
    """
    Return the jobs in the order of their creation; the first is created at 0 s.

    Pods of one job name are a job, and the replicas of one row. Where the trace names no jobs, pods that are created in
    the same second and ask for the same are one. A job is created with the last of its pods, and runs as long as the
    longest.
    """
    has_names = any(pod.job for pod in pods)
    gathered: defaultdict[Hashable, list[TracePod]] = defaultdict(list)
    for number, pod in enumerate(pods):
        key: Hashable = number
        if pod.job:
            key = pod.job
        elif not has_names and pod.replicas == 1 and pod.created_s is not None:
            key = (pod.created_s, pod.cpu_milli, pod.memory_mib, pod.gpu_milli, pod.models)
        gathered[key] += [replace(pod, replicas=1)] * pod.replicas
    first_s = min((pod.created_s for pod in pods if pod.created_s is not None), default=0.0)
    jobs = [
        Job(
            f"job-{number}",
            tuple(members),
            max((pod.created_s or first_s) for pod in members) - first_s,
            max(pod.duration_s for pod in members),
        )
        for number, members in enumerate(gathered.values())
    ]
    return sorted(jobs, key=lambda job: job.created_s)


def comparable(nodes: Sequence[TraceNode], pods: Sequence[TracePod]) -> list[TracePod]:
    """Return the pods without requests for CPU or memory if no node says how much it has of it."""
    has_cpu, has_memory = any(node.cpu_milli for node in nodes), any(node.memory_mib for node in nodes)
    return [
        replace(
            pod,
            cpu_milli=pod.cpu_milli if has_cpu else 0,
            memory_mib=pod.memory_mib if has_memory else 0,
        )
        for pod in pods
    ]


def node_objects(nodes: Iterable[TraceNode], rack_size: int, racks_per_block: int) -> list[Json]:
    """
    Return the nodes with a rack and a block each.

    Racks that the trace does not name are filled in its order, those of each block on their own; so are blocks.
    """
    objects: list[Json] = []
    by_block: defaultdict[str, int] = defaultdict(int)
    racks: dict[str, int] = {}
    for node in nodes:
        index = by_block[node.block]
        by_block[node.block] += 1
        rack = node.rack or f"{node.block}-rack-{index // rack_size}".lstrip("-")
        block = node.block or f"block-{racks.setdefault(rack, len(racks)) // racks_per_block}"
        name = f"node-{len(objects):06}"
        labels = {HOSTNAME: name, RACK: _value(rack), BLOCK: _value(block)}
        if node.model:
            labels[MODEL] = _value(node.model)
        room = {"cpu": f"{node.cpu_milli}m", "memory": f"{node.memory_mib}Mi", "pods": "500"}
        room[GPU] = str(GPU_MILLI * node.gpus)
        objects.append(make_node(name, labels=labels, allocatable=room))
    return objects


def _value(text: str) -> str:
    """Return the text as a label may have it."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63].strip("-._")


def pod_objects(job: Job, placing: Placing) -> list[Json]:
    """Return the job's pods, with labels of their group if they are to be placed as one, in few racks and hosts."""
    objects = []
    for name, pod in zip(job.pod_names, job.pods, strict=True):
        amounts = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi", GPU: str(pod.gpu_milli)}
        requests = {resource: text for resource, text in amounts.items() if text[0] != "0"}
        affinity: Json = {}
        if pod.models:
            chosen = {"key": MODEL, "operator": "In", "values": sorted(map(_value, pod.models))}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [chosen]}]}
            affinity = {
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
            }
        made = make_pod(name, requests=requests, **affinity)
        made["metadata"]["uid"] = name
        if placing is not Placing.POD_BY_POD and len(job.pods) > 1:
            made["metadata"]["labels"] = {_GROUP: job.name, f"{_GROUP}-min-count": str(len(job.pods))}
            levels = {f"{_GROUP}-preferred-topology": f"{BLOCK},{RACK},{HOSTNAME}"}
            if placing is Placing.IN_ONE_BLOCK:
                levels = {
                    f"{_GROUP}-required-topology": BLOCK,
                    f"{_GROUP}-preferred-topology": f"{RACK},{HOSTNAME}",
                }
            made["metadata"]["annotations"] = levels
        objects.append(made)
    return objects
