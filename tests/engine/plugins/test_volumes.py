"""Clusters with volumes: whatever happened before, the decision is the plain reference's."""

from collections.abc import Mapping

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from scheduler.engine.model.semantics import Gate, Version, semantics_of
from tests.conformance.compare import decision_mismatches
from tests.conformance.product import ProductSubject
from tests.engine.plugins.lives import Applied, Deleted
from tests.engine.plugins.volume_lives import BEGINNINGS, CHANGES, pods
from tests.reference.cluster import Cluster
from tests.support import build
from tests.support.build import Json
from tests.support.cases.volume_rows import disk, using, with_volumes
from tests.support.storage_objects import (
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    storage_class,
    volume,
)


@pytest.mark.parametrize("minor", [36, 37])
@settings(max_examples=40, deadline=None)
@given(
    beginning=BEGINNINGS,
    changes=st.lists(CHANGES, min_size=3, max_size=12),
    incoming=st.lists(pods(placed=False), min_size=1, max_size=3),
)
def test_decisions_are_the_reference_s_whatever_happened_to_volumes(
    beginning: list[Applied], changes: list[Applied | Deleted], incoming: list[Json], minor: int
):
    semantics = semantics_of(Version(1, minor))
    gates = {gate.value: semantics.enabled(gate) for gate in Gate}
    product, reference = ProductSubject(None, semantics), Cluster()
    for change in (*beginning, *changes):
        change.tell(product, reference)
        if change in beginning:
            continue
        for pod in incoming:
            expected = reference.evaluate(pod, gates=gates)
            for refusal in expected.get("prefilter", {}).values():
                event(f"prefilter: {refusal['reasons'][0].split(chr(34))[0]}")
            for plugin, refused in expected.get("filter", {}).items():
                event(f"filter: {plugin}")
                if any("not installed" in verdict["reasons"][0] for verdict in refused.values()):
                    event("a driver is not installed")
            if any(expected.get("score", {}).get("VolumeBinding", {}).values()):
                event("storage scores")
            assert decision_mismatches(expected, product.evaluate(pod)) == []
    assert product.differences() == []


#: Each claim is bound, and each node has room for few volumes: most pods are refused for the pods that are there.
_BOUND = (
    storage_class("static", "kubernetes.io/no-provisioner"),
    *(
        volume(
            f"v{index}",
            "static",
            source={"csi": {"driver": driver, "volumeHandle": f"v{index}"}},
            claimed_by=f"default/c{index}",
            phase="Bound",
        )
        # No node limits the volumes of the other driver.
        for index, driver in enumerate("eddd")
    ),
)


@settings(max_examples=120, deadline=None)
@example(
    limits=[2, 2],
    modes=["ReadWriteOncePod"] * 4,
    running=[(using("c0", name="other"), "n0")],
    attached=[],
    # Two volumes name one claim.
    incoming=using("c0", "c0", name="incoming"),
)
@example(
    limits=[1, 0],
    modes=["ReadWriteOnce"] * 4,
    # The volume of "c0" is of the driver without limits.
    running=[(using("c0", "c1", name="other"), "n0")],
    attached=[],
    incoming=using("c2", name="incoming"),
)
@given(
    limits=st.lists(st.integers(1, 2), min_size=2, max_size=2),
    modes=st.lists(st.sampled_from(("ReadWriteOnce", "ReadWriteOncePod")), min_size=4, max_size=4),
    running=st.lists(st.tuples(pods(placed=True), st.sampled_from(("n0", "n1"))), min_size=1, max_size=9),
    attached=st.lists(st.sampled_from(("v0", "v1", "v2", "v3")), max_size=1),
    incoming=st.one_of(
        pods(placed=False),
        st.lists(st.sampled_from(("c0", "c1", "c2", "c3")), min_size=1, max_size=3).map(
            lambda names: using(*names, name="incoming")
        ),
    ),
)
def test_the_victims_for_a_pod_with_volumes_are_the_reference_s(
    limits: list[int],
    modes: list[str],
    running: list[tuple[Json, str]],
    attached: list[str],
    incoming: Json,
):
    claims = [
        claim(f"c{index}", "static", volume=f"v{index}", modes=(mode,)) for index, mode in enumerate(modes)
    ]
    crowd = [{**pod, "spec": {**pod["spec"], "nodeName": name}} for pod, name in running]
    nodes = [
        each
        for name, limit in zip(("n0", "n1"), limits, strict=True)
        for each in (build.node(name), csi_node(name, d=limit))
    ]
    product, reference = ProductSubject(None), Cluster()
    for obj in (*nodes, *_BOUND, *claims, *(attachment("a", name, "n0") for name in attached), *crowd):
        product.apply(obj)
        reference.apply(obj)
    pod = {**incoming, "spec": {**incoming["spec"], "priority": 10}}
    expected = reference.evaluate_and_preempt(pod, None)
    for plugin in expected.get("filter", {}):
        n_candidates = len(expected.get("preemption", {}).get("candidates", ()))
        event(f"refused by {plugin}, {n_candidates} candidates")
    assert decision_mismatches(expected, product.evaluate(pod)) == []


