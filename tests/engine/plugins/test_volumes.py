"""Clusters with volumes: whatever happened before, the decision is the plain reference's."""

from functools import partial

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from scheduler.engine.model.semantics import Gate, Version, semantics_of
from tests.conformance.compare import decision_mismatches
from tests.conformance.product import ProductSubject
from tests.conformance.subject import FreshSubject
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
@settings(max_examples=80, deadline=None)
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
    live = ProductSubject(None, semantics)
    fresh, reference = FreshSubject(partial(ProductSubject, semantics=semantics), None), Cluster()
    for change in (*beginning, *changes):
        for subject in (live, fresh, reference):
            if isinstance(change, Applied):
                subject.apply(change.object)
            else:
                subject.delete(*change)
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
            assert decision_mismatches(expected, live.evaluate(pod)) == []
    for pod in incoming:
        assert decision_mismatches(reference.evaluate(pod, gates=gates), fresh.evaluate(pod)) == []
    assert live.differences() == []


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


@settings(max_examples=300, deadline=None)
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


def _evaluated(minor: int, *objects: Json, config: Json | None = None, claims: str = "c") -> Json:
    """Return the decision on a pod with these claims beside nodes "a" and "b", which are zones too."""
    subject = ProductSubject(config, semantics_of(Version(1, minor)))
    for obj in (*(build.node(name, labels={build.ZONE: name}) for name in "ab"), *objects):
        subject.apply(obj)
    return subject.evaluate(using(*claims))


@pytest.mark.parametrize(
    ("minor", "required", "refused"), [(37, True, ["b"]), (37, False, []), (36, True, [])]
)
def test_a_node_without_a_required_driver_refuses_the_pod_from_1_37(
    minor: int, refused: list[str], *, required: bool
):
    decision = _evaluated(
        minor,
        storage_class("wait", "d"),
        claim("c", "wait"),
        csi_driver("d", required=required),
        csi_node("a", d=None),
    )
    verdict = {"code": "Unschedulable", "reasons": ["d CSI driver is not installed on the node"]}
    assert decision["filter"].get("NodeVolumeLimits", {}) == dict.fromkeys(refused, verdict)


@pytest.mark.parametrize("migrated", [(), ["kubernetes.io/gce-pd"]])
def test_a_volume_of_an_in_tree_plugin_asks_each_node_with_a_csinode_for_its_driver(migrated: list[str]):
    disk = {"gcePersistentDisk": {"pdName": "x"}}
    decision = _evaluated(
        37,
        claim("c", volume="v"),
        volume("v", source=disk),
        csi_driver("pd.csi.storage.gke.io", required=True),
        csi_node("a", migrated=migrated),
    )
    # "b" has no CSINode.
    assert list(decision["filter"].get("NodeVolumeLimits", {})) == ["a"]


def test_a_disk_that_a_pod_names_itself_asks_the_node_for_its_driver_too():
    subject = ProductSubject(None, semantics_of(Version(1, 37)))
    for obj in (
        build.node("a"),
        csi_driver("pd.csi.storage.gke.io", required=True),
        csi_node("a"),
    ):
        subject.apply(obj)
    refused = subject.evaluate(with_volumes(disk("gcePersistentDisk", pdName="x")))["filter"]
    reason = "pd.csi.storage.gke.io CSI driver is not installed on the node"
    assert refused["NodeVolumeLimits"]["a"]["reasons"] == [reason]


_FULL_FIRST = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "pluginConfig": [
                {
                    "name": "VolumeBinding",
                    "args": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]},
                }
            ]
        }
    ],
}


@pytest.mark.parametrize(
    ("minor", "config", "scores"),
    [(37, None, {"a": 50, "b": 90}), (37, _FULL_FIRST, {"a": 50, "b": 10}), (36, None, None)],
)
def test_the_share_of_a_pool_that_a_volume_takes_scores_a_node_from_1_37(
    minor: int, config: Json | None, scores: Json | None
):
    pools = (
        capacity(f"pool-{name}", "wait", amount, topology=build.selector(f"{build.ZONE}={name}"))
        for name, amount in (("a", "10Gi"), ("b", "50Gi"))
    )
    decision = _evaluated(
        minor,
        storage_class("wait", "d"),
        csi_driver("d", tracks_capacity=True),
        claim("c", "wait", request="5Gi"),
        *pools,
        config=config,
    )
    assert decision["score"].get("VolumeBinding") == scores


def _without(plugin: str) -> Json:
    config = build.configuration()
    config["profiles"][0]["plugins"] = {"multiPoint": {"disabled": [{"name": plugin}]}}
    return config


