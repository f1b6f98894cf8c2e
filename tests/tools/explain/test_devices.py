"""Explanations of pods with resource claims: which devices each request found, and why it did not take them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partialmethod
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.engine.model.changes import RemovePod
from scheduler.engine.plugins.dynamic_resources.device_findings import DeviceInspection
from scheduler.tools.explain.formats.explanation import Explanation
from tests.engine.core.test_device_taint_rules import rule
from tests.support import build
from tests.support.build import Json
from tests.support.device_documents import DRIVER, device_class, device_slice, resource_claim, using_claims
from tests.support.json_cluster import Cluster
from tests.tools.explain.told import told

FABRIC = f"{DRIVER}/fabric"
DROPPED = "DropDeviceConstraint"


def pod(name: str = "p", *claims: str, node: str | None = None, namespace: str = "default") -> Json:
    """Return a pod that uses the claims, by default c."""
    spec = using_claims(*(claims or ("c",)))
    return build.pod(name, node=node, namespace=namespace, spec=spec)


def claim(*requests: Json, name: str = "c", constraints: list[Json] | None = None) -> Json:
    made = resource_claim(name)
    made["spec"]["devices"] = {"requests": list(requests), "constraints": constraints or []}
    return made


def request(name: str = "r", count: int = 1, **more: object) -> Json:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **more}
    return {"name": name, "exactly": exactly}


def first_of(*alternatives: Json) -> Json:
    """Return the request r, whose alternatives these requests are."""
    return {
        "name": "r",
        "firstAvailable": [{**each["exactly"], "name": each["name"]} for each in alternatives],
    }


def held(name: str, holder: Json | None, *devices: str, pool: str = "a", **owned: object) -> Json:
    """Return a claim that has the devices of the pool, reserved for the holder."""
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": device} for device in devices]
    made = resource_claim(name, allocation={"devices": {"results": results}})
    made["metadata"].update(owned)
    if holder is not None:
        made["metadata"]["namespace"] = holder["metadata"]["namespace"]
        made["status"]["reservedFor"] = [consumer(holder)]
    return made


def consumer(holder: Json) -> Json:
    metadata = holder["metadata"]
    return {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}


def sharing(name: str, consumed: str, *holders: Json) -> Json:
    """Return a claim of the holders that has gpu-0, or consumes this much of its memory."""
    made = held(name, holders[0], "gpu-0")
    made["status"]["reservedFor"] = [consumer(holder) for holder in holders]
    if consumed:
        (result,) = made["status"]["allocation"]["devices"]["results"]
        result |= {"shareID": name, "consumedCapacity": {"memory": consumed}}
    return made


def with_devices(node: str, *devices: Json, **spec: object) -> Json:
    made = device_slice(node, 0)
    made["spec"].update(devices=[{"name": f"gpu-{n}", **each} for n, each in enumerate(devices)], **spec)
    return made


def of_pool(name: str, **spec: object) -> Json:
    """Return a slice of a pool of two slices."""
    made = device_slice("a", 0)
    made["metadata"]["name"] = name
    made["spec"].update(pool={"name": "a", "generation": 1, "resourceSliceCount": 2}, **spec)
    return made


def consuming(n: int, counter: str = "slots") -> Json:
    return {"consumesCounters": [{"counterSet": "s", "counters": {counter: {"value": str(n)}}}]}


def attribute(name: str, *values: str) -> list[Json]:
    """Return a device for each value."""
    return [{"attributes": {name: {"string": value}}} for value in values]


def capacity(**amounts: str) -> Json:
    return {"capacity": {name: {"value": amount} for name, amount in amounts.items()}}


def asks(**amounts: str) -> Json:
    return request(capacity={"requests": amounts})


def selecting(expression: str, **more: Any) -> Json:
    return request(selectors=[{"cel": {"expression": expression}}], **more)


def cluster(*objects: Json, nodes: str = "a", pods: Sequence[Json] = ()) -> Cluster:
    named = [build.node(name) for name in nodes.split()]
    return Cluster(named, list(pods), devices=[device_class(), *objects])


def assert_sum(where: str) -> None:
    """Devices that are free, and those that are not for each reason, are all that a request looked at."""
    for request_, free, total in re.findall(r"((\d+) of (\d+) devices? free[^;]*)", where):
        refused = re.findall(r"(\d+) (?:in use|not|short|without|tainted)", request_)
        assert int(free) + sum(map(int, refused)) == int(total), where


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\b\d+\b", text)]


def remedies(answer: Explanation) -> str:
    """Return the pods that leave, and the kinds of other changes, by suggestion."""
    return "; ".join(
        " ".join(each.pod if isinstance(each, RemovePod) else type(each).__name__ for each in one.changes)
        for one in answer.suggestions
    )


def case(
    id_: str,
    objects: list[Json],
    wanted: Json | list[Json],
    helps: str = "",
    *,
    pods: Sequence[Json] = (),
    nodes: str = "a",
    constraints: list[Json] | None = None,
    subject: Json | None = None,
    state: str = "unschedulable",
) -> Any:
    """Return the case of a claim of these requests; without any, `objects` have the subject's claims."""
    requests = wanted if isinstance(wanted, list) else [wanted]
    claims = [claim(*requests, constraints=constraints)] if requests else []
    made = cluster(*objects, *claims, nodes=nodes, pods=pods)
    return pytest.param(made, subject or pod(), state, helps, id=id_)


