"""Plays jobs in simulated time: a scheduler places their pods in a cluster."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from scheduler.daemon.assembly.profiles import new_state
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.stimuli import NodeSeen
from scheduler.tools.explain.simulation.loaded_cluster import new_world
from scheduler.tools.explain.simulation.world import World
from tests.proof.replay.jobs import BLOCK, RACK, Job, Placing, pod_objects
from tests.support.build import HOSTNAME, Json


@dataclass(frozen=True, slots=True)
class JobResult:
    """
    What became of a job of several pods or one.

    `waited_s`: from its creation until all of its pods had a node. The numbers are of the domains that its pods are in.
    """

    job: Job
    waited_s: float
    n_blocks: int
    n_racks: int
    n_hosts: int


@dataclass(slots=True)
class Played:
    """
    A trace that was played.

    `allocated`: at each change, the second, the thousandths of GPUs that pods on nodes hold, and those of jobs at work.
    `unplaced`: jobs that never ran.
    """

    name: str
    results: list[JobResult] = field(default_factory=list)
    allocated: list[tuple[float, int, int]] = field(default_factory=list)
    unplaced: list[Job] = field(default_factory=list)


class Cluster(Protocol):
    """A cluster with a scheduler, which a replay drives."""

    def create(self, job: Job) -> None:
        """Add the pods of the job, without nodes."""

    def delete(self, job: Job) -> None:
        """Delete the pods of the job."""

    def settle(self) -> None:
        """Let the scheduler work until it has tried every pod."""

    def next_wake_s(self) -> float | None:
        """Return the simulated time at which the scheduler has something to do by itself; None if it has nothing."""

    def pass_time(self, now_s: float) -> None:
        """Let the simulated time pass until `now_s`, and do nothing else."""

    def node_of(self, pod: str) -> str:
        """Return the node of the pod of this name, empty if it has none."""


class Simulated:
    """The product's machine in a cluster in memory."""

    def __init__(self, nodes: Sequence[Json], placing: Placing, *, seed: int) -> None:
        self._placing = placing
        settings = default_settings()
        self._world: World = new_world(settings, new_state(settings), random.Random(seed))
        self._decoder = PodDecoder(settings.semantics)
        for node in nodes:
            self._world.process(NodeSeen(decode_node(msgspec.json.encode(node))))

    def create(self, job: Job) -> None:
        """Create its pods."""
        for pod in pod_objects(job, self._placing):
            self._world.create(self._decoder.decode(msgspec.json.encode(pod)))

    def delete(self, job: Job) -> None:
        """Delete its pods."""
        for name in job.pod_names:
            self._world.delete(name)

    def settle(self) -> None:
        """Run cycles until nothing happens any more."""
        self._world.run()

    def next_wake_s(self) -> float | None:
        """Return when the machine has something to do, such as the end of a backoff."""
        return self._world.machine.next_wake_s(self._world.now_s) if self._world.unbound else None

    def pass_time(self, now_s: float) -> None:
        """Let the virtual clock show this time."""
        self._world.pass_time(max(0.0, now_s - self._world.now_s))

    def node_of(self, pod: str) -> str:
        """Return the node of the pod."""
        return self._world.node_of(pod)


class Replay:
    """
    One run of a trace. A job begins to run when all of its pods have a node, and its pods leave at its end.

    A job of which only some pods have a node holds their GPUs and does no work, as a training that waits for its peers.
    """

    def __init__(self, name: str, cluster: Cluster, nodes: Sequence[Json]) -> None:
        self.played = Played(name)
        self._cluster = cluster
        self._labels: Mapping[str, Json] = {
            node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes
        }
        self._now_s = 0.0
        #: Of each job that does not run yet: the indices of its pods without a node.
        self._waiting: dict[Job, set[int]] = {}
        self._ends: list[tuple[float, int, Job]] = []
        self._running_milli = 0
        self._held_milli = 0

    def play(self, jobs: Sequence[Job]) -> Played:
        """Play the jobs, in the order of their creation, until all have ended that end, or none can begin."""
        for index, job in enumerate(jobs):
            self._end_until(job.created_s)
            self._move_to(job.created_s)
            self._cluster.create(job)
            self._waiting[job] = set(range(len(job.pods)))
            if index + 1 == len(jobs) or jobs[index + 1].created_s > job.created_s:
                self._settle()
        self._end_until(math.inf)
        self.played.unplaced = list(self._waiting)
        return self.played

    def _end_until(self, until_s: float) -> None:
        """Let the jobs end that end by then, each at its time."""
        while self._ends and self._ends[0][0] <= until_s:
            end_s = self._ends[0][0]
            self._move_to(end_s)
            while self._ends and self._ends[0][0] == end_s:
                job = heapq.heappop(self._ends)[2]
                self._running_milli -= job.gpu_milli
                self._held_milli -= job.gpu_milli
                self._cluster.delete(job)
            self._settle()

    def _move_to(self, now_s: float) -> None:
        """Let the time pass, with what the scheduler does at its own times, such as the end of a backoff."""
        while (wake_s := self._cluster.next_wake_s()) is not None and wake_s < now_s:
            self._now_s = max(self._now_s, wake_s)
            self._cluster.pass_time(self._now_s)
            self._settle()
        self._now_s = max(self._now_s, now_s)
        self._cluster.pass_time(self._now_s)

    def _settle(self) -> None:
        """Let the scheduler work, and begin the jobs of which all pods have a node now."""
        self._cluster.settle()
        for job, missing in list(self._waiting.items()):
            names = job.pod_names
            placed = {index for index in missing if self._cluster.node_of(names[index])}
            missing -= placed
            self._held_milli += sum(job.pods[index].gpu_milli for index in placed)
            if not missing:
                self._begin(job)
        self.played.allocated.append((self._now_s, self._held_milli, self._running_milli))

    def _begin(self, job: Job) -> None:
        del self._waiting[job]
        self._running_milli += job.gpu_milli
        if job.duration_s < math.inf:
            heapq.heappush(self._ends, (self._now_s + job.duration_s, len(self.played.results), job))
        labels = [self._labels[self._cluster.node_of(name)] for name in job.pod_names]
        n_blocks, n_racks, n_hosts = (len({each[key] for each in labels}) for key in (BLOCK, RACK, HOSTNAME))
        self.played.results.append(JobResult(job, self._now_s - job.created_s, n_blocks, n_racks, n_hosts))