def _evaluated(minor: int, *objects: Json, config: Json | None = None, pod: Json | None = None) -> Json:
    """Return the decision on a pod, with claim "c" if not said otherwise, beside nodes "a" and "b", which are zones."""
    subject = ProductSubject(config, semantics_of(Version(1, minor)))
    for obj in (*(build.node(name, labels={build.ZONE: name}) for name in "ab"), *objects):
        subject.apply(obj)
    return subject.evaluate(pod or using("c"))


def _in(*zones: str) -> list[Json]:
    return [build.node_term(f"{build.ZONE} in {','.join(zones)}")]


_STATIC = storage_class("static", "kubernetes.io/no-provisioner")
_PD = "pd.csi.storage.gke.io"
_OF_D = (storage_class("wait", "d"), claim("c", "wait"), csi_node("a", d=None))
_GCE = (claim("c", volume="v"), volume("v", source={"gcePersistentDisk": {"pdName": "x"}}))
_NEEDS_PD = csi_driver(_PD, required=True)


@pytest.mark.parametrize(
    ("minor", "objects", "pod", "refused"),
    [
        (37, [*_OF_D, csi_driver("d", required=True)], None, {"b": "d"}),
        (37, [*_OF_D, csi_driver("d", required=False)], None, {}),
        (36, [*_OF_D, csi_driver("d", required=True)], None, {}),
        # A volume of an in-tree plugin asks each node with a CSINode for its driver; "b" has none.
        (37, [*_GCE, _NEEDS_PD, csi_node("a", migrated=())], None, {"a": _PD}),
        (37, [*_GCE, _NEEDS_PD, csi_node("a", migrated=["kubernetes.io/gce-pd"])], None, {"a": _PD}),
        (37, [_NEEDS_PD, csi_node("a")], with_volumes(disk("gcePersistentDisk", pdName="x")), {"a": _PD}),
    ],
)
def test_a_node_without_a_required_driver_refuses_the_pod_from_1_37(
    minor: int, objects: list[Json], pod: Json | None, refused: Mapping[str, str]
):
    found = _evaluated(minor, *objects, pod=pod)["filter"].get("NodeVolumeLimits", {})
    assert found == {
        name: {"code": "Unschedulable", "reasons": [f"{driver} CSI driver is not installed on the node"]}
        for name, driver in refused.items()
    }


_FULL_FIRST = build.configuration(
    {"VolumeBinding": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}
)
_TRACKED = (storage_class("wait", "d"), csi_driver("d", tracks_capacity=True))
_POOLS = [
    capacity(f"pool-{name}", "wait", amount, topology=build.selector(f"{build.ZONE}={name}"))
    for name, amount in (("a", "10Gi"), ("b", "50Gi"))
]
_5GI = claim("c", "wait", request="5Gi")


def _volumes(request: str, small: str, large: str) -> list[Json]:
    return [
        claim("c", "wait", request=request),
        volume("small", "wait", capacity=small, terms=_in("a")),
        volume("large", "wait", capacity=large, terms=_in("b")),
    ]


