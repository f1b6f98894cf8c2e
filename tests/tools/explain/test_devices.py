"""Explanations of pods with resource claims: which devices each request found, and why it did not take them."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import pytest

from scheduler.engine.plugins.dynamic_resources.device_findings import DeviceInspection
from scheduler.tools.explain.formats.explanation import Explanation
from tests.engine.core.test_device_taint_rules import rule
from tests.support import build
from tests.support.build import Json
from tests.support.device_documents import DRIVER, device_class, device_slice, resource_claim, using_claims
from tests.support.json_cluster import Cluster, changes

FABRIC = f"{DRIVER}/fabric"
OWNED = {"ownerReferences": [{"uid": "uid-default-holder", "controller": True}]}
WANTED = "request r: 1 of class gpu wanted"


def pod(name: str = "p", *claims: str, node: str | None = None, namespace: str = "default") -> Json:
    """Return a pod that uses the claims, by default c."""
    made = build.pod(name, node=node, namespace=namespace)
    made["spec"].update(using_claims(*(claims or ("c",))))
    return made


def claim(
    *requests: Json, name: str = "c", constraints: list[Json] | None = None, namespace: str = "default"
) -> Json:
    made = resource_claim(name)
    made["metadata"]["namespace"] = namespace
    made["spec"]["devices"] = {"requests": list(requests), "constraints": constraints or []}
    return made


def request(name: str = "r", count: int = 1, **more: object) -> Json:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **more}
    return {"name": name, "exactly": exactly}


def held(name: str, holder: Json | None, *devices: str, pool: str = "a", **owned: object) -> Json:
    """Return a claim that has the devices of the pool, reserved for the holder."""
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": device} for device in devices]
    made = resource_claim(name, allocation={"devices": {"results": results}})
    made["metadata"].update(owned)
    if holder is not None:
        metadata = holder["metadata"]
        made["metadata"]["namespace"] = metadata["namespace"]
        consumer = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
        made["status"]["reservedFor"] = [consumer]
    return made


def with_devices(node: str, *devices: Json, **spec: object) -> Json:
    made = device_slice(node, 0)
    made["spec"].update(devices=[{"name": f"gpu-{n}", **each} for n, each in enumerate(devices)], **spec)
    return made


def cluster(*objects: Json, nodes: str = "a", pods: tuple[Json, ...] = ()) -> Cluster:
    named = [build.node(name) for name in nodes.split()]
    return Cluster(named, list(pods), devices=[device_class(), *objects])


def where(answer: Explanation) -> list[str]:
    assert {group.plugin for group in answer.groups} == {"DynamicResources"}
    return [group.where for group in answer.groups]


def attribute(name: str, value: str) -> Json:
    return {"attributes": {name: {"string": value}}}


@pytest.mark.parametrize(
    ("namespace", "named", "texts", "owned"),
    [
        ("default", "holder", [("pod default/holder leaves node a",)], {}),
        ("default", "holder", [("pod default/holder leaves node a",)], OWNED),
        ("secret", "pods of other namespaces", [("pod secret/holder leaves node a",)], {}),
        ("", "claim h", [], {}),
    ],
    ids=["of the namespace", "by a claim of its own", "of another", "no pod"],
)
def test_the_pod_that_has_the_device_is_named_and_its_end_proposed(
    namespace: str, named: str, texts: list[object], owned: Json
) -> None:
    holders = [pod("holder", "h", node="a", namespace=namespace)] if namespace else []
    taken = held("h", holders[0] if holders else None, "gpu-0", **owned)
    answer = cluster(device_slice("a", 1), claim(request()), taken, pods=tuple(holders)).explain(pod())
    assert where(answer) == [f"{WANTED}, 0 of 1 device free: 1 in use by {named}"]
    assert [s.texts for s in answer.suggestions] == texts


COUNTERS = {"sharedCounters": [{"name": "s", "counters": {"slots": {"value": "3"}}}]}
NONE_LEFT = {"name": "t", "counters": {"others": {"value": "0"}}}


def consuming(n: int, counter: str = "slots") -> Json:
    return {"consumesCounters": [{"counterSet": "s", "counters": {counter: {"value": str(n)}}}]}


def of_pool(name: str, **spec: object) -> Json:
    """Return a slice of a pool of two slices."""
    made = device_slice("a", 0)
    made["metadata"]["name"] = name
    made["spec"].update(pool={"name": "a", "generation": 1, "resourceSliceCount": 2}, **spec)
    return made


SHARED = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}
MODEL = {"cel": {"expression": f'device.attributes["{DRIVER}"].model == "x"'}}
_ATTRIBUTES = f'device.attributes["{DRIVER}"]'
MODEL_IF_ANY = {"cel": {"expression": f'has({_ATTRIBUTES}.model) && {_ATTRIBUTES}.model == "x"'}}
MODEL_ON_FABRIC = {"cel": {"expression": f'{_ATTRIBUTES}.model == "x" && {_ATTRIBUTES}.fabric'}}
BIG = {"cel": {"expression": f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("40Gi"))'}}
BIG_OF_ANOTHER_DOMAIN = {
    "cel": {"expression": 'device.capacity["nic.example.com"].memory.isGreaterThan(quantity("40Gi"))'}
}
PAIR = [{"name": name, **consuming(2)} for name in ("gpu-0", "gpu-1")]


@pytest.mark.parametrize(
    ("objects", "wanted", "reason"),
    [
        ([], request(), f"{WANTED}, the node has no device"),
        (
            [device_slice("a", 2) | {"spec": device_slice("a", 2)["spec"] | {"driver": "nic.example.com"}}],
            request(),
            f"{WANTED}, 0 of 2 devices free: 2 not of class gpu (driver=nic.example.com)",
        ),
        (
            [with_devices("a", attribute("model", "y"), {})],
            request(
                selectors=[{"cel": {"expression": f'"model" in device.attributes["{DRIVER}"]'}}], count=2
            ),
            "request r: 2 of class gpu wanted, 1 of 2 devices free: 1 not selected",
        ),
        (
            [with_devices("a", attribute("model", "y"))],
            request(selectors=[MODEL]),
            f"{WANTED}, 0 of 1 device free: 1 not selected (model=y)",
        ),
        (
            [with_devices("a", {})],
            request(selectors=[MODEL_IF_ANY]),
            f"{WANTED}, 0 of 1 device free: 1 not selected (no model)",
        ),
        (
            [with_devices("a", {"attributes": {"model": {"string": "x"}, "fabric": {"bool": False}}})],
            request(selectors=[MODEL_ON_FABRIC]),
            f"{WANTED}, 0 of 1 device free: 1 not selected (model=x, fabric=false)",
        ),
        (
            [with_devices("a", {"capacity": {"memory": {"value": "40Gi"}}})],
            request(selectors=[BIG]),
            f"{WANTED}, 0 of 1 device free: 1 not selected (memory=40Gi)",
        ),
        (
            [with_devices("a", {"capacity": {"memory": {"value": "40Gi"}}})],
            request(capacity={"requests": {"memory": "80Gi"}}),
            f"{WANTED}, 0 of 1 device free: 1 short of capacity (memory by 40Gi)",
        ),
        (
            [with_devices("a", {"capacity": {"memory": {"value": "40Gi"}, "cores": {"value": "2"}}}, {})],
            request(capacity={"requests": {"memory": "80Gi", "cores": "4"}}),
            f"{WANTED}, 0 of 2 devices free: 1 short of capacity (cores by 2, memory by 40Gi), "
            "1 without the requested capacity (no memory, no cores)",
        ),
        (
            [with_devices("a", {"capacity": {"nic.example.com/memory": {"value": "4Gi"}}})],
            request(selectors=[BIG_OF_ANOTHER_DOMAIN]),
            f"{WANTED}, 0 of 1 device free: 1 not selected (memory=4Gi)",
        ),
        (
            [with_devices("a", {})],
            request(selectors=[{"cel": {"expression": "device.allowMultipleAllocations"}}]),
            f"{WANTED}, 0 of 1 device free: 1 not selected",
        ),
        ([of_pool("counters", **COUNTERS), of_pool("d", devices=PAIR)], request(count=2), ""),
        (
            [with_devices("a", attribute("fabric", "x"), attribute("fabric", "y"))],
            {"name": "r", "firstAvailable": [{**request(count=2)["exactly"], "name": n} for n in "st"]},
            f"request r/s: 2 of class gpu wanted, 2 of 2 devices free; "
            f"too few free with the same {FABRIC} (1 x, 1 y)",
        ),
        (
            [with_devices("a", {"capacity": {"memory": {"value": "40Gi"}, "cores": {"value": "4"}}})],
            request(capacity={"requests": {"memory": "80Gi", "cores": "4"}}),
            f"{WANTED}, 0 of 1 device free: 1 short of capacity (memory by 40Gi)",
        ),
        (
            [with_devices("a", SHARED)],
            request(capacity={"requests": {"cores": "1"}}),
            f"{WANTED}, 0 of 1 device free: 1 without the requested capacity (no cores, but memory)",
        ),
        (
            [with_devices("a", SHARED)],
            request(capacity={"requests": {f"{DRIVER}/memory": "1Gi"}}),
            f"{WANTED}, 0 of 1 device free: 1 without the requested capacity (no {DRIVER}/memory, but memory)",
        ),
        (
            [of_pool("counters", **COUNTERS), of_pool("d", devices=[{"name": "gpu-0", **consuming(4)}])],
            request(),
            f"{WANTED}, 0 of 1 device free: 1 short of counters (s/slots by 1)",
        ),
        (
            [
                of_pool("s", sharedCounters=[COUNTERS["sharedCounters"][0], NONE_LEFT]),
                of_pool("d", devices=[{"name": "gpu-0", **consuming(1)}]),
            ],
            request(count=2),
            "request r: 2 of class gpu wanted, 1 of 1 device free",
        ),
        (
            [of_pool("d", devices=[{"name": "gpu-0"}])],
            request(),
            f"{WANTED}, the node has no device; pool {DRIVER}/a is incomplete: 1 of 2 slices of generation 1",
        ),
        (
            [with_devices("a", consuming(1))],
            request(),
            f"{WANTED}, the node has no device; pool {DRIVER}/a is invalid: "
            "counter set s of device gpu-0 in slice slice-a not found",
        ),
        (
            [of_pool("counters", **COUNTERS), of_pool("d", devices=[{"name": "gpu-0", **consuming(1, "x")}])],
            request(),
            f"{WANTED}, the node has no device; "
            f"pool {DRIVER}/a is invalid: counter x of device gpu-0 in slice d not found in counter set s",
        ),
        (
            [with_devices("a", {"name": "twice"}, {"name": "twice"})],
            request(),
            f"{WANTED}, the node has no device; pool {DRIVER}/a is invalid: "
            "duplicate device name twice in slice slice-a",
        ),
        (
            [of_pool("s", **COUNTERS), of_pool("t", **COUNTERS)],
            request(),
            f"{WANTED}, the node has no device; pool {DRIVER}/a is invalid: "
            "duplicate counter set name s in slice t",
        ),
        ([device_slice("a", 1)], request(count=2), "request r: 2 of class gpu wanted, 1 of 1 device free"),
        (
            [device_slice("a", 1)],
            {
                "name": "r",
                "firstAvailable": [{**request(count=n)["exactly"], "name": f"of-{n}"} for n in (2, 3)],
            },
            "request r/of-2: 2 of class gpu wanted, 1 of 1 device free; "
            "request r/of-3: 3 of class gpu wanted, 1 of 1 device free",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_reason_against_each_device_is_counted(objects: list[Any], wanted: Json, reason: str) -> None:
    constraints = [{"matchAttribute": FABRIC}] if "the same" in reason else []
    answer = cluster(*objects, claim(wanted, constraints=constraints)).explain(pod())
    assert where(answer) == [reason]
    dropped = [(f"claim c has no constraint on {FABRIC}",)] if constraints else []
    assert [each.texts for each in answer.suggestions] == dropped


def test_of_a_shared_device_the_missing_capacity_and_its_pods_are_named() -> None:
    holder = pod("holder", "h", node="a")
    sharing = held("h", holder, "gpu-0")
    result = sharing["status"]["allocation"]["devices"]["results"][0]
    result |= {"shareID": "1", "consumedCapacity": {"memory": "30Gi"}}
    wanted = claim(request(capacity={"requests": {"memory": "20Gi"}}))
    answer = cluster(with_devices("a", SHARED), wanted, sharing, pods=(holder,)).explain(pod())
    assert where(answer) == [f"{WANTED}, 0 of 1 device free: 1 short of capacity (memory by 10Gi) by holder"]
    assert changes(answer) == [["RemovePod"]]


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        ("matchAttribute", f"too few free with the same {FABRIC} (1 without it, 1 x, 1 y)"),
        ("distinctAttribute", f"too few free with different {DRIVER}/model (3 m)"),
    ],
)
def test_the_values_that_break_a_constraint_are_named(constraint: str, reason: str) -> None:
    name = FABRIC if constraint == "matchAttribute" else f"{DRIVER}/model"
    devices = [
        {"attributes": {"model": {"string": "m"}, **({"fabric": {"string": value}} if value else {})}}
        for value in ("x", "y", "")
    ]
    wanted = claim(request(count=2), constraints=[{constraint: name}])
    answer = cluster(with_devices("a", *devices), wanted).explain(pod())
    assert where(answer) == [f"request r: 2 of class gpu wanted, 3 of 3 devices free; {reason}"]


def test_of_a_fabric_the_pod_with_fewest_devices_is_to_leave() -> None:
    """Two devices are free, of two fabrics: the holder of the third one of x is enough."""
    near, far = pod("near", "n", node="a"), pod("far", "f", node="a")
    devices = [attribute("fabric", value) for value in "xxyyy"]
    wanted = claim(request(count=2), constraints=[{"matchAttribute": FABRIC}])
    answer = cluster(
        with_devices("a", *devices),
        wanted,
        held("n", near, "gpu-1"),
        held("f", far, "gpu-3", "gpu-4"),
        pods=(near, far),
    ).explain(pod())
    assert [s.texts for s in answer.suggestions] == [
        ("pod default/far leaves node a",),
        ("pod default/near leaves node a",),
        (f"claim c has no constraint on {FABRIC}",),
    ]


@pytest.mark.parametrize("alternatives", [False, True])
def test_a_tainted_device_is_named_and_a_toleration_proposed(alternatives: bool) -> None:
    tainted = {"taints": [{"key": "broken", "value": "yes", "effect": "NoExecute"}]}
    wanted, name = request(), "r"
    if alternatives:
        wanted, name = {"name": "r", "firstAvailable": [{**wanted["exactly"], "name": "s"}]}, "r/s"
    answer = cluster(with_devices("a", tainted), claim(wanted)).explain(pod())
    reason = "0 of 1 device free: 1 tainted (broken=yes:NoExecute)"
    assert where(answer) == [f"request {name}: 1 of class gpu wanted, {reason}"]
    assert [s.texts for s in answer.suggestions] == [
        (f"request {name} of claim c tolerates the device taint broken=yes:NoExecute",)
    ]


def test_the_rule_that_taints_a_device_is_named() -> None:
    answer = cluster(device_slice("a", 1), rule("broken", driver=DRIVER), claim(request())).explain(pod())
    assert where(answer) == [
        f"{WANTED}, 0 of 1 device free: 1 tainted (taint-broken:NoSchedule by DeviceTaintRule broken)"
    ]


def test_of_an_extended_resource_its_claim_is_explained() -> None:
    """The claim is made by the scheduler, so that nothing of it can be changed."""
    holder = pod("holder", "h", node="a")
    subject = build.pod("p", containers=[build.container(requests={"example.com/gpu": "1"})])
    objects = [device_class("gpu", "example.com/gpu"), device_slice("a", 1), held("h", holder, "gpu-0")]
    answer = Cluster([build.node("a")], [holder], devices=objects).explain(subject)
    assert where(answer) == ["example.com/gpu: 1 of class gpu wanted, 0 of 1 device free: 1 in use by holder"]
    assert changes(answer) == [["RemovePod"]]


def test_a_search_that_did_not_end_is_told() -> None:
    """21 of 20 devices are wanted; each request has enough alone, and no two devices are equal."""
    devices = [{"attributes": {"i": {"int": number}}} for number in range(20)]
    distinct = [{"requests": ["r"], "distinctAttribute": f"{DRIVER}/i"}]
    wanted = claim(request("r", 11), request("s", 10), constraints=distinct)
    (group,) = cluster(with_devices("a", *devices), wanted).explain(pod()).groups
    assert group.reason == "search for devices ended at its limit"
    assert group.where == "not decided: with fewer requests or constraints the search would end"


@pytest.mark.parametrize(("known", "text"), [("", "gpu"), ("abcde", "a, b, c, d, 2 more")])
def test_an_unknown_class_is_told_with_the_first_known_ones(known: str, text: str) -> None:
    classes = [device_class(name) for name in known]
    (group,) = cluster(*classes, claim(request(deviceClassName="none"))).explain(pod()).groups
    expected = ("request r: device class none does not exist", f"known classes: {text}")
    assert (group.reason, group.where) == expected


def test_each_claim_is_named_where_the_pod_has_several() -> None:
    answer = cluster(device_slice("a", 2), claim(request()), claim(request(count=3), name="d")).explain(
        pod("p", "c", "d")
    )
    assert where(answer) == ["claim d, request r: 3 of class gpu wanted, 2 of 2 devices free"]


def test_an_allocated_claim_names_its_nodes() -> None:
    allocated = held("c", None, "gpu-0")
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}
    allocated["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [term]}
    answer = cluster(device_slice("a", 1), allocated).explain(pod())
    assert where(answer) == [
        "claim c: its devices are on nodes with metadata.name=gone, of which none is left"
    ]


def test_a_claim_of_several_pods_is_freed_by_the_last() -> None:
    """They are proposed together: each alone would free nothing."""
    first, second = (pod(name, "h", node="a") for name in ("first", "second"))
    shared = held("h", first, "gpu-0")
    shared["status"]["reservedFor"] += held("h", second)["status"]["reservedFor"]
    answer = cluster(device_slice("a", 1), claim(request()), shared, pods=(first, second)).explain(pod())
    assert where(answer) == [f"{WANTED}, 0 of 1 device free: 1 in use by first, second"]
    leaving = tuple(f"pod default/{name} leaves node a" for name in ("first", "second"))
    assert [each.texts for each in answer.suggestions] == [leaving]


def test_the_holder_of_a_counter_is_found_at_another_device_of_the_pool() -> None:
    """`whole` and `shared` are parts of one piece of hardware: whoever has one keeps the other out."""
    holder, other = pod("holder", "h", node="a"), pod("other", "o", node="b")
    partitions = [{"name": name, **consuming(3)} for name in ("shared", "whole")]
    selects = {"cel": {"expression": 'device.attributes["gpu.example.com"].kind == "whole"'}}
    for partition in partitions:
        partition |= attribute("kind", partition["name"])
    answer = cluster(
        of_pool("counters", **COUNTERS),
        of_pool("d", devices=partitions),
        claim(request(selectors=[selects])),
        held("h", holder, "shared"),
        held("o", other, "gpu-0", pool="b"),
        nodes="a b",
        pods=(holder, other),
    ).explain(pod())
    reason = "1 not selected (kind=shared), 1 short of counters (s/slots by 3) by holder"
    assert sorted(where(answer)) == [
        f"{WANTED}, 0 of 2 devices free: {reason}",
        f"{WANTED}, the node has no device",
    ]
    assert [each.texts for each in answer.suggestions] == [("pod default/holder leaves node a",)]


@pytest.mark.parametrize(
    ("wanted", "leaving"),
    [("20Gi", ["few"]), ("35Gi", ["many-1", "many-2"]), ("45Gi", ["few", "many-1", "many-2"])],
)
def test_of_the_claims_that_share_a_device_those_that_consume_enough_are_to_end(
    wanted: str, leaving: list[str]
) -> None:
    """One claim of one pod consumes 10Gi of 50Gi, one of two pods 30Gi: a claim ends with its last pod."""
    pods = {name: pod(name, claim_name, node="a") for name, claim_name in USERS.items()}
    sharing = []
    for claim_name, consumed in (("h", "10Gi"), ("i", "30Gi")):
        users = [each for name, each in pods.items() if USERS[name] == claim_name]
        made = held(claim_name, users[0], "gpu-0")
        made["status"]["reservedFor"] = [
            user for each in users for user in held(claim_name, each)["status"]["reservedFor"]
        ]
        result = made["status"]["allocation"]["devices"]["results"][0]
        result |= {"shareID": claim_name, "consumedCapacity": {"memory": consumed}}
        sharing.append(made)
    requested = claim(request(capacity={"requests": {"memory": wanted}}))
    device = with_devices("a", {**SHARED, "capacity": {"memory": {"value": "50Gi"}}})
    answer = cluster(device, requested, *sharing, pods=tuple(pods.values())).explain(pod())
    texts = tuple(f"pod default/{name} leaves node a" for name in leaving)
    assert [each.texts for each in answer.suggestions] == [texts]


USERS = {"few": "h", "many-1": "i", "many-2": "i"}


def test_many_nodes_make_few_groups() -> None:
    """Names, then values, then counts are left out until at most eight groups are left."""
    names = [f"n{number:02}" for number in range(24)]
    holders = [pod(f"of-{name}", f"h-{name}", node=name) for name in names]
    objects = [
        obj
        for number, (name, holder) in enumerate(zip(names, holders, strict=True))
        for obj in (
            with_devices(name, *[attribute("fabric", f"{name}-{n}") for n in range(4)]),
            held(f"h-{name}", holder, *(f"gpu-{n}" for n in range(1 + number % 3)), pool=name),
        )
    ]
    answer = cluster(*objects, claim(request(count=4)), nodes=" ".join(names), pods=tuple(holders)).explain(
        pod()
    )
    start = "request r: 4 of class gpu wanted"
    assert [(group.n_nodes, group.where) for group in answer.groups] == [
        (8, f"{start}, {4 - n} of 4 devices free: {n} in use") for n in (3, 2, 1)
    ]


def test_nodes_with_the_same_devices_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices that all nodes reach count once; those after the last one that may be looked at are left out."""
    monkeypatch.setattr(DeviceInspection, "__init__", partialmethod(DeviceInspection.__init__, n_devices=3))
    shared = device_slice("a", 3)
    del shared["spec"]["nodeName"]
    shared["spec"]["allNodes"] = True
    alike = cluster(shared, claim(request(count=4)), nodes="a b c").explain(pod())
    assert where(alike) == ["request r: 4 of class gpu wanted, 3 of 3 devices free"]
    nodes = cluster(device_slice("a", 3), device_slice("b", 1), claim(request(count=4)), nodes="a b")
    assert where(nodes.explain(pod())) == [
        "not looked at: the nodes before have too many devices",
        "request r: 4 of class gpu wanted, 3 of 3 devices free",
    ]


