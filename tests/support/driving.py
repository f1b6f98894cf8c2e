"""A machine with a tiny cluster, driven by API objects as JSON; its counts are compared with a recount at teardown."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from scheduler.daemon.assembly.profiles import build_profiles, build_queue, new_state
from scheduler.daemon.settings.loading import default_settings, parse_settings
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.core import audit
from scheduler.engine.core.machine import Machine
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.instructions import (
    Attempted,
    Bind,
    EmitEvent,
    EvictVictim,
    Instruction,
    PatchCondition,
    ProceedWithEviction,
)
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import (
    BindDone,
    BindFailed,
    CycleDue,
    EvictionDue,
    EvictionEnded,
    EvictionStep,
    NodeGone,
    NodeSeen,
    ObjectSeen,
    PodGone,
    PodSeen,
    TimePassed,
    VictimFate,
)
from scheduler.engine.queueing.queued_pod import QueuedPod
from scheduler.engine.state.audit import differences
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.explain.simulation.world import World
from tests.support import build
from tests.support.daemon import plugin_config, profiles

NAME = "affinity-scheduler"
Kind = TypeVar("Kind", bound=Instruction)


class Driver(World):
    """A world that hands its machine stimuli made from JSON, at seconds that the test sets, and does nothing else."""

    def __init__(self, seed: int = 1, settings: Settings | None = None, namespace_share: float = 0.0) -> None:
        settings = default_settings() if settings is None else settings
        state = new_state(settings)
        profiles = build_profiles(settings, ClusterView(state))
        queue = build_queue(profiles, settings, max_in_unschedulable_s=300.0, namespace_share=namespace_share)
        super().__init__(
            state, profiles, random.Random(seed), queue=queue, now_s=1000.0, semantics=settings.semantics
        )
        self._decoder = PodDecoder(settings.semantics)
        self._version = 0

    def pod(self, *args: Any, **kwargs: Any) -> Pod:
        """Show the machine a new version of a pod of our profile (keywords of build.pod, status, gates, priority)."""
        status = kwargs.pop("status", {})
        more = {"schedulerName": kwargs.pop("scheduler", NAME), **kwargs.pop("spec", {})}
        if gates := kwargs.pop("gates", ()):
            more["schedulingGates"] = [{"name": gate} for gate in gates]
        if "priority" in kwargs:
            more["priority"] = kwargs.pop("priority")
        document = build.pod(*args, **kwargs, spec=more)
        document["status"].update(status)
        pod = self.decoded(document)
        self.handle(PodSeen(pod))
        return pod

    def next_version(self) -> str:
        self._version += 1
        return str(self._version)

    def decoded(self, document: build.Json) -> Pod:
        document["metadata"]["resourceVersion"] = self.next_version()
        return self._decoder.decode(json.dumps(document).encode())

    def node(self, name: str, **kwargs: Any) -> None:
        self.handle(NodeSeen(decode_node(json.dumps(build.node(name, **kwargs)).encode())))

    def lose_node(self, name: str) -> None:
        self.handle(NodeGone(name))

    def namespace(self, name: str, **labels: str) -> None:
        document = json.dumps(build.namespace(name, labels=labels)).encode()
        self.handle(ObjectSeen(KINDS["Namespace"].decode(document)))

    def budget(self, name: str, selector: build.Json, n_allowed: int) -> None:
        document = json.dumps(build.disruption_budget(name, selector, n_allowed)).encode()
        self.handle(ObjectSeen(KINDS["PodDisruptionBudget"].decode(document)))

    def update(self, pod: Pod, **changes: Any) -> Pod:
        """Show the machine a new version of the pod, with the changes."""
        seen = replace(pod, resource_version=self.next_version(), **changes)
        self.handle(PodSeen(seen))
        return seen

    def lose(self, pod: Pod) -> None:
        self.handle(PodGone(pod.uid))

    def carry_out(self, eviction: EvictVictim) -> list[EvictVictim]:
        """Evict the victim, which is gone then. Return the evictions that follow."""
        preemptor, victim = eviction.preemptor, eviction.victim
        assert self.needs_eviction(preemptor.uid, victim.uid)
        instructions = self.handle(EvictionEnded(preemptor.uid, victim.uid, VictimFate.DELETED))
        self.lose(victim)
        return each_of(instructions, EvictVictim)

    def queued(self, uid: str) -> QueuedPod:
        found = self.queue.get(uid)
        assert found is not None
        return found

    def cycle(self) -> list[Instruction]:
        return self.handle(CycleDue())

    def cycles(self) -> list[Instruction]:
        """Run cycles as long as there is work. Return what they order."""
        told: list[Instruction] = []
        while self.machine.has_work():
            told += self.cycle()
        return told

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.handle(TimePassed())

    def live(self, seconds: float) -> list[Instruction]:
        """Let the seconds pass as in a running process, which wakes the machine when it asks for it."""
        told: list[Instruction] = []
        until_s = self.now_s + seconds
        for _ in range(10_000):
            while self.machine.has_work() and (more := self.cycle()):
                told += more
            wake_s = self.machine.next_wake_s(self.now_s)
            if wake_s is None or wake_s > until_s:
                self.now_s = until_s
                return told
            self.now_s = max(wake_s, self.now_s)
            told += self.handle(TimePassed())
        raise AssertionError("something is due again and again")

    def confirm(self, pod: Pod, node_name: str) -> Pod:
        """Report that the bind succeeded, and show the pod on its node."""
        self.handle(BindDone(pod.uid))
        return self.update(pod, node_name=node_name)

    def fail_bind(self, pod: Pod, message: str) -> list[Instruction]:
        return self.handle(BindFailed(pod.uid, message))

    def needs_eviction(
        self, preemptor_uid: str, victim_uid: str, step: EvictionStep = EvictionStep.DELETION
    ) -> bool:
        """Return whether the victim's place is still needed right before this write."""
        (answer,) = self.handle(EvictionDue(preemptor_uid, victim_uid, step))
        return isinstance(answer, ProceedWithEviction)

    def audit(self) -> None:
        assert all_differences(self.machine) == []