def test_of_two_bound_claims_the_first_that_a_node_fails_is_the_reason():
    """VolumeZone refuses a pod whose volume does not exist on every node, before they are asked."""
    found = _evaluated(
        36,
        volume("v", terms=[build.node_term(f"{build.ZONE} in a")], claimed_by="default/c"),
        claim("c", volume="v"),
        claim("d", volume="gone"),
        claims="cd",
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


def test_a_class_whose_driver_tells_no_capacity_scores_nothing():
    decision = _evaluated(
        37,
        storage_class("wait", "d"),
        csi_driver("d", tracks_capacity=True),
        storage_class("untold", "e"),
        claim("c", "wait", request="5Gi"),
        claim("d", "untold", request="5Gi"),
        capacity("pool", "wait", "10Gi", topology={}),
        claims="cd",
    )
    assert decision["score"]["VolumeBinding"] == {"a": 50, "b": 50}


@pytest.mark.parametrize(
    ("request_", "small", "large", "scores"),
    [("1Gi", "2Gi", "10Gi", {"a": 50, "b": 90}), ("1", "1", "10", {"a": 0, "b": 90})],
)
def test_an_existing_volume_that_fits_well_scores_by_its_size(
    request_: str, small: str, large: str, scores: Json
):
    decision = _evaluated(
        37,
        storage_class("wait", "d"),
        claim("c", "wait", request=request_),
        volume("small", "wait", capacity=small, terms=[build.node_term(f"{build.ZONE} in a")]),
        volume("large", "wait", capacity=large, terms=[build.node_term(f"{build.ZONE} in b")]),
    )
    assert decision["score"]["VolumeBinding"] == scores


def test_a_claim_takes_a_volume_of_more_access_modes_than_it_asks_for_but_none_of_fewer():
    found = _evaluated(
        36,
        storage_class("static", "kubernetes.io/no-provisioner"),
        claim("c", "static", modes=["ReadWriteOnce", "ReadOnlyMany"]),
        *(
            volume(zone, "static", modes=modes, terms=[build.node_term(f"{build.ZONE} in {zone}")])
            for zone, modes in (
                ("a", ["ReadWriteOnce"]),
                ("b", ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"]),
            )
        ),
    )
    assert found["feasible"] == ["b"]


def test_a_claim_takes_volumes_that_its_selector_selects_alone():
    found = _evaluated(
        36,
        storage_class("static", "kubernetes.io/no-provisioner"),
        claim("c", "static", selector=build.selector("tier=fast")),
        volume("slow", "static", terms=[build.node_term(f"{build.ZONE} in a")], labels={"tier": "slow"}),
        volume("fast", "static", terms=[build.node_term(f"{build.ZONE} in b")], labels={"tier": "fast"}),
    )
    assert found["decided"] == "b"
    assert found["filter"]["VolumeBinding"].keys() == {"a"}


@pytest.mark.parametrize(
    "unfit",
    [
        pytest.param({"volumeMode": "Block"}, id="of another mode"),
        pytest.param({"volumeAttributesClassName": "gold"}, id="with other attributes"),
        pytest.param({"terminating": True}, id="that is being deleted"),
        pytest.param(
            {"storage_class": "other", "claimed_by": "default/c"},
            id="of another class that is promised to it",
        ),
        pytest.param(
            {"claimed_by": "default/c", "claim_uid": "earlier"}, id="promised to an earlier claim of the name"
        ),
        pytest.param({"claimed_by": "default/c", "capacity": "1Mi"}, id="promised to it, but too small"),
    ],
)
def test_a_claim_takes_no_volume(unfit: Json):
    """Another volume, in zone b, suits it."""
    found = _evaluated(
        37,
        storage_class("static", "kubernetes.io/no-provisioner"),
        claim("c", "static"),
        volume("v", **{"storage_class": "static", "terms": [build.node_term(f"{build.ZONE} in a")], **unfit}),
        volume("w", "static", terms=[build.node_term(f"{build.ZONE} in b")]),
    )
    assert found["feasible"] == ["b"]


def test_the_smallest_claim_takes_its_volume_first():
    """Whatever the pod's order: the larger claim would take the only volume that many nodes may write to."""
    found = _evaluated(
        36,
        storage_class("static", "kubernetes.io/no-provisioner"),
        claim("c", "static", request="5Gi"),
        claim("d", "static", request="4Gi", modes=["ReadWriteMany"]),
        volume("v", "static", capacity="5Gi", modes=["ReadWriteOnce", "ReadWriteMany"]),
        volume("w", "static", capacity="6Gi"),
        claims="cd",
    )
    assert found["feasible"] == ["a", "b"]


def test_of_two_claims_that_have_no_volume_the_first_is_the_reason():
    found = _evaluated(
        36,
        storage_class("elsewhere", topologies=[{build.ZONE: ["c"]}]),
        storage_class("full", "e"),
        csi_driver("e", tracks_capacity=True),
        claim("c", "elsewhere"),
        claim("d", "full", request="2Gi"),
        claims="cd",
    )
    reason = "node(s) didn't find available persistent volumes to bind"
    verdict = {"code": "UnschedulableAndUnresolvable", "reasons": [reason]}
    assert found["filter"]["VolumeBinding"] == {"a": verdict, "b": verdict}