def on_a(*devices: Json) -> Json:
    return with_devices("a", *devices)


def counted(*devices: Json, **more: object) -> list[Json]:
    """Return a pool with three slots, of which its devices consume some."""
    return [of_pool("counters", **COUNTERS, **more), of_pool("d", devices=numbered(*devices))]


def numbered(*devices: Json) -> list[Json]:
    return [{"name": f"gpu-{n}", **each} for n, each in enumerate(devices)]


def user(name: str, claim: str, node: str = "a", **more: str) -> Json:
    return pod(name, claim, node=node, **more)


HOLDER, FEW, MORE, MOST = user("holder", "h"), user("few", "h"), user("many-1", "i"), user("many-2", "i")
SECRET, OTHER = user("holder", "h", namespace="secret"), user("other", "o", "b")
NEAR, FAR = user("near", "n"), user("far", "f")
TWO_PODS = [user(name, "h") for name in ("first", "second")]
SIX_PODS = [user(f"p-{number}", "h") for number in range(6)]
SIX_NAMES = "p-0 p-1 p-2 p-3 p-4 p-5"
OWNED: Json = {"ownerReferences": [{"uid": "uid-default-holder", "controller": True}]}
IN_USE = held("h", HOLDER, "gpu-0")

ONE, TWO = device_slice("a", 1), device_slice("a", 2)
COUNTERS = {"sharedCounters": [{"name": "s", "counters": {"slots": {"value": "3"}}}]}
AND_NONE = {"sharedCounters": [*COUNTERS["sharedCounters"], {"name": "t", "counters": {"n": {"value": "0"}}}]}
#: Parts of one piece of hardware: whoever has one keeps the other out.
PARTS = [{"name": name, **consuming(3), **attribute("kind", name)[0]} for name in ("shared", "whole")]
OF = f'device.attributes["{DRIVER}"]'
SHARED = {"allowMultipleAllocations": True, **capacity(memory="40Gi")}
#: One claim of one pod consumes 10Gi of 50Gi, one of two pods 30Gi: a claim ends with its last pod.
CONSUMED = [sharing("h", "10Gi", FEW), sharing("i", "30Gi", MORE, MOST)]
SHARING = [on_a({**SHARED, **capacity(memory="50Gi")}), *CONSUMED]
BIG = 'device.capacity["{}"].memory.isGreaterThan(quantity("40Gi"))'
OF_NIC = "nic.example.com"
ANOTHER_DRIVER = {**TWO, "spec": {**TWO["spec"], "driver": OF_NIC}}
NIC_MEMORY = capacity(**{f"{OF_NIC}/memory": "4Gi"})
TAINTED = {"taints": [{"key": "broken", "value": "yes", "effect": "NoExecute"}]}
SAME, DIFFERENT = [{"matchAttribute": FABRIC}], [{"distinctAttribute": f"{DRIVER}/model"}]
MODEL, X, Y = {"model": {"string": "m"}}, {"fabric": {"string": "x"}}, {"fabric": {"string": "y"}}
UNEQUAL = on_a(*({"attributes": {**MODEL, **fabric}} for fabric in (X, Y, {})))
X_AND_NO = {"attributes": {"model": {"string": "x"}, "fabric": {"bool": False}}}
XY = on_a({"attributes": X}, {"attributes": Y})
DISTINCT = on_a(*({"attributes": {"i": {"int": number}}} for number in range(20)))
FABRICS = [on_a(*attribute("fabric", *"xxyyy")), held("n", NEAR, "gpu-1"), held("f", FAR, "gpu-3", "gpu-4")]
GONE = held("c", None, "gpu-0")
GONE["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [build.node_term(named=["in gone"])]}
NAMES = [f"n{number}" for number in range(9)]
NINE = " ".join(NAMES)
DIFFERING = [
    obj
    for number, name in enumerate(NAMES, 1)
    for obj in (
        with_devices(name, *[{}] * number, TAINTED),
        held(f"h-{name}", None, *(f"gpu-{n}" for n in range(number)), pool=name),
    )
]
EXTENDED = build.pod("p", containers=[build.container(requests={"example.com/gpu": "1"})])
OF_EXTENDED = [device_class("gpu", "example.com/gpu"), ONE, IN_USE]
EACH = [request("r"), request("s")]
ON_MODEL = selecting(f'{OF}.model == "x"', count=3)
SELECTED = [on_a(*attribute("model", "x")), with_devices("b", *attribute("model", "x"), {})]
BY_TERMS = {"nodeSelectorTerms": [build.node_term(f"{build.HOSTNAME} in {name}") for name in "ab"]}
OF_TERMS = with_devices("a", {}, nodeName=None, nodeSelector=BY_TERMS)
ALL = request(count=0, allocationMode="All")


@pytest.mark.parametrize(
    ("made", "subject", "state", "helps"),
    [
        case("a pod has it", [ONE, IN_USE], request(), "holder", pods=[HOLDER]),
        case(
            "by a claim of its own",
            [ONE, held("h", HOLDER, "gpu-0", **OWNED)],
            request(),
            "holder",
            pods=[HOLDER],
        ),
        case("a pod elsewhere has it", [ONE, held("h", SECRET, "gpu-0")], request(), "holder", pods=[SECRET]),
        case("a claim of no pod has it", [ONE, held("h", None, "gpu-0")], request()),
        case(
            "two pods have it", [ONE, sharing("h", "", *TWO_PODS)], request(), "first second", pods=TWO_PODS
        ),
        case("six pods have it", [ONE, sharing("h", "", *SIX_PODS)], request(), SIX_NAMES, pods=SIX_PODS),
        case("no device", [], request()),
        case("not of the class", [ANOTHER_DRIVER], request()),
        case(
            "one not selected", [on_a(*attribute("model", "y"), {})], selecting(f'"model" in {OF}', count=2)
        ),
        case("another attribute", [on_a(*attribute("model", "y"))], selecting(f'{OF}.model == "x"')),
        case("no attribute", [on_a({})], selecting(f'has({OF}.model) && {OF}.model == "x"')),
        case("another of two attributes", [on_a(X_AND_NO)], selecting(f'{OF}.model == "x" && {OF}.fabric')),
        case("selected by capacity", [on_a(capacity(memory="40Gi"))], selecting(BIG.format(DRIVER))),
        case("by a capacity of another domain", [on_a(NIC_MEMORY)], selecting(BIG.format(OF_NIC))),
        case("by what has no value", [on_a({})], selecting("device.allowMultipleAllocations")),
        case("short of capacity", [on_a(capacity(memory="40Gi"))], asks(memory="80Gi")),
        case("of one of two", [on_a(capacity(memory="40Gi", cores="4"))], asks(memory="80Gi", cores="4")),
        case(
            "of two, or without",
            [on_a(capacity(memory="40Gi", cores="2"), {})],
            asks(memory="80Gi", cores="4"),
        ),
        case("without the capacity", [on_a(SHARED)], asks(cores="1")),
        case("without that of the domain", [on_a(SHARED)], asks(**{f"{DRIVER}/memory": "1Gi"})),
        case(
            "a pod consumes it",
            [on_a(SHARED), sharing("h", "30Gi", HOLDER)],
            asks(memory="20Gi"),
            "holder",
            pods=[HOLDER],
        ),
        case("the fewest leave", SHARING, asks(memory="20Gi"), "few", pods=[FEW, MORE, MOST]),
        case("two leave", SHARING, asks(memory="35Gi"), "many-1 many-2", pods=[FEW, MORE, MOST]),
        case("all leave", SHARING, asks(memory="45Gi"), "few many-1 many-2", pods=[FEW, MORE, MOST]),
        case("counters for one of two", counted(consuming(2), consuming(2)), request(count=2)),
        case("short of counters", counted(consuming(4)), request()),
        case(
            "a counter set with nothing",
            [of_pool("s", **AND_NONE), *counted(consuming(1))[1:]],
            request(count=2),
        ),
        case(
            "another device of the pool has the counters",
            [
                of_pool("counters", **COUNTERS),
                of_pool("d", devices=PARTS),
                held("h", HOLDER, "shared"),
                held("o", OTHER, "gpu-0", pool="b"),
            ],
            selecting(f'{OF}.kind == "whole"'),
            "holder",
            nodes="a b",
            pods=[HOLDER, OTHER],
        ),
        case("an incomplete pool", [of_pool("d", devices=numbered({}))], request()),
        case("no counter set", [on_a(consuming(1))], request()),
        case("no counter", counted(consuming(1, "x")), request()),
        case("a device twice", [on_a({"name": "twice"}, {"name": "twice"})], request()),
        case("a counter set twice", [of_pool("s", **COUNTERS), of_pool("t", **COUNTERS)], request()),
        case("pools unusable", [with_devices(name, consuming(1)) for name in NAMES], request(), nodes=NINE),
        case("too few", [ONE], request(count=2)),
        case("too few for each alternative", [ONE], first_of(request("of-2", 2), request("of-3", 3))),
        case("all, of which a pod has one", [TWO, IN_USE], ALL, "holder", nodes="a b", pods=[HOLDER]),
        case("enough for each, and a pod has the rest", [TWO, IN_USE], EACH, "holder", pods=[HOLDER]),
        case(
            "counters for each, and a pod has the rest",
            [*counted(consuming(2), consuming(1), consuming(1)), IN_USE],
            EACH,
            "holder",
            pods=[HOLDER],
        ),
        case("too few of one value", [UNEQUAL], request(count=2), DROPPED, constraints=SAME),
        case(
            "of an alternative", [XY], first_of(request("s", 2), request("t", 2)), DROPPED, constraints=SAME
        ),
        case("too few of different values", [UNEQUAL], request(count=2), DROPPED, constraints=DIFFERENT),
        case(
            "the pod with the fewest of a fabric is to leave first",
            FABRICS,
            request(count=2),
            f"far; near; {DROPPED}",
            constraints=SAME,
            pods=[NEAR, FAR],
        ),
        case(
            "a constraint for another alternative",
            [XY],
            [first_of(request("a"), request("b")), request("s", 2)],
            constraints=[{"matchAttribute": FABRIC, "requests": ["r/b"]}],
        ),
        case(
            "a constraint of different values that is met",
            [XY],
            [request("r", 2), request("s")],
            constraints=[{"distinctAttribute": FABRIC, "requests": ["r"]}],
        ),
        case(
            "a constraint of equal values that is met",
            [XY],
            [request("r"), request("s", 2)],
            constraints=[{"matchAttribute": FABRIC, "requests": ["r"]}],
        ),
        case("tainted", [on_a(TAINTED)], request(), "TolerateDeviceTaint"),
        case("tainted, of an alternative", [on_a(TAINTED)], first_of(request("s")), "TolerateDeviceTaint"),
        case("tainted by a rule", [ONE, rule("broken", driver=DRIVER)], request(), "TolerateDeviceTaint"),
        case("numbers that differ", DIFFERING, request(), "TolerateDeviceTaint", nodes=NINE),
        case("an extended resource", OF_EXTENDED, [], "holder", pods=[HOLDER], subject=EXTENDED),
        case(
            "of two claims", [TWO, claim(request(count=3), name="d")], request(), subject=pod("p", "c", "d")
        ),
        case("allocated on a node that is gone", [ONE, GONE], []),
        case("another claim had it before", [ONE, IN_USE, held("c", None, "gpu-0")], [], pods=[HOLDER]),
        # Classes are listed for an unknown one alone.
        case("no such claim", [], []),
        case("an unknown type", [], {"name": "r"}),
        case("an unknown type beside a request", [], [request(), {"name": "s"}]),
        case("an unknown class", [], request(deviceClassName="none")),
        case("a class unknown beside many", [*map(device_class, "abcde")], request(deviceClassName="none")),
        case("a selector fails on a device", SELECTED, ON_MODEL, nodes="a b", state="failed"),
        case(
            "an invalid pool, of which all is taken", [on_a(consuming(1))], ALL, nodes="a b", state="failed"
        ),
        case("nodes of a slice by several terms", [OF_TERMS], request(), nodes="a b", state="failed"),
        # 21 of 20 devices are wanted; each request has enough alone, and no two devices are equal.
        case(
            "a search that did not end",
            [DISTINCT],
            [request("r", 11), request("s", 10)],
            constraints=[{"requests": ["r"], "distinctAttribute": f"{DRIVER}/i"}],
        ),
    ],
)
def test_why_devices_are_not_taken_is_told_with_what_would_help(
    made: Cluster, subject: Json, state: str, helps: str, snapshot: SnapshotAssertion
) -> None:
    """Where the search fails, a note names the node and the object; the message, which is upstream's, names less."""
    answer = made.explain(subject)
    assert answer.state == state
    assert [group.plugin for group in answer.groups] == ["DynamicResources"] * len(answer.groups)
    assert bool(answer.groups) != any("the search fails" in note for note in answer.notes)
    for group in answer.groups:
        assert_sum(group.where)
    assert remedies(answer) == helps
    assert told(answer) == snapshot


def test_many_nodes_make_few_groups() -> None:
    """Names, then values, then counts are left out until at most eight groups are left."""
    names = [f"n{number:02}" for number in range(24)]
    holders = [pod(f"of-{name}", f"h-{name}", node=name) for name in names]
    objects = [
        obj
        for number, (name, holder) in enumerate(zip(names, holders, strict=True))
        for obj in (
            with_devices(name, *attribute("fabric", *(f"{name}-{n}" for n in range(4)))),
            held(f"h-{name}", holder, *(f"gpu-{n}" for n in range(1 + number % 3)), pool=name),
        )
    ]
    made = cluster(*objects, claim(request(count=4)), nodes=" ".join(names), pods=tuple(holders))
    answer = made.explain(pod())
    found = [(group.n_nodes, numbers(group.where)) for group in answer.groups]
    assert found == [(8, [4, 4 - n, 4, n]) for n in (3, 2, 1)]


def test_nodes_with_the_same_devices_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices that all nodes reach count once; those after the last one that may be looked at are left out."""
    monkeypatch.setattr(DeviceInspection, "__init__", partialmethod(DeviceInspection.__init__, n_devices=3))
    shared = device_slice("a", 3)
    del shared["spec"]["nodeName"]
    shared["spec"]["allNodes"] = True
    alike = cluster(shared, claim(request(count=4)), nodes="a b c").explain(pod())
    assert [(group.n_nodes, numbers(group.where)) for group in alike.groups] == [(3, [4, 3, 3])]
    made = cluster(device_slice("a", 3), device_slice("b", 1), claim(request(count=4)), nodes="a b")
    assert {group.where.partition(":")[0] for group in made.explain(pod()).groups} == {
        "not looked at",
        "request r",
    }


def test_a_request_without_a_class_is_an_error() -> None:
    answer = cluster(claim(request(deviceClassName=""))).explain(pod())
    says = 'running PreFilter plugin "DynamicResources": request r: unsupported request type'
    assert (answer.state, answer.message) == ("failed", says)


@pytest.mark.parametrize(
    ("allocated", "is_ready", "says"),
    [
        ("1969-12-31T23:00:00Z", False, ["claim c: its devices did not become ready in time"]),
        ("1969-12-31T23:00:00Z", True, []),
        ("1970-01-01T00:00:00Z", False, []),
    ],
    ids=["not ready in time", "ready long after", "not ready yet"],
)
def test_a_claim_whose_devices_did_not_become_ready_in_time_says_so(
    allocated: str, *, is_ready: bool, says: list[str]
) -> None:
    """The clock of a cluster in memory stands at 1970."""
    stored = held("c", None, "gpu-0")
    allocation = stored["status"]["allocation"]
    allocation["allocationTimestamp"] = allocated
    (result,) = allocation["devices"]["results"]
    result["bindingConditions"] = ["attached"]
    if is_ready:
        conditions = [{"type": "attached", "status": "True"}]
        stored["status"]["devices"] = [{**result, "conditions": conditions}]
    answer = cluster(device_slice("a", 1), stored).explain(pod())
    assert [group.where for group in answer.groups] == says