@pytest.mark.parametrize(
    ("minor", "config", "objects", "scores"),
    [
        pytest.param(37, None, [_5GI, *_POOLS], {"a": 50, "b": 90}, id="of pools"),
        pytest.param(37, _FULL_FIRST, [_5GI, *_POOLS], {"a": 50, "b": 10}, id="by a shape"),
        pytest.param(36, None, [_5GI, *_POOLS], None, id="before"),
        pytest.param(37, None, _volumes("1Gi", "2Gi", "10Gi"), {"a": 50, "b": 90}, id="of volumes"),
        pytest.param(37, None, _volumes("1", "1", "10"), {"a": 0, "b": 90}, id="of volumes of few bytes"),
    ],
)
def test_the_share_of_the_storage_that_a_claim_takes_scores_a_node_from_1_37(
    minor: int, config: Json | None, objects: list[Json], scores: Json | None
):
    decision = _evaluated(minor, *_TRACKED, *objects, config=config)
    assert decision["score"].get("VolumeBinding") == scores


def test_a_class_whose_driver_tells_no_capacity_scores_nothing():
    pool = capacity("pool", "wait", "10Gi", topology={})
    untold = storage_class("untold", "e"), claim("d", "untold", request="5Gi")
    decision = _evaluated(37, *_TRACKED, _5GI, *untold, pool, pod=using("c", "d"))
    assert decision["score"]["VolumeBinding"] == {"a": 50, "b": 50}


def _without(plugin: str) -> Json:
    config = build.configuration()
    config["profiles"][0]["plugins"] = {"multiPoint": {"disabled": [{"name": plugin}]}}
    return config


def test_of_two_bound_claims_the_first_that_a_node_fails_is_the_reason():
    """VolumeZone refuses a pod whose volume does not exist on every node, before they are asked."""
    found = _evaluated(
        36,
        volume("v", terms=_in("a"), claimed_by="default/c"),
        claim("c", volume="v"),
        claim("d", volume="gone"),
        pod=using("c", "d"),
        config=_without("VolumeZone"),
    )
    reasons = {name: verdict["reasons"] for name, verdict in found["filter"]["VolumeBinding"].items()}
    assert reasons == {
        "a": ["node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"],
        "b": ["node(s) didn't match PersistentVolume's node affinity"],
    }


def test_a_class_that_does_not_say_when_to_bind_is_named():
    """VolumeBinding makes an error of it, and VolumeZone, which is asked without it, a refusal."""
    objects = storage_class("s", mode=None), claim("c", "s")
    says = 'VolumeBindingMode not set for StorageClass "s"'
    assert _evaluated(36, *objects) == {"error": f'running PreFilter plugin "VolumeBinding": {says}'}
    refused = {"code": "UnschedulableAndUnresolvable", "reasons": [says]}
    assert _evaluated(36, *objects, config=_without("VolumeBinding"))["prefilter"]["VolumeZone"] == refused


@pytest.mark.parametrize(
    ("wanted", "unfit"),
    [
        pytest.param({}, {"volumeMode": "Block"}, id="of another mode"),
        pytest.param({}, {"volumeAttributesClassName": "gold"}, id="with other attributes"),
        pytest.param({}, {"terminating": True}, id="that is being deleted"),
        pytest.param(
            {},
            {"claimed_by": "default/c", "claim_uid": "earlier"},
            id="promised to an earlier claim of the name",
        ),
        pytest.param({"modes": ["ReadWriteOnce", "ReadOnlyMany"]}, {}, id="of fewer access modes"),
        pytest.param({"selector": build.selector("tier=fast")}, {}, id="that its selector does not select"),
    ],
)
def test_a_claim_takes_no_volume(wanted: Json, unfit: Json):
    """Another volume, in zone b, suits it: it has more access modes than asked for."""
    more: Json = {"modes": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"], "labels": {"tier": "fast"}}
    found = _evaluated(
        37,
        _STATIC,
        claim("c", "static", **wanted),
        volume("v", **{"storage_class": "static", "terms": _in("a"), **unfit}),
        volume("w", "static", terms=_in("b"), **more),
    )
    assert found["feasible"] == ["b"]


def test_the_smallest_claim_takes_its_volume_first():
    """Whatever the pod's order: the larger claim would take the only volume that many nodes may write to."""
    found = _evaluated(
        36,
        _STATIC,
        claim("c", "static", request="5Gi"),
        claim("d", "static", request="4Gi", modes=["ReadWriteMany"]),
        volume("v", "static", capacity="5Gi", modes=["ReadWriteOnce", "ReadWriteMany"]),
        volume("w", "static", capacity="6Gi"),
        pod=using("c", "d"),
    )
    assert found["feasible"] == ["a", "b"]
