"""
The costs of hostile pods as multiples of the costs of a plain pod in the same process: no pod makes a cycle slow.

Costs are CPU time of this thread, the minimum of several tries. The bounds are several times the measured costs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from scheduler.model.instructions import Bind
from scheduler.model.stimuli import PodSeen
from tests.hostile.pods import APPS, KEYS, hostile
from tests.support import build
from tests.support.driving import NAME, Driver, condition_of

N_NODES, N_NAMESPACES = 300, 20
#: Multiples of the limits.
WITHIN, BEYOND = 1, 10
KINDS = [*hostile(WITHIN)]

#: Bound for the pod's own events and cycle, as a multiple of a plain pod's.
OWN = 250.0
#: Bound for events and cycle of a plain pod beside hostile ones, as a multiple of before.
OTHERS = 10.0
#: Bound for decoding, per byte, as a multiple of a plain pod's.
READING = 3.0


@dataclass
class Costs:
    """The costs of a pod in CPU seconds."""

    reading_per_byte: float
    own: float


class Town:
    """A cluster, and the costs of pods in it."""

    def __init__(self) -> None:
        self.driver = Driver()
        self._n = 0
        self.driver.namespace("default", team="t0")
        for number in range(N_NAMESPACES):
            self.driver.namespace(f"ns-{number}", team=f"t{number % 4}")
        for number in range(N_NODES):
            labels = dict.fromkeys(KEYS, f"v{number % 7}")
            self.driver.node(
                f"n{number}", labels={build.ZONE: f"z{number % 3}", **labels}, taints=["x:PreferNoSchedule"]
            )
        for number, app in enumerate(APPS):
            self.driver.pod(
                app, namespace=f"ns-{number % N_NAMESPACES}", labels={"app": app, "tier": str(number % 7)},
                node=f"n{number % N_NODES}",
            )  # fmt: skip
        for _ in range(20):
            self.live({})
        self.plain = self.cost_of({})

    def document(self, keywords: dict[str, Any]) -> bytes:
        self._n += 1
        document = build.pod(f"p{self._n}", **keywords, spec={"schedulerName": NAME})
        document["metadata"]["resourceVersion"] = str(1_000_000 + self._n)
        return json.dumps(document).encode()

    def live(self, keywords: dict[str, Any]) -> Costs:
        """Add a pod, try it, bind it if it fits, and delete it. Return the costs."""
        raw = self.document(keywords)
        started = time.thread_time()
        pod = self.driver._decoder.decode(raw)
        read = time.thread_time()
        self.driver.handle(PodSeen(pod))
        bound = [order for order in self.driver.cycle() if isinstance(order, Bind)]
        if bound:
            self.driver.confirm(pod, bound[0].node_name)
        self.driver.lose(pod)
        done = time.thread_time()
        return Costs((read - started) / len(raw), done - read)

    def cost_of(self, keywords: dict[str, Any], tries: int = 5) -> Costs:
        """Return the lowest costs of pods with new specs."""
        return self.least([self.live(self.fresh(keywords)) for _ in range(tries)])

    def cost_of_hostile(self, what: str, times: int) -> Costs:
        """Return the lowest costs of hostile pods, each with different terms."""
        return self.least([self.live(hostile(times, f"n{number}")[what]) for number in range(3)])

    def fresh(self, keywords: dict[str, Any]) -> dict[str, Any]:
        """Return the pod with one more container, which makes its spec new."""
        self._n += 1
        container = build.container(f"new-{self._n}")
        return {**keywords, "containers": [*keywords.get("containers", [build.container()]), container]}

    def least(self, found: list[Costs]) -> Costs:
        """Return the minimum of each cost."""
        return Costs(min(one.reading_per_byte for one in found), min(one.own for one in found))


@pytest.fixture(scope="module")
def town() -> Town:
    return Town()


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("times", [WITHIN, BEYOND], ids=["at the limits", "beyond"])
def test_a_hostile_pod_costs_little_itself(town: Town, what: str, times: int) -> None:
    cost = town.cost_of_hostile(what, times)
    assert cost.own < OWN * town.plain.own
    assert cost.reading_per_byte < READING * town.plain.reading_per_byte


@pytest.mark.parametrize("node", [None, "n0"], ids=["waiting", "running"])
@pytest.mark.parametrize("times", [WITHIN, BEYOND], ids=["at the limits", "beyond"])
def test_other_pods_stay_fast_beside_hostile_ones(town: Town, times: int, node: str | None) -> None:
    """With a hostile pod of every kind at once."""
    documents = [town.document({**keywords, "node": node}) for keywords in hostile(times).values()]
    placed = [town.driver._decoder.decode(document) for document in documents]
    for pod in placed:
        town.driver.handle(PodSeen(pod))
    while town.driver.machine.has_work():
        for order in town.driver.cycle():
            if isinstance(order, Bind):
                town.driver.confirm(order.pod, order.node_name)
    town.live({})
    try:
        assert town.cost_of({}, tries=10).own < OTHERS * town.plain.own
    finally:
        for pod in placed:
            town.driver.lose(pod)


TOO_MUCH: list[tuple[str, str]] = [
    ("terms, keys that nodes have", "1280 terms of pod affinity and anti-affinity (128 at most)"),
    ("preferred terms about everybody", "160 such terms whose labelSelector requires no value (16 at most)"),
    ("one selector of many values", "20480 values in their labelSelectors (2048 at most)"),
    ("spread constraints", "640 topology spread constraints (64 at most)"),
    ("tolerations", "10240 tolerations (1024 at most)"),
    ("node terms", "10240 requirements on nodes (1024 at most)"),
    ("node selector", "10240 requirements on nodes (1024 at most)"),
    ("resources", "1280 resources (128 at most)"),
]


@pytest.mark.parametrize(("what", "says"), TOO_MUCH, ids=[what for what, _ in TOO_MUCH])
def test_a_pod_beyond_a_limit_is_refused_with_the_reason(town: Town, what: str, says: str) -> None:
    """It stays pending and has the reason. A pod at the limit is decided."""
    pod = town.driver._decoder.decode(town.document(hostile(BEYOND)[what]))
    town.driver.handle(PodSeen(pod))
    message = condition_of(town.driver.cycle()).message
    town.driver.lose(pod)
    assert message.startswith("0/300 nodes are available: pod has ")
    assert says in message
    assert message.endswith(", which is more than affinity-scheduler decides on.")
    within = town.driver._decoder.decode(town.document(hostile(WITHIN)[what]))
    assert within.spec.exceeded_limits is None


def test_a_running_pod_beyond_a_limit_still_counts_its_requests(town: Town) -> None:
    """Its terms are ignored, but its cpu is used."""
    asked = [build.container(requests={"cpu": "3", **{f"none.example/r{i}": "1" for i in range(1000)}})]
    everybody = hostile(BEYOND)["preferred terms about everybody"]["affinity"]
    pod = town.driver._decoder.decode(
        town.document({"affinity": everybody, "containers": asked, "node": "n7"})
    )
    row = town.driver.state.nodes.row_by_name["n7"]
    before = town.driver.state.nodes.requested_at("cpu", row)
    town.driver.handle(PodSeen(pod))
    assert town.driver.state.nodes.requested_at("cpu", row) - before == 3000
    assert list(town.driver.state.terms) == []
    town.driver.audit()
    town.driver.lose(pod)


def test_ten_thousand_namespaces_do_not_slow_down_decisions(town: Town) -> None:
    """A term with a namespaceSelector reads only namespaces with pods."""
    selects = build.affinity(
        anti_required=[
            build.term(
                build.HOSTNAME, build.selector("x"), namespace_selector=build.selector("team notin t1,t2")
            )
        ]
    )
    before = town.cost_of({"affinity": selects}).own
    for number in range(10_000):
        town.driver.namespace(f"empty-{number}", team=f"t{number}")
    assert town.cost_of({"affinity": selects}).own < 5.0 * before + 5.0 * town.plain.own


def test_a_node_with_ten_thousand_labels_taints_and_images_slows_only_its_own_events(town: Town) -> None:
    """Cycles cost the same as before."""
    huge: dict[str, Any] = {
        "labels": {f"l{i}": "v" for i in range(10_000)},
        "taints": [f"t{i}:NoSchedule" for i in range(10_000)],
        "images": {f"i{i}": 1 for i in range(10_000)},
    }
    town.driver.node("huge", **huge)
    town.live({})
    assert town.cost_of({}, tries=5).own < OTHERS * town.plain.own
    town.driver.lose_node("huge")


def _absurd(text: str) -> Callable[[], object]:
    return lambda: text


@pytest.mark.parametrize(
    "amount",
    [
        "1e1000",
        "1e-1000",
        "9" * 1000,
        "0." + "0" * 900 + "1",
        "1e999999999999",
        "9E",
        "0x10",
        "٣",
        "1Kii",
        "NaN",
    ],
)
def test_absurd_amounts_are_read_or_refused_quickly(town: Town, amount: str) -> None:
    """The pod is malformed or never fits."""
    from scheduler.model.pods import MalformedObjectError

    containers = [build.container(requests={"cpu": amount})]
    started = time.thread_time()
    try:
        town.live({"containers": containers})
    except MalformedObjectError as error:
        assert len(str(error)) < 500
        assert str(error).isprintable()
    assert time.thread_time() - started < OWN * town.plain.own
