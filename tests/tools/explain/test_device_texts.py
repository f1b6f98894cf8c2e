"""Explanations of pods with resource claims: what a text names, and what it leaves out where there is much."""

from __future__ import annotations

import pytest

from tests.support.build import Json
from tests.support.device_documents import device_class, device_slice
from tests.tools.explain.test_devices import (
    FABRIC,
    WANTED,
    attribute,
    claim,
    cluster,
    consuming,
    held,
    pod,
    request,
    where,
    with_devices,
)


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


def test_four_of_many_known_classes_are_named() -> None:
    classes = [device_class(name) for name in "edcba"]
    answer = cluster(*classes, claim(request(deviceClassName="none"))).explain(pod())
    assert where(answer) == ["known classes: a, b, c, d, 2 more"]


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([], 'could not find ResourceClaim "default/c"'),
        ([claim({"name": "r"})], "resource claim default/c, request r: unknown request type"),
        (
            [claim(request(), {"name": "s"})],
            "resource claim default/c, request s: unknown request type",
        ),
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


def test_a_claim_whose_devices_were_not_ready_in_time_says_so() -> None:
    """The clock of a cluster in memory stands at 1970."""
    late = held("c", None, "gpu-0")
    allocation = late["status"]["allocation"]
    allocation["allocationTimestamp"] = "1969-12-31T23:00:00Z"
    allocation["devices"]["results"][0]["bindingConditions"] = ["attached"]
    answer = cluster(device_slice("a", 1), late).explain(pod())
    assert where(answer) == ["claim c: its devices did not become ready in time"]


@pytest.mark.parametrize(
    ("allocated", "is_ready"),
    [("1969-12-31T23:00:00Z", True), ("1970-01-01T00:00:00Z", False)],
    ids=["ready long after", "not ready yet"],
)
def test_a_claim_whose_devices_are_or_may_become_ready_is_taken(allocated: str, *, is_ready: bool) -> None:
    stored = held("c", None, "gpu-0")
    allocation = stored["status"]["allocation"]
    allocation["allocationTimestamp"] = allocated
    (result,) = allocation["devices"]["results"]
    result["bindingConditions"] = ["attached"]
    if is_ready:
        conditions = [{"type": "attached", "status": "True"}]
        stored["status"]["devices"] = [{**result, "conditions": conditions}]
    assert cluster(device_slice("a", 1), stored).explain(pod()).groups == ()


def test_a_claim_is_available_on_the_nodes_of_each_term() -> None:
    stored = held("c", None, "gpu-0")
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("gone", "a")]
    terms = [{"matchFields": [field]} for field in fields]
    stored["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": terms}
    assert cluster(device_slice("a", 1), stored).explain(pod()).groups == ()


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