_SEVERAL = {"nodeSelectorTerms": [build.node_term(f"{build.HOSTNAME} in {name}") for name in "ab"]}


@pytest.mark.parametrize(
    ("objects", "wanted", "at", "says"),
    [
        pytest.param(
            [with_devices("a", attribute("model", "x")), with_devices("b", attribute("model", "x"), {})],
            request(count=3, selectors=[MODEL]),
            "b",
            f"device {DRIVER}/b/gpu-1 in slice slice-b: no such key: model",
            id="the device on which a selector fails",
        ),
        pytest.param(
            [with_devices("a", consuming(1))],
            request(count=0, allocationMode="All"),
            "a",
            f"pool {DRIVER}/a is invalid: counter set s of device gpu-0 in slice slice-a not found",
            id="the pool that is invalid for a pod that takes all devices",
        ),
        pytest.param(
            [with_devices("a", {}, nodeName=None, nodeSelector=_SEVERAL)],
            request(),
            "a",
            "slice slice-a selects nodes by several terms",
            id="the slice whose nodes cannot be written down",
        ),
    ],
)
def test_where_the_search_fails_the_node_and_the_object_are_named(
    objects: list[Json], wanted: Json, at: str, says: str
) -> None:
    """The message, which is upstream's, names less. One slice of one node is enough."""
    answer = cluster(*objects, claim(wanted), nodes="a b").explain(pod())
    assert answer.state == "failed"
    found = [note for note in answer.notes if "the search fails" in note]
    assert found == [f"on node {at} the search fails: {says}"]


