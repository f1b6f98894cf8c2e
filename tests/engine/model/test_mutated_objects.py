"""Objects are untrusted input: any JSON is decoded or reported as malformed, and never breaks a cycle."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import PodSpec
from scheduler.engine.model.stimuli import CycleDue, NodeSeen, ObjectSeen, PodSeen
from scheduler.engine.model.volumes import PersistentVolumeClaim, StorageKind
from scheduler.engine.model.wire import MalformedObjectError
from tests.support import build
from tests.support.cases.volume_rows import using
from tests.support.driving import NAME, Driver
from tests.support.storage_objects import (
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    storage_class,
    volume,
)

POD = build.pod(
    "p",
    labels={"app": "web", "zone": "a"},
    node_selector={"disk": "ssd"},
    tolerations=[build.toleration("k", "Equal", "v", effect="NoSchedule")],
    affinity=build.affinity(
        required=[build.term(build.ZONE, build.selector("app=web"), namespaces=["default"])],
        preferred=[(5, build.term(build.ZONE, build.selector("app in a,b")))],
        anti_required=[build.term(build.HOSTNAME, build.selector("app=web"), namespace_selector={})],
        node_required=[build.node_term("disk in ssd,hdd", named=["in n"])],
        node_preferred=[(3, build.node_term("disk"))],
    ),
    spread=[build.spread(build.ZONE, build.selector("app=web"), min_domains=2, match_label_keys=["zone"])],
    containers=[build.container(requests={"cpu": "100m", "memory": "1Gi"}, host_ports=["127.0.0.1:80/UDP"])],
    spec={
        "schedulerName": NAME,
        "initContainers": [{"name": "i", "image": "x", "restartPolicy": "Always"}],
        "overhead": {"cpu": "1m"},
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "i", "image": {"reference": "x"}}],
        "resources": {"requests": {"cpu": "200m"}},
    },
)
NODE = build.node("n", labels={"disk": "ssd"}, taints=["k=v:NoSchedule"], images={"x": 5}, unschedulable=True)
STORAGE = [
    storage_class("s", topologies=[{build.ZONE: ["a"]}]),
    claim("made", "s", request="1Gi", selector=build.selector("app=web")),
    claim("bound", "s", volume="v"),
    claim("taken", "s", node="n"),
    volume("v", "s", terms=[build.node_term(f"{build.ZONE} in a")], labels={build.ZONE: "a__b"}),
    volume("free", "s", labels={"app": "web"}, source={"gcePersistentDisk": {"pdName": "x"}}),
    csi_node("n", d=5, migrated=["kubernetes.io/gce-pd"]),
    csi_driver("d", tracks_capacity=True),
    capacity("pool", "s", "10Gi", topology={"matchLabels": {build.ZONE: "a"}}, largest="5Gi"),
    attachment("attached", "v", "n"),
]

ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "\x00\ud7ff",
    "a" * 300,
    "1e400",
    [],
    {},
    [None],
    {"a": None},
    [[]],
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Yield the path of every value in a JSON document."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


def mutated(document: build.Json, changes: list[tuple[int, Any]]) -> bytes:
    """Return the document with values at some paths replaced, or removed by `...`."""
    changed = copy.deepcopy(document)
    for index, value in changes:
        all_places = places(changed)
        if not all_places:
            break
        *path, last = all_places[index % len(all_places)]
        holder = changed
        for key in path:
            holder = holder[key]
        if value is ... and isinstance(holder, dict):
            del holder[last]
        else:
            holder[last] = None if value is ... else copy.deepcopy(value)
    return json.dumps(changed).encode()


changes = st.lists(
    st.tuples(st.integers(0, 10_000), st.one_of(st.just(...), st.sampled_from(ODD), st.text(max_size=8))),
    min_size=1,
    max_size=4,
)


@settings(max_examples=120, deadline=None)
@given(changes)
def test_a_mutated_pod_is_decided_or_reported(what: list[tuple[int, Any]]) -> None:
    driver = Driver()
    driver.node("n", labels={"disk": "ssd", build.ZONE: "a"})
    data = mutated(POD, what)
    try:
        pod = PodDecoder().decode(data)
    except MalformedObjectError as error:
        assert "\n" not in str(error)
        return
    driver.handle(PodSeen(pod))
    driver.pod("next", labels={"app": "web"})
    driver.handle(CycleDue())
    driver.handle(CycleDue())
    driver.audit()


@settings(max_examples=80, deadline=None)
@given(changes)
def test_a_mutated_node_is_decided_or_reported(what: list[tuple[int, Any]]) -> None:
    driver = Driver()
    try:
        node = decode_node(mutated(NODE, what))
    except MalformedObjectError as error:
        assert "\n" not in str(error)
        return
    driver.handle(NodeSeen(node))
    driver.node("other")
    driver.handle(PodSeen(driver.decoded(copy.deepcopy(POD))))
    driver.handle(CycleDue())
    driver.audit()


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(STORAGE), changes)
def test_a_mutated_storage_object_is_decided_or_reported(
    document: build.Json, what: list[tuple[int, Any]]
) -> None:
    driver = Driver()
    driver.node("n", labels={build.ZONE: "a"})
    for one in STORAGE:
        data = mutated(one, what) if one is document else json.dumps(one).encode()
        try:
            driver.handle(ObjectSeen(KINDS[one["kind"]].decode(data)))
        except MalformedObjectError as error:
            assert "\n" not in str(error)
    for used in ("made", "bound", "taken"):
        waiting = using(used, name=f"uses-{used}")
        waiting["spec"]["schedulerName"] = NAME
        driver.handle(PodSeen(driver.decoded(waiting)))
        driver.handle(CycleDue())
    driver.audit()


@pytest.mark.parametrize("count", [2**31, -(2**31) - 1, 10**30])
def test_a_limit_that_no_server_stores_is_reported(count: int) -> None:
    """It would not fit the columns either."""
    data = json.dumps(csi_node("n", d=count)).encode()
    with pytest.raises(MalformedObjectError, match=r"CSINode: Expected `int` .*allocatable.count"):
        KINDS[StorageKind.CSI_NODE].decode(data)


def test_lists_of_access_modes_are_kept_once_per_set_of_modes() -> None:
    """A server stores a list of any length, and one that is kept would be kept for ever."""
    documents = (claim("c", modes=["ReadWriteOnce", *["ReadOnlyMany"] * n]) for n in (1, 2, 9))
    found = [KINDS[StorageKind.CLAIM].decode(json.dumps(one).encode()) for one in documents]
    kept = {id(one.access_modes) for one in found if isinstance(one, PersistentVolumeClaim)}
    assert len(kept) == 1


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from([b"", b"null", b"[]", b'"x"', b"{}", b'{"metadata":null}', b'{"x":' + b"[" * 50_000]),
    )
)
def test_any_bytes_are_reported_in_one_line(data: bytes) -> None:
    """A stream can break anywhere."""
    for decode in (
        PodDecoder().decode,
        decode_node,
        KINDS["Namespace"].decode,
        KINDS["Service"].decode,
        KINDS["ReplicaSet"].decode,
    ):
        with pytest.raises(MalformedObjectError) as caught:
            decode(data)
        assert "\n" not in str(caught.value)


def test_a_selector_that_does_not_parse_refuses_the_pod_and_counts_as_none_on_a_running_one() -> None:
    """An incoming pod's message names the broken list; a running pod's broken list selects no pod."""
    broken = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=bad value!"))])
    driver = Driver()
    driver.node("a")
    driver.pod("running", node="a", affinity=broken, labels={"app": "bad value!"})
    incoming = driver.decoded(build.pod("p", affinity=broken, spec={"schedulerName": NAME}))
    driver.handle(PodSeen(incoming))
    told = driver.handle(CycleDue())
    assert any("parsing pod: requiredAntiAffinityTerms: " in getattr(i, "message", "") for i in told)
    driver.pod("fine", labels={"app": "bad value!"})
    assert [type(i).__name__ for i in driver.handle(CycleDue())] == ["Bind"]
    driver.audit()


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 10**19])
def test_a_priority_or_count_that_no_api_server_stores_is_reported(value: int) -> None:
    """Also the last one, which is beyond the numbers of arrays."""
    pod = build.pod(spec={"priority": value})
    with pytest.raises(
        MalformedObjectError, match=r"pod: Expected `int` [<>]= -?\d+ - at `\$.spec.priority`"
    ):
        PodDecoder().decode(json.dumps(pod).encode())
    budget = build.disruption_budget("b", build.selector("app=web"), value)
    with pytest.raises(MalformedObjectError, match=r"at `\$.status.disruptionsAllowed`"):
        KINDS["PodDisruptionBudget"].decode(json.dumps(budget).encode())


def test_a_null_counts_as_absent_but_in_a_selector() -> None:
    """As in Go; a selector without the label would select more."""
    node = build.node("n", taints=["k=v:NoSchedule"], images={"x": 5})
    node["spec"]["taints"][0]["value"] = None
    node["status"]["images"][0]["names"] = None
    read = decode_node(json.dumps(node).encode())
    assert (read.taints[0].value, read.images[0].names) == ("", ())
    budget = build.disruption_budget("b", {"matchLabels": {"app": None}}, 1)
    with pytest.raises(MalformedObjectError, match=r"got `null` - at `\$.spec.selector.matchLabels"):
        KINDS["PodDisruptionBudget"].decode(json.dumps(budget).encode())


def test_a_null_in_a_pod_counts_as_absent_but_for_labels_that_it_selects():
    def decoded(change: dict[str, Any]) -> PodSpec:
        pod = copy.deepcopy(POD)
        terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        terms["nodeSelectorTerms"] = [{"matchFields": terms["nodeSelectorTerms"][0]["matchFields"], **change}]
        return PodDecoder().decode(json.dumps(pod).encode()).spec

    assert decoded({"matchExpressions": None}).is_like(decoded({}))
    with pytest.raises(MalformedObjectError):
        PodDecoder().decode(json.dumps(build.pod(spec={"nodeSelector": {"disk": None}})).encode())
