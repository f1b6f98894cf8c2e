"""Plays jobs in virtual time: the product's machine places their pods in a cluster in memory."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from scheduler.assembly.profiles import new_state
from scheduler.assembly.worlds import new_world
from scheduler.model.nodes import decode_node
from scheduler.model.pod_decoder import PodDecoder
from scheduler.model.stimuli import NodeSeen
from scheduler.settings.loading import default_settings
from scheduler.simulation.world import World
from tests.replay.jobs import BLOCK, RACK, Job, pod_objects
from tests.support.build import Json

_HOST = "kubernetes.io/hostname"


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


class Replay:
    """
    One run of a trace. A job begins to run when all of its pods have a node, and its pods leave at its end.

    A job of which only some pods have a node holds their GPUs and does no work, as a training that waits for its peers.
    """

    def __init__(self, name: str, nodes: Sequence[Json], *, grouped: bool, seed: int) -> None:
        self.played = Played(name)
        self._grouped = grouped
        settings = default_settings()
        state = new_state(settings)
        self._world: World = new_world(settings, state, random.Random(seed))
        self._decoder = PodDecoder(settings.semantics)
        for node in nodes:
            self._world.process(NodeSeen(decode_node(msgspec.json.encode(node))))
        self._labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
        #: Of each job that does not run yet: the UIDs of its pods without a node.
        self._waiting: dict[Job, set[str]] = {}
        self._ends: list[tuple[float, int, Job]] = []
        self._running_milli = 0
        self._held_milli = 0

    def play(self, jobs: Sequence[Job]) -> Played:
        """Play the jobs, in the order of their creation, until all have ended or none can begin."""
        for index, job in enumerate(jobs):
            self._end_until(job.created_s)
            self._move_to(job.created_s)
            self._create(job)
            if index + 1 == len(jobs) or jobs[index + 1].created_s > job.created_s:
                self._settle()
        self._end_until(float("inf"))
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
                for index in range(len(job.pods)):
                    self._world.delete(f"{job.name}-{index}")
            self._settle()

    def _create(self, job: Job) -> None:
        objects = pod_objects(job, grouped=self._grouped)
        self._waiting[job] = {pod["metadata"]["uid"] for pod in objects}
        for pod in objects:
            self._world.create(self._decoder.decode(msgspec.json.encode(pod)))

    def _move_to(self, now_s: float) -> None:
        """Let the time pass, with what the machine does at its own times, such as the end of a backoff."""
        world = self._world
        while (
            world.unbound
            and (wake_s := world.machine.next_wake_s(world.now_s)) is not None
            and wake_s < now_s
        ):
            world.pass_time(max(0.0, wake_s - world.now_s))
            self._settle()
        world.pass_time(max(0.0, now_s - world.now_s))

    def _settle(self) -> None:
        """Let the machine work, and begin the jobs of which all pods have a node now."""
        world = self._world
        world.run()
        for job, missing in list(self._waiting.items()):
            placed = {uid for uid in missing if uid in world.state.placed}
            missing -= placed
            self._held_milli += sum(job.pods[int(uid.rpartition("-")[2])].gpu_milli for uid in placed)
            if not missing:
                self._begin(job)
        self.played.allocated.append((world.now_s, self._held_milli, self._running_milli))

    def _begin(self, job: Job) -> None:
        del self._waiting[job]
        world = self._world
        self._running_milli += job.gpu_milli
        heapq.heappush(self._ends, (world.now_s + job.duration_s, len(self.played.results), job))
        labels = [self._labels[world.node_of(f"{job.name}-{index}")] for index in range(len(job.pods))]
        n_blocks, n_racks, n_hosts = (len({each[key] for each in labels}) for key in (BLOCK, RACK, _HOST))
        self.played.results.append(JobResult(job, world.now_s - job.created_s, n_blocks, n_racks, n_hosts))
