"""What watches have told an instance, what it decides, and whom it evicts: an ear on its machine."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.engine.core.machine import Machine
from scheduler.engine.model.disruption_budgets import DisruptionBudget
from scheduler.engine.model.instructions import (
    Attempted,
    Bind,
    ClearNomination,
    EmitEvent,
    EvictVictim,
    Instruction,
    PatchCondition,
    WriteReservation,
)
from scheduler.engine.model.nodes import Namespace
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import (
    BindDone,
    EvictionEnded,
    NodeGone,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodGone,
    PodSeen,
    Stimulus,
    VictimFate,
)
from tests.proof.chaos.groups import Members, as_decided
from tests.proof.chaos.journal import WATCHED, Decided, Journal, Ordered, Preempted, Retried, View


class Told:
    """The objects that one life of an instance knows of, exactly as it was told; records what it decides."""

    def __init__(self, journal: Journal, agent: str, machine: Machine) -> None:
        self._journal, self._agent, self._machine = journal, agent, machine
        self._versions: dict[tuple[str, str], int] = {}
        #: The newest version of each kind, and the last one of each object, deletions included.
        self._newest = dict.fromkeys(WATCHED, 0)
        self._last: dict[tuple[str, str], int] = {}
        self._budgets: dict[str, int] = {}
        self._ending: dict[str, bool] = {}
        self._members = Members()
        #: The node of its last decision, by UID of a pod; empty once that is given up.
        self._headed: dict[str, str] = {}
        #: The UIDs of pods for which something is reserved there, and written before their bind.
        self._reserving: set[str] = set()
        #: The pods for which evictions were begun; when one failed last, by the instance's clock.
        self._preemptors: set[str] = set()
        self._failed_s: dict[str, float] = {}
        self._before = self.view()
        self._assumed = dict(self._before.assumed)

    def is_ending(self, uid: str) -> bool:
        """Return whether it was told that the pod ends, or nothing of it any more."""
        return self._ending.get(uid, True)

    def view(self) -> View:
        """Return what it was told, and what it assumes; in the middle of a cycle, as before it."""
        state = self._machine.state
        if state.is_provisional:
            return self._before
        assumed = {uid: one.pod.node_name for uid, one in state.placed.items() if one.assumed}
        nominated = {pod.uid: node for node, pods in state.nominated.by_node() for pod in pods}
        return View(dict(self._versions), dict(self._budgets), assumed, nominated)

    def hear(self, stimulus: Stimulus, now_s: float) -> None:
        """Note what the stimulus tells."""
        match stimulus:
            case PodSeen(pod):
                self._see("Pod", pod.uid, int(pod.resource_version))
                self._ending[pod.uid] = pod.terminating
                self._members.see(pod)
            case BindDone(uid):
                self._members.note_bound(uid)
            case NodeSeen(node):
                self._see("Node", node.name, int(node.resource_version))
            case ObjectSeen(Namespace() as namespace):
                self._see("Namespace", namespace.name, int(namespace.resource_version))
            case PodGone(uid):
                self._see_deleted("Pod", uid)
                self._ending.pop(uid, None)
                self._members.see_deleted(uid)
            case NodeGone(name):
                self._see_deleted("Node", name)
                for pod in self._machine.state.nominated.on(name):
                    # Its nomination is withdrawn, and it is tried at once.
                    self._failed_s.pop(pod.uid, None)
            case ObjectGone("Namespace", name):
                self._see_deleted("Namespace", name)
            case ObjectSeen(DisruptionBudget() as budget):
                self._budgets[budget.key] = budget.disruptions_allowed
            case ObjectGone("PodDisruptionBudget", key):
                self._budgets.pop(key, None)
            case EvictionEnded(preemptor_uid, fate=VictimFate.FAILED):
                self._failed_s[preemptor_uid] = now_s

    def _see(self, kind: str, name: str, version: int) -> None:
        self._versions[kind, name] = self._last[kind, name] = version
        self._newest[kind] = max(self._newest[kind], version)

    def _see_deleted(self, kind: str, name: str) -> None:
        """Note a deletion, whose version is looked up in the journal, as watches do not tell it."""
        self._versions.pop((kind, name), None)
        last = self._last.get((kind, name), 0)
        for one in self._journal.written:
            if one.kind == kind and one.version > last and one.left(name):
                self._last[kind, name] = one.version
                self._newest[kind] = max(self._newest[kind], one.version)
                return

    def begin_cycle(self) -> None:
        """Keep the view before the cycle that follows."""
        self._before = self.view()
        # Members of a group are placed one after the other within one cycle, which may come in pieces.
        self._assumed = dict(self._before.assumed)

    def note(self, instructions: list[Instruction], now_s: float) -> None:
        """Record the decisions, the evictions, and the events of their victims."""
        # Members of a group are decided on together, and may exchange their nodes.
        at_once = {
            one.pod.uid: one.node_name for one in instructions if isinstance(one, Bind | WriteReservation)
        }
        for one in instructions:
            match one:
                case Bind(pod) | Attempted(pod=pod, result="unschedulable") if pod.uid in self._preemptors:
                    self._note_retried(pod, now_s)
            match one:
                case Bind(pod, node) if pod.uid in self._reserving and self._headed.get(pod.uid) == node:
                    self._reserving.discard(pod.uid)
                case Bind(pod, node) | WriteReservation(pod, node):
                    self._note_decided(pod, node, self._headed | at_once)
                    self._assumed[pod.uid] = self._headed[pod.uid] = node
                    if isinstance(one, WriteReservation):
                        self._reserving.add(pod.uid)
                case PatchCondition(pod, nominated_node_name=str(node)):
                    self._headed[pod.uid] = node
                    self._reserving.discard(pod.uid)
                case ClearNomination(pod):
                    self._headed[pod.uid] = ""
                    self._reserving.discard(pod.uid)
            match one:
                case Attempted(pod=pod, nominated_node_name=node) if node:
                    preempted = Preempted(
                        self._journal.now_s(),
                        self._agent,
                        pod.uid,
                        pod.key,
                        node,
                        victims=tuple("/".join(victim) for victim in one.victims),
                        n_victims=one.n_victims,
                        view=self._before,
                    )
                    self._journal.evictions.append(preempted)
                case EvictVictim(preemptor, victim):
                    ordered = Ordered(self._agent, preemptor.uid, victim.uid, victim.key, victim.node_name)
                    self._journal.evictions.append(ordered)
                    self._preemptors.add(preemptor.uid)
                case EmitEvent(pod=pod, reason="Preempted", note=note) if "in kube-scheduler memory" in note:
                    self._journal.outbid.add(pod.uid)
                case EmitEvent(pod=pod, reason="Preempted"):
                    self._journal.reported.append((self._agent, pod.uid))

    def _note_decided(self, pod: Pod, node: str, headed: Mapping[str, str]) -> None:
        self._members.note_decided(pod.uid)
        decided = Decided(
            at_s=self._journal.now_s(),
            by=self._agent,
            uid=pod.uid,
            key=pod.key,
            node=node,
            version=self._journal.version,
            seen=dict(self._newest),
            assumed=dict(self._assumed),
            headed=headed,
        )
        self._journal.decided.append(as_decided(decided, pod, self._machine.state.groups, self._members))

    def _note_retried(self, pod: Pod, now_s: float) -> None:
        failed_s = self._failed_s.get(pod.uid)
        before_s = None if failed_s is None else now_s - failed_s
        retried = Retried(self._journal.now_s(), self._agent, pod.uid, pod.key, self._before, before_s)
        self._journal.evictions.append(retried)
