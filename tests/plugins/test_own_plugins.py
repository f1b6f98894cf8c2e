"""Plugins that the recordings do not cover: gates, declared features, and unsupported features."""

from collections.abc import Mapping

import pytest

from scheduler.framework.plugin_context import Claims
from scheduler.plugins.scheduling_gates import SchedulingGates
from tests.conformance.product import LiveCluster, ProductSubject
from tests.support.build import Json, affinity, configuration, node, node_term, pod
from tests.support.cases.row import UR
from tests.support.messages import not_helpful
from tests.support.storage_objects import claim, storage_class, volume

NOT_YET = "which affinity-scheduler does not support yet"


def _volumes(*volumes: Json, claims: tuple[str, ...] = ()) -> Json:
    return pod(spec={"volumes": list(volumes), "resourceClaims": [{"name": name} for name in claims]})


CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
SCRATCH = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}


@pytest.mark.parametrize(
    ("incoming", "needs"),
    [
        pytest.param(_volumes(CLAIM), 'persistentVolumeClaim "data"', id="a claim"),
        pytest.param(_volumes(SCRATCH), 'ephemeral volume "scratch"', id="an ephemeral volume"),
        pytest.param(_volumes(claims=("gpu",)), 'resourceClaim "gpu"', id="a resource claim"),
        pytest.param(
            _volumes(CLAIM, SCRATCH),
            'persistentVolumeClaim "data" and ephemeral volume "scratch"',
            id="two things",
        ),
        pytest.param(
            _volumes(SCRATCH, CLAIM, claims=("gpu",)),
            'persistentVolumeClaim "data", ephemeral volume "scratch" and resourceClaim "gpu"',
            id="three things",
        ),
    ],
)
def test_an_unsupported_feature_is_named_in_the_message(incoming: Json, needs: str):
    subject = ProductSubject(None, Claims.REFUSED)
    subject.apply(node("a"))
    decision = subject.evaluate(incoming)
    reason = f"pod needs {needs}, {NOT_YET}"
    assert decision["prefilter"]["Unsupported"] == {"code": UR, "reasons": [reason]}
    assert decision["message"] == f"0/1 nodes are available: {reason}. {not_helpful(1)}"


@pytest.mark.parametrize(
    "volume",
    [
        pytest.param({"name": "v", "emptyDir": {}}, id="emptyDir"),
        pytest.param({"name": "v", "configMap": {"name": "c"}}, id="configMap"),
        pytest.param({"name": "v", "image": {"reference": "x:1"}}, id="image"),
        pytest.param({"name": "v", "csi": {"driver": "d"}}, id="inline csi"),
    ],
)
def test_volumes_that_any_node_can_mount_are_no_obstacle(volume: Json):
    subject = ProductSubject(None)
    subject.apply(node("a"))
    assert subject.evaluate(_volumes(volume))["feasible"] == ["a"]


@pytest.mark.parametrize(
    ("objects", "refused"),
    [
        pytest.param([claim("data", volume="v"), volume("v")], None, id="a bound claim is"),
        pytest.param(
            [claim("data", "w")],
            ("Unsupported", f'pod needs persistentVolumeClaim "data", {NOT_YET}'),
            id="a claim that waits for a node is not",
        ),
        pytest.param(
            [claim("data", "w", volume="v", bound=False)],
            ("VolumeBinding", "pod has unbound immediate PersistentVolumeClaims"),
            id="one that is being bound waits for that",
        ),
        pytest.param(
            [], ("VolumeRestrictions", 'persistentvolumeclaim "data" not found'), id="one that is missing too"
        ),
    ],
)
def test_without_a_binding_cycle_only_bound_claims_are_placed(
    objects: list[Json], refused: tuple[str, str] | None
):
    subject = ProductSubject(None, Claims.BOUND)
    for obj in (node("a"), storage_class("w"), *objects):
        subject.apply(obj)
    decision = subject.evaluate(_volumes(CLAIM))
    if refused is None:
        assert decision["feasible"] == ["a"]
    else:
        plugin, reason = refused
        assert decision["prefilter"][plugin]["reasons"] == [reason]
        assert decision["message"] == f"0/1 nodes are available: {reason}. {not_helpful(1)}"


