"""
Random lives of pods with claims of volumes or devices: volumes come and go, provisioners make, stall and give up,
others write too, writes are answered late, in part or never, watches lag, and the machine dies at any point and is
built anew from what the server has.

No volume is promised twice and no device given twice, each reservation ends once, a pod is bound only when its claims
are, nothing is lost, and counts equal a recount.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.engine.model.claim_writes import ClaimReservation
from scheduler.engine.model.instructions import (
    Attempted,
    Bind,
    Instruction,
    WriteObjects,
    WriteReservation,
)
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.requests import filter_request
from scheduler.engine.model.stimuli import (
    BindDone,
    BindFailed,
    NodeGone,
    ObjectSeen,
    PodGone,
    PodSeen,
    ReservationWritten,
    Stimulus,
    TimePassed,
)
from scheduler.engine.model.volumes import StorageKind
from tests.engine.core.claim_cluster import ClaimCluster, LossyServer
from tests.support import build
from tests.support.cases.volume_rows import using
from tests.support.device_documents import device_class, device_slice, resource_claim, using_claims
from tests.support.driving import NAME
from tests.support.storage_objects import claim, storage_class, volume
from tests.support.volume_server import VolumeServer, promises

NODES = ("a", "b", "c")
LOCAL, MADE = "local", "made"
#: Claims of devices, of which nodes a and b have as many.
DEVICES = ("c0", "c1", "c2", "c3")


def _claim_keys(pod: Pod) -> set[str]:
    return {f"default/{used.claim_name(pod.name)}" for used in pod.spec.claim_volumes}


class ReservationLives(RuleBasedStateMachine):
    """Servers of volumes and of devices, a machine that watches them, and who else writes there."""

    _sizes = ("1Gi", "2Gi")

    @initialize()
    def start(self) -> None:
        self.server = VolumeServer()
        self.server.apply(storage_class(MADE))
        self.server.apply(storage_class(LOCAL, "kubernetes.io/no-provisioner"))
        self.devices = LossyServer()
        self.nodes = {"a", "b"}
        #: Pods that the server has, with their claims, and nodes of the bound ones.
        self.pods: dict[str, Pod] = {}
        self.n_pods = self.n_claims = self.n_volumes = 0
        self.n_started = 0
        for node in (None, "a", "b"):
            self.n_volumes += 1
            terms = None if node is None else [build.node_term(f"{build.HOSTNAME} in {node}")]
            self.server.apply(volume(f"v{self.n_volumes}", LOCAL, capacity="2Gi", terms=terms))
        for name in DEVICES:
            self.devices.put(resource_claim(name))
        self.boot()

    def boot(self) -> None:
        """Start a new machine and show it all objects."""
        self.driver = ClaimCluster(nodes=(), server=self.devices)
        self.n_started += 1
        self.driver._version = 1000 * self.n_started
        #: Instructions whose answers are open, and the pods whose volumes are reserved.
        self.writes: dict[str, WriteReservation] = {}
        self.answers: list[ReservationWritten] = []
        self.binds: dict[str, Bind] = {}
        self.undoing: list[WriteObjects] = []
        self.reserved: set[str] = set()
        #: Claims that were bound when the reservation was decided, by pod.
        self.bound_before: dict[str, set[str]] = {}
        #: Volumes and the versions that this machine has written, by the answers that it got.
        self.wrote: dict[str, str] = {}
        for name in sorted(self.nodes):
            self.driver.node(name)
        self.n_watched = len(self.server.events)
        for obj in list(self.server.objects.values()):
            self.handle(ObjectSeen(obj))
        self.driver.show(device_class("nic", "example.com/nic"))
        for name in ("a", "b"):
            self.driver.show(device_slice(name, len(DEVICES)))
        self._watch_devices()
        for pod in list(self.pods.values()):
            self.handle(PodSeen(pod))

    def _watch_devices(self) -> None:
        self.driver.collect()
        for instruction in self.driver.watch():
            self._take(instruction)

    def handle(self, stimulus: Stimulus) -> None:
        for instruction in self.driver.handle(stimulus):
            self._take(instruction)

    def _take(self, instruction: Instruction) -> None:
        match instruction:
            case WriteReservation():
                uid = instruction.pod.uid
                assert uid not in self.reserved, "reserved twice"
                self.reserved.add(uid)
                self.writes[uid] = instruction
                claims = map(self.driver.state.volumes.claim, _claim_keys(instruction.pod))
                self.bound_before[uid] = {each.key for each in claims if each is not None and each.is_bound}
                self._promises_are_single()
                for promise in promises(instruction):
                    stored = self.server.volume(promise.obj.key)
                    if stored is not None and self.wrote.get(stored.key) == stored.resource_version:
                        assert stored.claim == promise.value, "promised after it was written"
            case Bind():
                uid = instruction.pod.uid
                assert uid not in self.binds, "bound twice"
                self.reserved.discard(uid)
                self.binds[uid] = instruction
                # A claim that was bound before is not looked at again, nor is it upstream (checkBindings of
                # binder.go, kubernetes 1.36): the kubelet of a pod whose claim was deleted meanwhile waits for it.
                for key in _claim_keys(instruction.pod) - self.bound_before.get(uid, set()):
                    found = self.driver.state.volumes.claim(key)
                    assert found is not None and found.is_bound, "bound before its claim"
            case WriteObjects():
                self.undoing.append(instruction)
            case Attempted(pod=pod, result="error"):
                self.reserved.discard(pod.uid)

    def _promises_are_single(self) -> None:
        """
        Assert that no two claims are promised one version of a volume.

        A write names the version that it changes. So where another instance took the volume and gave it back, as a
        watch shows, the promise of before can no longer be stored, and the volume may be promised again.
        """
        promised: dict[tuple[str, str], str] = {}
        for uid in self.reserved & self.writes.keys():
            for promise in promises(self.writes[uid]):
                version, key = (promise.obj.key, promise.obj.resource_version), promise.claim.key
                assert promised.setdefault(version, key) == key, "promised twice"

    # Users and administrators.

    def _make_claim(self, storage: str, name: str = "") -> str:
        self.n_claims += 1
        name = name or f"c{self.n_claims}"
        made = claim(name, storage, request=self._sizes[self.n_claims % 2])
        made["metadata"]["uid"] = f"claim-{self.n_claims}"
        self.server.apply(made)
        return name

    def _any_claim(self, data: st.DataObject) -> str:
        names = [one.name for one in self.server.claims()]
        return data.draw(st.sampled_from([*names[-3:], "missing"]))

    @rule(
        data=st.data(),
        number=st.integers(1, 8),
        what=st.sampled_from(["claim", "claim anew", "volume", "promise", "nothing", "devices"]),
    )
    def disturb(self, data: st.DataObject, number: int, what: str) -> None:
        """Delete an object, replace it, reset it, or write it without a change that matters."""
        found = self.server.volume(f"v{number}")
        if what == "claim":
            self.server.delete(StorageKind.CLAIM, f"default/{self._any_claim(data)}")
        elif what == "claim anew":
            self._make_claim(MADE if number % 2 else LOCAL, self._any_claim(data))
        elif what == "volume":
            self.server.delete(StorageKind.VOLUME, f"v{number}")
        elif what == "promise" and found is not None:
            self.server.touch(replace(found, claim=None, is_available=True))
        elif what == "nothing":
            self.server.touch(self.server.objects[data.draw(st.sampled_from(sorted(self.server.objects)))])
        elif what == "devices":
            self._disturb_devices(f"default/{DEVICES[number % 4]}", number)

    def _disturb_devices(self, key: str, number: int) -> None:
        """Delete a claim of devices that is not allocated, or create or label it."""
        stored = self.devices.claims.get(key)
        if stored is None:
            self.devices.put(resource_claim(key.partition("/")[2], 1 + number // 8))
        elif number < 5 and "allocation" not in stored.get("status", {}):
            del self.devices.claims[key]
        else:
            self.devices.put(
                {**stored, "metadata": {**stored["metadata"], "labels": {"touched": f"{number}"}}}
            )

    @rule(
        data=st.data(),
        node=st.sampled_from([None, *NODES]),
        capacity=st.sampled_from(["1Gi", "2Gi"]),
        is_taken=st.sampled_from([False, False, False, True]),
    )
    def make_volume(self, data: st.DataObject, node: str | None, capacity: str, is_taken: bool) -> None:
        self.n_volumes += 1
        terms = None if node is None else [build.node_term(f"{build.HOSTNAME} in {node}")]
        claimed_by = f"default/{self._any_claim(data)}" if is_taken else None
        made = volume(f"v{self.n_volumes}", LOCAL, capacity=capacity, terms=terms, claimed_by=claimed_by)
        self.server.apply(made)

    @rule(
        data=st.data(),
        stored=st.lists(st.sampled_from([LOCAL, MADE]), max_size=2),
        shares=st.sampled_from([False, False, True]),
        devices=st.one_of(st.just([]), st.lists(st.sampled_from(DEVICES), max_size=2, unique=True)),
        extended=st.sampled_from([False, False, False, True]),
        n_cycles=st.sampled_from([0, 1, 2]),
    )
    def make_pod(
        self,
        data: st.DataObject,
        stored: list[str],
        shares: bool,
        devices: list[str],
        extended: bool,
        n_cycles: int,
    ) -> None:
        """Create a pod with claims of its own, as of a StatefulSet, or with one that another pod may have."""
        used = [self._make_claim(storage) for storage in stored]
        if shares and used:
            used[0] = self._any_claim(data)
        self.n_pods += 1
        document = using(*used, name=f"p{self.n_pods}")
        document["spec"] |= {"schedulerName": NAME, **using_claims(*devices)}
        if extended:
            document["spec"]["containers"] = [build.container(requests={"example.com/nic": "1"})]
        pod = self.driver.decoded(document)
        self.pods[pod.uid] = pod
        self.handle(PodSeen(pod))
        if n_cycles:
            self.watch(10_000)
            self.cycle(n_cycles)

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), at_once=st.booleans())
    def delete_pod(self, data: st.DataObject, at_once: bool) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        if at_once:
            del self.pods[uid]
            self.handle(PodGone(uid))
        else:
            self._see(uid, terminating=True)

    def _see(self, uid: str, **changed: Any) -> None:
        self.pods[uid] = replace(self.pods[uid], resource_version=self.driver.next_version(), **changed)
        self.handle(PodSeen(self.pods[uid]))

    @rule(name=st.sampled_from(NODES))
    def toggle_node(self, name: str) -> None:
        self.nodes ^= {name}
        if name in self.nodes:
            self.driver.node(name)
        else:
            self.handle(NodeGone(name))

    # The cluster.

    @rule()
    def control(self) -> None:
        self.server.control()

    @rule(fails=st.sampled_from([False, False, True]), n_most=st.sampled_from([1, 99]))
    def provision(self, fails: bool, n_most: int) -> None:
        waiting = [one for one in self.server.claims() if one.selected_node and not one.volume_name]
        for found in waiting[:n_most]:
            self.server.provision(found.key, fails=fails)

    @rule(n_most=st.sampled_from([1, 2, 99, 99]))
    def watch(self, n_most: int) -> None:
        for event in self.server.events[self.n_watched :][:n_most]:
            self.n_watched += 1
            self.handle(event)
        if n_most > 1:
            self._watch_devices()

    # The scheduler.

    @rule()
    def catch_up(self) -> None:
        self.watch(10_000)
        self.cycle(4)

    @rule(times=st.integers(1, 3))
    def cycle(self, times: int) -> None:
        for _ in range(times):
            for instruction in self.driver.cycle():
                self._take(instruction)

    @precondition(lambda self: self.writes)
    @rule(
        data=st.data(),
        n_most=st.sampled_from([0, 1, 99, 99, 99]),
        answered=st.sampled_from([True, True, False]),
    )
    def write(self, data: st.DataObject, n_most: int, answered: bool) -> None:
        """Let writes reach the server; their answer comes now or later."""
        uid = data.draw(st.sampled_from(sorted(self.writes)))
        instruction = self.writes.pop(uid)
        answer = self._written(instruction, n_most)
        if answered:
            written = zip(promises(instruction), answer.versions, strict=False)
            self.wrote |= {promise.obj.key: version for promise, version in written}
            self.handle(answer)
        else:
            self.answers.append(answer)

    def _written(self, instruction: WriteReservation, n_most: int = 99) -> ReservationWritten:
        """Return the answer to the writes; of those of devices the answer to request `n_most` is lost."""
        of_devices = tuple(each for each in instruction.writes if isinstance(each, ClaimReservation))
        of_volumes = instruction.writes[: len(instruction.writes) - len(of_devices)]
        answer = self.server.write(replace(instruction, writes=of_volumes), n_most)
        if answer.problem or not of_devices:
            return answer
        lost = self.devices.n_requests + n_most + 1
        self.devices.loses = lambda number: number == lost
        self.undo(instruction.pod.uid)
        more = self.driver.answer_to(replace(instruction, writes=of_devices))
        return replace(more, versions=(*answer.versions, *more.versions))

    def undo(self, uid: str) -> None:
        """Carry out what undoes writes for the pod."""
        mine = [each for each in self.undoing if each.pod.uid == uid]
        self.undoing = [each for each in self.undoing if each.pod.uid != uid]
        for each in mine:
            self.driver.write_all(each)

    @precondition(lambda self: self.undoing)
    @rule()
    def undo_one(self) -> None:
        self.undo(self.undoing[0].pod.uid)

    @precondition(lambda self: self.answers)
    @rule()
    def answer(self) -> None:
        self.handle(self.answers.pop())

    @precondition(lambda self: self.binds)
    @rule(data=st.data(), outcome=st.sampled_from(["done", "failed", "seen first", "elsewhere"]))
    def answer_bind(self, data: st.DataObject, outcome: str) -> None:
        uid = data.draw(st.sampled_from(sorted(self.binds)))
        bind = self.binds.pop(uid)
        fails = outcome in ("failed", "elsewhere") or uid not in self.pods or self.pods[uid].terminating
        if uid in self.pods and not self.pods[uid].terminating and outcome in ("seen first", "elsewhere"):
            self._see(uid, node_name="d" if outcome == "elsewhere" else bind.node_name)
        self.handle(BindFailed(uid, "no") if fails else BindDone(uid))
        if outcome == "done" and not fails:
            self._see(uid, node_name=bind.node_name)

    @precondition(lambda self: self.reserved or self.binds)
    @rule(late=st.booleans())
    def die(self, late: bool) -> None:
        """Replace the machine by a new one, which knows nothing; a write that the old one sent may still arrive."""
        sent = list(self.writes.values())
        self.boot()
        if late:
            for instruction in sent:
                self._written(instruction, 1)

    @rule(seconds=st.sampled_from([1.0, 20.0, 700.0]))
    def pass_time(self, seconds: float) -> None:
        self.driver.now_s += seconds
        self.handle(TimePassed())
        wake_s = self.driver.machine._reservations.next_wake_s()
        assert wake_s is None or wake_s > self.driver.now_s

    # What has to be so.

    @invariant()
    def counts_equal_a_recount(self) -> None:
        if hasattr(self, "driver"):
            self.driver.audit()

    @invariant()
    def each_reservation_is_held_once(self) -> None:
        if hasattr(self, "driver"):
            machine = self.driver.machine
            assert set(machine._reservations._pods) == self.reserved
            assert self.reserved <= {record.uid for record in machine.records if record.binding is not None}
            assert machine.n_binding == len(self.binds) + len(self.writes) + len(self.answers)
            for key, assumption in self.driver.state.volumes._assumptions.items():
                assert assumption.holders <= self.reserved, key

    @invariant()
    def no_waiting_pod_is_overlooked(self) -> None:
        """Check all waiting pods again: each is as ready as it was found when it was last noted."""
        if hasattr(self, "driver"):
            reservations = self.driver.machine._reservations
            for uid, reserved in reservations._pods.items():
                if reserved.versions is not None:
                    assert reservations._checked(reserved) is (uid in reservations._ready)

    @invariant()
    def no_pod_is_lost(self) -> None:
        if hasattr(self, "driver"):
            machine = self.driver.machine
            for uid, pod in self.pods.items():
                if not pod.node_name and not pod.terminating:
                    assert (machine.queue.get(uid) is not None) != machine.records.is_unanswered(uid), pod.key

    def teardown(self) -> None:
        """Answer all writes and show all objects; then every pod that can be bound has to be."""
        if not hasattr(self, "driver"):
            return
        self.nodes |= {"a", "b"}
        for name in sorted(self.nodes):
            self.driver.node(name)
        for _ in range(12):
            for uid in sorted(self.writes):
                self.handle(self._written(self.writes.pop(uid)))
            while self.undoing:
                self.undo_one()
            while self.answers:
                self.handle(self.answers.pop())
            self.server.control()
            for found in self.server.claims():
                self.server.provision(found.key, fails=found.selected_node not in self.nodes)
            self.watch(10_000)
            for uid, bind in list(self.binds.items()):
                del self.binds[uid]
                if uid in self.pods and not self.pods[uid].terminating:
                    self.handle(BindDone(uid))
                    self._see(uid, node_name=bind.node_name)
                else:
                    self.handle(BindFailed(uid, "gone"))
            self.driver.now_s += 20.0
            self.handle(TimePassed())
            while self.driver.machine.has_work():
                self.cycle(1)
        assert not self.reserved and not self.driver.machine.records.n_unanswered
        assert not self.driver.state.volumes._assumptions
        self.driver.audit()
        assert not self.driver.state.devices._assumptions
        self._judge_devices()
        for pod in self.pods.values():
            if not pod.node_name and not pod.terminating and not self._wants_devices(pod):
                assert not self._can_be_bound(pod), pod.key

    def _wants_devices(self, pod: Pod) -> bool:
        return bool(pod.spec.resource_claims or "example.com/nic" in filter_request(pod))

    def _judge_devices(self) -> None:
        """Assert that every bound pod has its claims, with devices of its node, and none of them is given twice."""
        taken: dict[str, str] = {}
        missing = {
            (uid, f"default/{entry.claim_name}")
            for uid, pod in self.pods.items()
            for entry in pod.spec.resource_claims
            if pod.node_name in self.nodes
        }
        for key, stored in self.devices.claims.items():
            status = stored.get("status", {})
            holders = [
                self.pods[each["uid"]] for each in status.get("reservedFor", []) if each["uid"] in self.pods
            ]
            bound = [pod for pod in holders if pod.node_name]
            missing -= {(pod.uid, key) for pod in bound}
            for result in status["allocation"]["devices"]["results"] if bound else ():
                device = f"{result['pool']}/{result['device']}"
                assert taken.setdefault(device, key) == key, f"{device} is of {taken[device]} and of {key}"
                assert {pod.node_name for pod in bound} <= {result["pool"], "d"}
        assert not missing

    def _can_be_bound(self, pod: Pod) -> bool:
        """Return whether volumes can be made for all claims of the pod."""
        for used in pod.spec.claim_volumes:
            found = self.server.claim(f"default/{used.claim_name(pod.name)}")
            if found is None or found.class_name != MADE or found.volume_name:
                return False
        return True


ReservationLives.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestReservationLives = ReservationLives.TestCase
