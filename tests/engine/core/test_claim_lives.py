"""
Drawn lives of pods with claims: writes fail, answers are lost, others allocate, delete and write at the same time.

In the end every pod is bound, waits, or is gone; nothing is assumed; no device is in two claims of bound pods; and
every bound pod has its claims, on its node. What undoes an attempt may come after the next one has begun.
"""

import json
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.engine.model.instructions import Bind, Instruction, WriteObjects, WriteReservation
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import BindDone, BindFailed, PodGone, PodSeen
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support import build
from tests.support.device_documents import device_class, resource_claim
from tests.support.driving import NAME

_CLAIMS = ("c0", "c1", "c2", "c3")
_STEPS = 80


class _Life:
    """A cluster in which anything may happen next."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.cluster = ClaimCluster(n_devices=4)
        self.cluster.show(device_class("nic", "example.com/nic"))
        self.cluster.server.loses = lambda _: self.rng.random() < 0.1
        self.waiting: dict[str, Pod] = {}
        self.bound: dict[str, Pod] = {}
        self.node_names: dict[str, str] = {}
        self.orders: list[Instruction] = []
        self.n_pods = 0
        for name in _CLAIMS:
            self.cluster.store(resource_claim(name))
        self.cluster.watch()

    def step(self) -> None:
        """Do one thing of those that may happen."""
        self.rng.choice(
            (
                self.create_claim,
                self.create_pod,
                self.cycle,
                self.cycle,
                self.carry_out,
                self.carry_out,
                self.watch,
                self.watch,
                self.delete_pod,
                self.meddle,
                self.pass_time,
            )
        )()
        self.cluster.audit()

    def create_claim(self) -> None:
        name = self.rng.choice(_CLAIMS)
        if f"default/{name}" not in self.cluster.server.claims:
            self.cluster.store(resource_claim(name, self.rng.choice((1, 1, 2))))

    def create_pod(self) -> None:
        self.n_pods += 1
        name = f"p{self.n_pods}"
        claims = self.rng.sample(_CLAIMS, self.rng.choice((1, 1, 2)))
        spec: build.Json = {"schedulerName": NAME}
        requests = {"example.com/nic": "1"} if self.rng.random() < 0.3 else {"cpu": "1"}
        if "cpu" in requests or self.rng.random() < 0.5:
            spec["resourceClaims"] = [{"name": each, "resourceClaimName": each} for each in claims]
        container = {"name": "c", "image": "i", "resources": {"requests": requests}}
        pod = self.cluster.decoded(build.pod(name, spec={**spec, "containers": [container]}))
        self.waiting[pod.uid] = pod
        self.orders += self.cluster.handle(PodSeen(pod))

    def cycle(self) -> None:
        self.orders += self.cluster.cycle()

    def carry_out(self) -> None:
        """Carry out an order: of the writes for a pod the oldest, which may be later than a bind."""
        orders = [each for each in self.orders if isinstance(each, Bind | WriteReservation | WriteObjects)]
        self.orders = [*orders]
        if not orders:
            return
        order = self.rng.choice(orders)
        if not isinstance(order, Bind):
            order = next(
                each for each in orders if each.pod.uid == order.pod.uid and not isinstance(each, Bind)
            )
        self.orders.remove(order)
        match order:
            case WriteReservation():
                self.orders += self.cluster.write(order)
            case WriteObjects():
                self.cluster.write_all(order)
            case Bind(pod):
                self._bind(pod, order.node_name)

    def _bind(self, pod: Pod, node_name: str) -> None:
        if pod.uid not in self.waiting or self.rng.random() < 0.2:
            self.orders += self.cluster.handle(BindFailed(pod.uid, "refused"))
            return
        self.bound[pod.uid] = self.waiting.pop(pod.uid)
        self.node_names[pod.uid] = node_name
        self.orders += self.cluster.handle(BindDone(pod.uid))
        version = self.cluster.next_version()
        document = build.pod(pod.name, node=node_name)
        document["metadata"] |= {"uid": pod.uid, "resourceVersion": version}
        placed = self.cluster.decoded(document)
        self.orders += self.cluster.handle(PodSeen(placed))

    def watch(self) -> None:
        self.cluster.collect()
        self.orders += self.cluster.watch()

    def delete_pod(self) -> None:
        if self.waiting and self.rng.random() < 0.5:
            uid = self.rng.choice(sorted(self.waiting))
            del self.waiting[uid]
            self.orders += self.cluster.handle(PodGone(uid))

    def meddle(self) -> None:
        """Change a claim as another client does, or delete one that is not allocated."""
        claims = self.cluster.server.claims
        if not claims:
            return
        key = self.rng.choice(sorted(claims))
        claim = json.loads(json.dumps(claims[key]))
        if "allocation" not in claim.get("status", {}) and self.rng.random() < 0.5:
            del claims[key]
            return
        claim["metadata"]["labels"] = {"touched": str(self.rng.random())}
        self.cluster.server.put(claim)

    def pass_time(self) -> None:
        self.cluster.now_s += self.rng.choice((1.0, 30.0, 200.0))
        self.cluster.pass_time(0.0)

    def settle(self) -> None:
        """Let everything come to rest."""
        self.cluster.server.loses = lambda _: False
        self.rng = Random(1)
        for _ in range(200):
            # A claim whose creation lost its answer may be waited for until its time is over.
            self.cluster.now_s += 2.0
            self.cluster.pass_time(0.0)
            self.watch()
            self.cycle()
            self.carry_out()
        while any(isinstance(each, Bind | WriteReservation | WriteObjects) for each in self.orders):
            self.carry_out()
            self.watch()

    def check(self) -> None:
        """Assert what holds at rest."""
        self.cluster.holds_nothing()
        taken: dict[str, str] = {}
        for key, claim in self.cluster.server.claims.items():
            status = claim.get("status", {})
            if not any(each["uid"] in self.bound for each in status.get("reservedFor", [])):
                # Of no pod that runs: the claim controller, which does not run here, takes its devices back.
                continue
            for result in status["allocation"]["devices"]["results"]:
                device = f"{result['pool']}/{result['device']}"
                assert taken.setdefault(device, key) == key, f"{device} is of {taken[device]} and of {key}"
        for uid, pod in self.bound.items():
            own = {f"default/{entry.claim_name}" for entry in pod.spec.resource_claims}
            for key, claim in self.cluster.server.claims.items():
                status = claim.get("status", {})
                if any(each["uid"] == uid for each in status.get("reservedFor", [])):
                    own.discard(key)
                    pools = {result["pool"] for result in status["allocation"]["devices"]["results"]}
                    assert pools == {self.node_names[uid]}
            assert not own, f"{pod.key} is bound without {own}"


def _lived(seed: int) -> int:
    """Return how many pods a life has bound."""
    life = _Life(seed)
    for _ in range(_STEPS):
        life.step()
    life.settle()
    life.check()
    return len(life.bound)


@settings(max_examples=60)
@example(198351)
@example(30383404)
@example(718)
@given(st.integers(0, 1 << 32))
def test_a_life_ends_with_nothing_assumed_and_no_device_given_twice(seed: int) -> None:
    _lived(seed)


def test_lives_bind_pods() -> None:
    assert sum(map(_lived, range(20))) > 40
