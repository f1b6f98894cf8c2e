"""Plugins that the recordings do not cover: gates, declared features, and unsupported features."""

from collections.abc import Mapping

import pytest

from scheduler.engine.plugins.scheduling_gates import SchedulingGates
from tests.conformance.product import LiveCluster, ProductSubject
from tests.support.build import Json, affinity, configuration, node, node_term, pod, toleration
from tests.support.cases.row import UR
from tests.support.messages import not_helpful

NOT_READ = "but affinity-scheduler reads no resource.k8s.io/v1 here"


@pytest.mark.parametrize(
    ("claims", "needs"),
    [
        pytest.param(("gpu",), 'resourceClaim "gpu"', id="one"),
        pytest.param(("gpu", "nic"), 'resourceClaim "gpu" and resourceClaim "nic"', id="two"),
        pytest.param(
            ("gpu", "nic", "tpu"),
            'resourceClaim "gpu", resourceClaim "nic" and resourceClaim "tpu"',
            id="three",
        ),
    ],
)
def test_an_unsupported_feature_is_named_in_the_message(claims: tuple[str, ...], needs: str):
    subject = ProductSubject(None)
    subject.apply(node("a"))
    decision = subject.evaluate(pod(spec={"resourceClaims": [{"name": name} for name in claims]}))
    reason = f"pod needs {needs}, {NOT_READ}"
    assert decision["prefilter"]["Unsupported"] == {"code": UR, "reasons": [reason]}
    assert decision["message"] == f"0/1 nodes are available: {reason}. {not_helpful(1)}"


def test_a_pod_beyond_a_limit_is_refused_with_the_limit():
    subject = ProductSubject(None)
    subject.apply(node("a"))
    decision = subject.evaluate(pod(tolerations=[toleration(f"k{each}") for each in range(1025)]))
    (reason,) = decision["prefilter"]["Unsupported"]["reasons"]
    what = "1025 tolerations (1024 at most)"
    assert reason == f"pod has {what}, which is more than affinity-scheduler decides on"


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