@pytest.mark.parametrize("shares", ["devices", "counters"])
def test_where_each_request_alone_has_enough_the_holder_of_the_rest_is_to_leave(shares: str) -> None:
    """Of two devices, or of counters for two of three, one is in use; each of two requests wants one."""
    holder = pod("holder", "h", node="a")
    published = (
        [device_slice("a", 2)]
        if shares == "devices"
        else [
            of_pool("counters", **COUNTERS),
            of_pool("d", devices=[{"name": f"gpu-{n}", **consuming(1 if n else 2)} for n in range(3)]),
        ]
    )
    answer = cluster(
        *published, claim(request("r"), request("s")), held("h", holder, "gpu-0"), pods=(holder,)
    ).explain(pod())
    assert where(answer) == ["devices for each request alone, not for all together, others in use by holder"]
    assert [each.texts for each in answer.suggestions] == [("pod default/holder leaves node a",)]


def test_of_all_devices_those_that_are_in_use_are_missing() -> None:
    """Mode All takes each device of the class, and refuses a node that has none."""
    holder = pod("holder", "h", node="a")
    wanted = claim(request(count=0, allocationMode="All"))
    answer = cluster(
        device_slice("a", 2), wanted, held("h", holder, "gpu-0"), nodes="a b", pods=(holder,)
    ).explain(pod())
    start = "request r: all of class gpu wanted"
    assert sorted(where(answer)) == [
        f"{start}, 1 of 2 devices free: 1 in use by holder",
        f"{start}, the node has no device",
    ]
    assert [s.texts for s in answer.suggestions] == [("pod default/holder leaves node a",)]


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([], 'could not find ResourceClaim "default/c"'),
        ([claim({"name": "r"})], "resource claim default/c, request r: unknown request type"),
        ([claim(request(), {"name": "s"})], "resource claim default/c, request s: unknown request type"),
    ],
)
def test_classes_are_listed_for_an_unknown_one_alone(objects: list[Json], reason: str) -> None:
    (group,) = cluster(*objects).explain(pod()).groups
    assert (group.reason, group.where) == (reason, "")


