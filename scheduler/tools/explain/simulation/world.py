"""
A machine and the rest of the cluster around it: each instruction of the machine is carried out at once.

    process(PodSeen) --> machine --instructions--> API server, controllers and kubelets of this world
                           ^                           |
                           `--------- stimuli ---------'

The clock is virtual: time passes only in `run`, from one moment for which the machine waits to the next. No bind and no
write fails, evicted pods are gone at once and nothing makes them anew, and no autoscaler adds a node. Terminating pods
are gone once a pod that may preempt them finds no node: the scheduler lets that pod wait for their end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from scheduler.engine.core.machine import Machine
from scheduler.engine.framework.interface import Rng
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.claim_writes import ClaimDeallocation, ClaimRelease, ClaimReservation
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.fallback import read_mark
from scheduler.engine.model.instructions import (
    Attempted,
    Bind,
    ClearNomination,
    DevicesAwaited,
    EmitEvent,
    Evicted,
    EvictVictim,
    GroupAttempted,
    Instruction,
    PatchCondition,
    PatchPodGroup,
    ProceedWithEviction,
    SpareVictim,
    WriteObjects,
    WriteReservation,
)
from scheduler.engine.model.object_writes import NodeSelection, StoredObject, VolumePromise
from scheduler.engine.model.pods import Pod, PodCondition
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics
from scheduler.engine.model.stimuli import (
    BindDone,
    CycleDue,
    EvictionDue,
    EvictionEnded,
    EvictionStep,
    ObjectGone,
    ObjectSeen,
    PodGone,
    PodSeen,
    ReservationWritten,
    Stimulus,
    TimePassed,
    VictimFate,
)
from scheduler.engine.model.volumes import PersistentVolume, PersistentVolumeClaim
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.state.cluster import ClusterState
from scheduler.errors import InvariantViolation
from scheduler.tools.explain.simulation.new_claims import bound_to, freed_claims, provisioned_for

#: Cycles without a bind or an eviction for each pod that waits, after which the world counts as quiet.
_FRUITLESS_CYCLES: Final = 20

#: How long a pod that others were evicted for waits for its next attempt, at most.
_BACKOFF_S: Final = 60.0

#: Virtual time after which the members of a group that is not complete have a condition that says so.
GROUP_REPORT_S: Final = 6.0


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that was evicted for another one. `broken_budget`: the budget that did not allow it; empty if none."""

    victim: Pod
    broken_budget: str