RESTARTS_ALL: Json = {"name": "c", "image": "x", "restartPolicyRules": [{"action": "RestartAllContainers"}]}
RESTART_FEATURE = "RestartAllContainersOnContainerExits"
NETWORK_FEATURE = "UserNamespacesHostNetworkSupport"
NOT_DECLARED = (UR, ("node(s) didn't match Pod's required features",))
ON_HOST_NETWORK = {"hostNetwork": True, "hostUsers": False}


def _declaring(name: str, *features: str) -> Json:
    made = node(name)
    made["status"]["declaredFeatures"] = list(features)
    return made


@pytest.mark.parametrize(
    ("incoming", "refused"),
    [
        pytest.param(pod(), [], id="needs none"),
        pytest.param(pod(containers=[RESTARTS_ALL]), ["none", "network"], id="a container restarts all"),
        pytest.param(
            pod(spec={"initContainers": [RESTARTS_ALL]}), ["none", "network"], id="an init container does"
        ),
        pytest.param(pod(spec=ON_HOST_NETWORK), ["none", "restart"], id="host network without host users"),
        pytest.param(pod(spec={"hostNetwork": True}), [], id="host network, users not said"),
        pytest.param(pod(spec={"hostUsers": False}), [], id="no host users, own network"),
        pytest.param(
            pod(containers=[RESTARTS_ALL], spec=ON_HOST_NETWORK),
            ["none", "restart", "network"],
            id="needs both",
        ),
    ],
)
def test_a_feature_that_a_pod_needs_must_be_declared(incoming: Json, refused: list[str]):
    subject = ProductSubject(None)
    subject.apply(_declaring("none"))
    subject.apply(_declaring("restart", RESTART_FEATURE))
    subject.apply(_declaring("network", NETWORK_FEATURE, "SomethingElse"))
    subject.apply(_declaring("both", NETWORK_FEATURE, RESTART_FEATURE))
    by_node: Mapping[str, Json] = subject.evaluate(incoming)["filter"].get("NodeDeclaredFeatures", {})
    assert sorted(by_node) == sorted(refused)
    assert all((v["code"], tuple(v["reasons"])) == NOT_DECLARED for v in by_node.values())


@pytest.mark.parametrize(("gates", "admitted"), [([], True), (["a"], False), (["a", "b"], False)])
def test_a_pod_with_a_gate_is_not_tried(gates: list[str], admitted: bool):
    incoming = LiveCluster().pod(pod(spec={"schedulingGates": [{"name": gate} for gate in gates]}))
    assert SchedulingGates().admits(incoming) is admitted


def test_a_plugin_disabled_at_filter_still_names_nodes_and_rejects_at_prefilter():
    """As kube-scheduler does with `plugins.filter.disabled: [NodeAffinity]`: node names still count, labels do not."""
    subject = ProductSubject(configuration(filters_off=["NodeAffinity"]))
    for name in ("a", "b"):
        subject.apply(node(name))
    named = node_term("absent", named=["in b"])
    assert subject.evaluate(pod(affinity=affinity(node_required=[named])))["feasible"] == ["b"]
    contradiction = node_term(named=["in a", "in b"])
    refused = subject.evaluate(pod(affinity=affinity(node_required=[contradiction])))
    assert refused["message"] == f"0/2 nodes are available: pod affinity terms conflict. {not_helpful(2)}"
    nowhere = subject.evaluate(pod(affinity=affinity(node_required=[node_term(named=["in c"])])))
    why = "2 node(s) didn't satisfy plugin(s) [NodeAffinity]"
    assert nowhere["message"] == f"0/2 nodes are available: {why}. {not_helpful(2)}"