def test_a_request_without_a_class_is_an_error() -> None:
    answer = cluster(claim(request(deviceClassName=""))).explain(pod())
    says = 'running PreFilter plugin "DynamicResources": request r: unsupported request type'
    assert (answer.state, answer.message) == ("failed", says)


def test_a_claim_whose_device_another_claim_had_before_says_so() -> None:
    holder = pod("holder", "h", node="a")
    answer = cluster(
        device_slice("a", 1), held("h", holder, "gpu-0"), held("c", None, "gpu-0"), pods=(holder,)
    ).explain(pod())
    assert where(answer) == ["claim c: one of its devices was allocated to another claim before"]


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


def test_four_of_many_pods_that_share_a_device_are_named() -> None:
    pods = [pod(f"p-{number}", "h", node="a") for number in range(6)]
    shared = held("h", None, "gpu-0")
    shared["status"]["reservedFor"] = [
        {"resource": "pods", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}
        for each in pods
    ]
    answer = cluster(device_slice("a", 1), claim(request()), shared, pods=tuple(pods)).explain(pod())
    assert where(answer) == [f"{WANTED}, 0 of 1 device free: 1 in use by p-0, p-1, p-2, p-3, 2 more"]


def test_where_nodes_differ_in_all_numbers_the_reasons_are_left() -> None:
    names = [f"n{number}" for number in range(9)]
    tainted = {"taints": [{"key": "broken", "effect": "NoExecute"}]}
    objects = [
        obj
        for number, name in enumerate(names, 1)
        for obj in (
            with_devices(name, *[{}] * number, tainted),
            held(f"h-{name}", None, *(f"gpu-{n}" for n in range(number)), pool=name),
        )
    ]
    answer = cluster(*objects, claim(request()), nodes=" ".join(names)).explain(pod())
    assert where(answer) == [f"{WANTED}, too few free: in use, tainted"]