class World:
    """
    A cluster whose pods are placed by a machine.

    Attributes:
        machine: decides; its state is the cluster's.
        unbound: the pods without a node, by UID, as the API server has them.
        evictions: all of them, in order.
        now_s: the virtual time.
    """

    def __init__(
        self,
        state: ClusterState,
        profiles: Mapping[str, Profile],
        rng: Rng,
        *,
        queue: PodQueue | None = None,
        now_s: float = 0.0,
        semantics: Semantics = DEFAULT_SEMANTICS,
    ) -> None:
        """
        From now on only this world changes `state`.

        `profiles`: of the state, by schedulerName. `queue`: for them; by default one with the usual backoffs. `now_s`:
        on the clock by which the state's kubelet refusals end.
        """
        self.state = state
        self.profiles = profiles
        self.queue = PodQueue(profiles, semantics=semantics) if queue is None else queue
        self.machine = Machine(state=state, queue=self.queue, profiles=profiles, rng=rng, semantics=semantics)
        self.now_s = now_s
        self.unbound: dict[str, Pod] = {}
        self.evictions: list[Eviction] = []
        self._n_versions = 0
        #: Binds and evictions so far.
        self._n_results = 0
        #: By UID of a pod: when others were evicted for it.
        self._room_made_s: dict[str, float] = {}

    # What happens in the cluster.

    def process(self, stimulus: Stimulus) -> None:
        """Hand the machine the stimulus, and carry out its instructions and those that follow from them."""
        instructions = deque(self.handle(stimulus))
        while instructions:
            instructions.extend(self._carry_out(instructions.popleft()))

    def handle(self, stimulus: Stimulus) -> list[Instruction]:
        """Hand the machine the stimulus, and return its instructions, which are not carried out."""
        match stimulus:
            case PodSeen(pod) if not pod.node_name and not pod.is_terminal:
                self.unbound[pod.uid] = pod
            case PodSeen(pod):
                self.unbound.pop(pod.uid, None)
            case PodGone(uid):
                self.unbound.pop(uid, None)
        instructions = self.machine.handle(stimulus, self.now_s)
        while self.machine.has_backlog:
            instructions += self.machine.step()
        return instructions

    def run(self, limit_s: float = 0.0) -> None:
        """Let the machine work until nothing happens any more; backoffs and fallbacks may take `limit_s`."""
        end_s = self.now_s + limit_s
        self._run_cycles()
        self._end_terminating()
        while self.unbound:
            wake_s = self.machine.next_wake_s(self.now_s)
            # Pods that others were evicted for are tried again.
            made_s = [made_s for uid, made_s in self._room_made_s.items() if uid in self.unbound]
            latest_s = max([end_s, *(each + _BACKOFF_S for each in made_s)])
            if wake_s is None or wake_s > latest_s:
                return
            self.pass_time(wake_s - self.now_s)
            self._run_cycles()
            if wake_s == latest_s:
                return

    def _end_terminating(self) -> None:
        """Let the terminating pods leave that the pods without a node may preempt, and these be tried again."""
        waiting = [pod for pod in self.unbound.values() if pod.may_preempt]
        if not waiting:
            return
        priority = max(map(self.state.groups.preemptor_priority, waiting))
        ended = [placed.pod for placed in self.state.placed.values() if placed.pod.terminating]
        ended = [pod for pod in ended if self.state.groups.victim_priority(pod) < priority]
        for pod in ended:
            released = list(freed_claims(pod, self.state))
            for event in (PodGone(pod.uid), *released):
                self.process(event)
        if ended:
            self._room_made_s.update((pod.uid, self.now_s) for pod in waiting)
            self._run_cycles()

    def pass_time(self, seconds: float) -> None:
        """Let the time pass, and let the machine do what is due then."""
        self.now_s += seconds
        self.process(TimePassed())

    def _run_cycles(self) -> None:
        n_results, n_fruitless = self._n_results, 0
        while self.machine.has_work() and n_fruitless <= _FRUITLESS_CYCLES * (1 + len(self.unbound)):
            self.process(CycleDue())
            n_fruitless = n_fruitless + 1 if n_results == self._n_results else 0
            n_results = self._n_results

    # What became of a pod.

    def node_of(self, uid: str) -> str:
        """Return the name of the node that the pod is on; empty if it is on none."""
        placed = self.state.placed.get(uid)
        return "" if placed is None else self.state.nodes.name_of(placed.row)

    def message_of(self, uid: str) -> str:
        """Return why the pod is on no node, as its condition says; empty if it has none."""
        pod = self.unbound.get(uid)
        condition = None if pod is None else pod.scheduled_condition
        return "" if condition is None else condition.message

    # Answers.

    def _carry_out(self, instruction: Instruction) -> list[Instruction]:
        """Do what the instruction says; return the instructions that follow."""
        match instruction:
            case Bind(pod):
                return self._bind(pod, instruction)
            case WriteReservation():
                return self._write(instruction)
            case WriteObjects():
                return self._write_all(instruction)
            case EvictVictim(preemptor, victim):
                return self._handle_all(EvictionDue(preemptor.uid, victim.uid, EvictionStep.DELETION))
            case ProceedWithEviction(preemptor_uid, victim_uid):
                return self._evict(preemptor_uid, victim_uid)
            case SpareVictim(preemptor_uid, victim_uid):
                return self._handle_all(EvictionEnded(preemptor_uid, victim_uid, VictimFate.SPARED))
            case PatchCondition(pod, reason, message):
                return self._patch(pod, PodCondition("False", reason, message))
            case ClearNomination() | PatchPodGroup() | EmitEvent():
                return []
            case Attempted() | Evicted() | GroupAttempted() | DevicesAwaited():
                return []
            case _:
                assert_never(instruction)

    def _handle_all(self, *stimuli: Stimulus) -> list[Instruction]:
        return [instruction for stimulus in stimuli for instruction in self.handle(stimulus)]

    def _bind(self, pod: Pod, bind: Bind) -> list[Instruction]:
        self._n_results += 1
        assumed = self.state.placed[pod.uid].pod
        bound = replace(
            self.unbound[pod.uid],
            node_name=bind.node_name,
            spec=assumed.spec,
            relaxed=read_mark(bind.annotations),
            resource_version=self._next_version(),
        )
        return self._handle_all(BindDone(pod.uid), PodSeen(bound))

    def _patch(self, pod: Pod, condition: PodCondition) -> list[Instruction]:
        """Give the pod the condition. Its nomination is not written: the one that the machine made counts as it is."""
        known = self.unbound.get(pod.uid)
        if known is None:
            return []
        version = self._next_version()
        return self._handle_all(
            PodSeen(replace(known, scheduled_condition=condition, resource_version=version))
        )

    def _evict(self, preemptor_uid: str, uid: str) -> list[Instruction]:
        """Let the budgets of the pod, which runs, count its disruption, and delete it."""
        placed = self.state.placed[uid]
        self._n_results += 1
        self._room_made_s[preemptor_uid] = self.now_s
        victim, broken = placed.pod, ""
        # Not as preemption counts, which leaves out a budget of all pods of its namespace.
        for budget in list(self.state.budgets.within(victim.namespace)):
            if budget.selector.matches(victim.labels) and victim.name not in budget.disrupted_pods:
                broken = broken or ("" if budget.disruptions_allowed > 0 else budget.name)
                left = max(0, budget.disruptions_allowed - 1)
                self.process(ObjectSeen(replace(budget, disruptions_allowed=left)))
        self.evictions.append(Eviction(victim, broken))
        released = list(freed_claims(victim, self.state))
        return self._handle_all(
            EvictionEnded(preemptor_uid, uid, VictimFate.DELETED), PodGone(uid), *released
        )

    def _write(self, reservation: WriteReservation) -> list[Instruction]:
        """Make the writes, bind claims to the volumes promised to them, and make the volumes of the others."""
        version = self._next_version()
        made: list[StoredObject] = []
        for write in reservation.writes:
            objects: Sequence[ResourceClaim | PersistentVolume | PersistentVolumeClaim]
            match write:
                case ClaimReservation():
                    seen = self.state.devices.seen(write.obj.kind, write.obj.key) or write.obj
                    reserved = write.applied_to(seen)
                    if write.mappings is not None:  # it has been created
                        reserved = replace(reserved, key=f"{write.pod.namespace}/{reserved.created_name}")
                    objects = [reserved]
                case VolumePromise(volume, claim):
                    objects = bound_to(claim, volume)
                case NodeSelection():
                    selected = write.applied_to(write.obj)
                    objects = provisioned_for(selected, reservation.node_name, self.state.volumes)
                case _:
                    raise InvariantViolation(f"no controller of this world acts on {write}")
            made += [replace(obj, resource_version=version) for obj in objects]
        versions = (version,) * len(reservation.writes)
        uid, number = reservation.pod.uid, reservation.number
        written = ReservationWritten(uid, versions, number=number, objects=tuple(made))
        return self._handle_all(written, *map(ObjectSeen, made))

    def _write_all(self, instruction: WriteObjects) -> list[Instruction]:
        """Undo or give up what the writes name, each of which is of a claim."""
        told: list[Instruction] = []
        for write in instruction.writes:
            claim = self.state.devices.claim(write.obj.key)
            if claim is None:
                continue
            version = self._next_version()
            match write:
                case ClaimRelease(pod=pod):
                    left = tuple(each for each in claim.reserved_for if each.uid != pod.uid)
                    shown = replace(claim, reserved_for=left, resource_version=version)
                case ClaimDeallocation():
                    shown = replace(
                        claim, allocation=None, reserved_for=(), devices=(), resource_version=version
                    )
                case _:
                    told += self.handle(ObjectGone(claim.kind, claim.key))
                    continue
            told += self.handle(ObjectSeen(shown))
        return told

    def _next_version(self) -> str:
        """Return a resourceVersion later than all that an API server has given."""
        self._n_versions += 1
        return f"{10**30 + self._n_versions}"