def all_differences(machine: Machine) -> list[str]:
    """Return where counts differ from a recount, and records from state, queue and indexes."""
    of_records = audit.differences(machine.records, machine.state, machine.queue)
    return [*differences(machine.state), *of_records]


def settings_of(plugin: str, **args: Any) -> Settings:
    """Return the settings of one profile with these arguments of a plugin."""
    profile = {"schedulerName": NAME, "pluginConfig": plugin_config(plugin, **args)}
    return parse_settings(profiles(profile), "test")


def bind_of(instructions: list[Instruction]) -> Bind:
    return only(instructions, Bind)


def condition_of(instructions: list[Instruction]) -> PatchCondition:
    return only(instructions, PatchCondition)


def event_of(instructions: list[Instruction]) -> EmitEvent:
    return only(instructions, EmitEvent)


def attempt_of(instructions: list[Instruction]) -> Attempted:
    return only(instructions, Attempted)


def only(instructions: list[Instruction], kind: type[Kind]) -> Kind:
    found = each_of(instructions, kind)
    assert len(found) == 1, instructions
    return found[0]


def each_of(instructions: Iterable[Instruction], kind: type[Kind]) -> list[Kind]:
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def binds(instructions: Iterable[Instruction]) -> dict[str, str]:
    """Return the nodes of the pods that are bound, by the names of the pods; each is bound once."""
    orders = each_of(instructions, Bind)
    nodes = {each.pod.name: each.node_name for each in orders}
    assert len(nodes) == len(orders), orders
    return nodes


def conditions(instructions: Iterable[Instruction]) -> dict[str, str]:
    """Return the messages of the conditions that are written, by the names of the pods."""
    return {each.pod.name: each.message for each in each_of(instructions, PatchCondition)}


def evictions(instructions: Iterable[Instruction]) -> list[str]:
    """Return the names of the pods that are to be evicted."""
    return [each.victim.name for each in each_of(instructions, EvictVictim)]


def kinds(instructions: list[Instruction]) -> list[str]:
    return [type(instruction).__name__ for instruction in instructions]
