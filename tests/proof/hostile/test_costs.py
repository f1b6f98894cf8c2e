"""
No pod makes a cycle slow: what a hostile one costs, as a multiple of what a plain one costs in the same process.

CPU time of this thread, the least of several tries; the bounds are two to four times what is measured.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import pytest

from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.stimuli import ObjectGone, PodSeen
from tests.proof.hostile.pods import APPS, KEYS, KINDS, hostile
from tests.support import build
from tests.support.driving import NAME, Driver, condition_of
from tests.support.messages import refusals

N_NODES, N_NAMESPACES = 300, 20
#: Times the limits.
WITHIN, BEYOND = 1, 10

#: The pod's own events and its cycle, times those of a plain pod: 24 measured at the limits; beyond one that is
#: refused by number 1.3, by bytes 12.
AT_LIMITS, REFUSED, LARGE = 60.0, 5.0, 30.0
#: Which have no limit of their own: 229, 59 and 15 to 43 measured.
UNLIMITED = {"labels": 500.0, "host ports": 150.0, "node names": 80.0}
#: A pod with an absurd amount, times a plain one: 1.8 measured.
ABSURD = 6.0
#: Events and the cycle of a plain pod while the hostile one waits or runs, times those without: 1.6 measured.
OTHERS = 4.0
#: Reading the object, per byte, times a plain pod's: 0.7 measured.
READING = 2.0


@dataclass
class Costs:
    """CPU seconds."""

    reading_per_byte: float
    own: float


class Town:
    """A cluster of some size, and what pods cost in it."""

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
        """Return the costs of a pod that comes, is tried, is bound if it fits, and goes."""
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
        """Return the lowest costs of a few pods, each with a new spec."""
        return self.least([self.live(self.fresh(keywords)) for _ in range(tries)])

    def times_plain(self, what: str, times: int) -> Costs:
        """
        Return the costs of hostile pods, each with questions of its own, as multiples of a plain pod's.

        Each is compared with plain pods right after it, since machines change their speed.
        """
        found: list[Costs] = []
        for number in range(3):
            hostile_cost, plain = self.live(hostile(what, times, f"n{number}")), self.cost_of({})
            reading = hostile_cost.reading_per_byte / plain.reading_per_byte
            found.append(Costs(reading, hostile_cost.own / plain.own))
        return self.least(found)

    def fresh(self, keywords: dict[str, Any]) -> dict[str, Any]:
        """Return the keywords with one more container, which makes the spec a new one."""
        self._n += 1
        container = build.container(f"new-{self._n}")
        return {**keywords, "containers": [*keywords.get("containers", [build.container()]), container]}

    def least(self, found: list[Costs]) -> Costs:
        """Return the lowest of each cost."""
        return Costs(min(one.reading_per_byte for one in found), min(one.own for one in found))


@pytest.fixture(scope="module")
def town() -> Town:
    return Town()


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("times", [WITHIN, BEYOND], ids=["at the limits", "beyond"])
def test_a_pod_that_asks_for_too_much_is_not_slow(town: Town, what: str, times: int) -> None:
    beyond = UNLIMITED.get(what) or (REFUSED if what in {kind for kind, _ in TOO_MUCH} else LARGE)
    cost = town.times_plain(what, times)
    assert cost.own < (AT_LIMITS if times == WITHIN else beyond)
    assert cost.reading_per_byte < READING


@pytest.mark.parametrize("node", [None, "n0"], ids=["waiting", "running"])
@pytest.mark.parametrize("times", [WITHIN, BEYOND], ids=["at the limits", "beyond"])
def test_others_are_not_slow_beside_them(town: Town, times: int, node: str | None) -> None:
    """One of every kind at once."""
    documents = [town.document({**hostile(what, times), "node": node}) for what in KINDS]
    placed = [town.driver._decoder.decode(document) for document in documents]
    for pod in placed:
        town.driver.handle(PodSeen(pod))
    while town.driver.machine.has_work():
        for order in town.driver.cycle():
            if isinstance(order, Bind):
                town.driver.confirm(order.pod, order.node_name)
    town.live({})
    beside = town.cost_of({}, tries=10).own
    for pod in placed:
        town.driver.lose(pod)
    town.live({})
    assert beside < OTHERS * town.cost_of({}, tries=10).own


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
def test_what_is_beyond_a_limit_is_refused_in_words(town: Town, what: str, says: str) -> None:
    """The pod stays pending and says why; one at the limit is decided."""
    pod = town.driver._decoder.decode(town.document(hostile(what, BEYOND)))
    town.driver.handle(PodSeen(pod))
    message = condition_of(town.driver.cycle()).message
    town.driver.lose(pod)
    assert message.startswith("0/300 nodes are available: pod has ")
    assert says in message
    assert refusals(message).endswith(", which is more than affinity-scheduler decides on.")
    within = town.driver._decoder.decode(town.document(hostile(what, WITHIN)))
    assert within.spec.exceeded_limits is None


def test_a_running_pod_beyond_a_limit_counts_with_the_rest_of_what_it_asks() -> None:
    """Its terms keep no pod away; its cpu is taken."""
    driver = Driver()
    driver.node("n")
    asked = [build.container(requests={"cpu": "3", **{f"none.example/r{i}": "1" for i in range(1000)}})]
    driver.pod("p", containers=asked, node="n", **hostile("preferred terms about everybody", BEYOND))
    assert driver.state.nodes.requested_at("cpu", driver.state.nodes.row_by_name["n"]) == 3000
    assert list(driver.state.terms) == []
    driver.audit()


def test_ten_thousand_namespaces_are_no_burden(town: Town) -> None:
    """A term that selects namespaces by labels, where there are many: only those with pods are looked at."""
    selects = build.affinity(
        anti_required=[
            build.term(
                build.HOSTNAME, build.selector("x"), namespace_selector=build.selector("team notin t1,t2")
            )
        ]
    )
    before = town.cost_of({"affinity": selects}, tries=10).own
    for number in range(10_000):
        town.driver.namespace(f"empty-{number}", team=f"t{number}")
    after = town.cost_of({"affinity": selects}, tries=10).own
    for number in range(10_000):
        town.driver.handle(ObjectGone("Namespace", f"empty-{number}"))
    assert after < OTHERS * before


def test_a_node_with_ten_thousand_labels_taints_and_images_costs_its_own_events_alone(town: Town) -> None:
    """Once it is known, cycles cost what they did."""
    huge: dict[str, Any] = {
        "labels": {f"l{i}": "v" for i in range(10_000)},
        "taints": [f"t{i}:NoSchedule" for i in range(10_000)],
        "images": {f"i{i}": 1 for i in range(10_000)},
    }
    town.driver.node("huge", **huge)
    town.live({})
    beside = town.cost_of({}, tries=10).own
    town.driver.lose_node("huge")
    town.live({})
    assert beside < OTHERS * town.cost_of({}, tries=10).own


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
def test_absurd_amounts_are_read_or_refused_at_no_cost(town: Town, amount: str) -> None:
    """The pod is malformed, or never fits; neither takes long."""
    from scheduler.engine.model.wire import MalformedObjectError

    containers = [build.container(requests={"cpu": amount})]
    took_s = []
    for _ in range(3):
        started = time.thread_time()
        try:
            town.live({"containers": containers})
        except MalformedObjectError as error:
            assert len(str(error)) < 500
            assert str(error).isprintable()
        took_s.append(time.thread_time() - started)
    plain = town.cost_of({})
    assert min(took_s) < ABSURD * plain.own