@pytest.mark.parametrize(
    ("requests", "constraint"),
    [
        (
            [
                {"name": "r", "firstAvailable": [{**request()["exactly"], "name": n} for n in "ab"]},
                request("s", 2),
            ],
            {"matchAttribute": FABRIC, "requests": ["r/b"]},
        ),
        ([request("r", 2), request("s")], {"distinctAttribute": FABRIC, "requests": ["r"]}),
        ([request("r"), request("s", 2)], {"matchAttribute": FABRIC, "requests": ["r"]}),
    ],
    ids=["for another alternative", "of different values that is met", "of equal values that is met"],
)
def test_a_constraint_that_is_not_in_the_way_is_not_named(requests: list[Json], constraint: Json) -> None:
    devices = [attribute("fabric", value) for value in "xy"]
    answer = cluster(with_devices("a", *devices), claim(*requests, constraints=[constraint])).explain(pod())
    assert where(answer) == ["devices for each request alone, not for all together"]


def test_of_many_pools_that_cannot_be_used_neither_name_nor_problem_is_left() -> None:
    names = [f"n{number}" for number in range(9)]
    objects = [with_devices(name, consuming(1)) for name in names]
    answer = cluster(*objects, claim(request()), nodes=" ".join(names)).explain(pod())
    assert where(answer) == [f"{WANTED}, the node has no device; a pool is invalid"]
