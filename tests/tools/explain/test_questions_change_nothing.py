"""After every question the cluster is as it was before it, by every column and object."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT, GroupKey, GroupKind
from scheduler.engine.model.stimuli import NodeSeen, ObjectSeen, PodGone, PodSeen
from scheduler.engine.state.audit import differences
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.explainer import explain
from scheduler.tools.explain.formats.manifests import parse_manifest
from scheduler.tools.explain.scenarios import simulate_manifests
from scheduler.tools.explain.simulation.groups import count_more
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.shadow.recent_changes import RecentChanges
from tests.engine.core.test_device_taint_rules import rule
from tests.engine.state.test_copy import TAKEN_OVER, contents, holders
from tests.support import build
from tests.support.build import Json
from tests.support.device_documents import DRIVER, device_class, device_slice, resource_claim, using_claims
from tests.support.driving import NAME
from tests.support.json_cluster import Cluster, decoded, encoded
from tests.support.workloads import workload
from tests.tools.explain.random_clusters import random_cluster, random_node
from tests.tools.explain.test_devices import held


def everything(state: ClusterState) -> Any:
    """Return each object, and all that is counted of them."""
    devices, known = state.devices, contents(vars(state))
    return {
        **{name: known[name] for name in TAKEN_OVER},
        "namespaces": dict(state.label_sets.namespace_labels),
        "nodes": [node for node in state.nodes.nodes if node is not None],
        "placed": {uid: (one.pod, one.row, one.assumed) for uid, one in state.placed.items()},
        "nominated": {name: sorted(pod.uid for pod in pods) for name, pods in state.nominated.by_node()},
        "volumes": {(one.kind, one.key): one for one in state.volumes.objects()},
        # Slices are compared by identity.
        "devices": {(one.kind, one.key): repr(one) for one in devices.objects()},
        "with the taints of rules": {one.key: repr(one) for one in devices.slices()},
        "allocated": devices.allocated.content(),
        "order of allocations": sorted(devices._allocated_at.items(), key=lambda entry: (entry[1], entry[0])),
        "allocated twice": devices.n_allocated_twice,
        "assumed": (holders(devices), holders(state.volumes)),
        "differences": differences(state),
    }


def drawn_cluster(seed: int) -> tuple[Cluster, Json]:
    """Return a random cluster with devices, some of which two claims have, and a pod with a claim."""
    chance = random.Random(seed)
    cluster, subject = random_cluster(seed)
    cluster.devices = [device_class(), *([rule("r", driver=DRIVER)] if chance.random() < 0.3 else [])]
    for number, node in enumerate(cluster.nodes):
        name = node["metadata"]["name"]
        cluster.devices.append(device_slice(name, chance.randint(1, 2)))
        on_node = [pod for pod in cluster.pods if pod["spec"].get("nodeName") == name]
        for holder in chance.sample(on_node, min(len(on_node), 2)):
            claim = f"h{number}-{holder['metadata']['name']}"
            holder["spec"].update(using_claims(claim))
            cluster.devices.append(held(claim, holder, f"gpu-{chance.randint(0, 1)}", pool=name))
    subject["spec"].update(using_claims("c"))
    wanted = resource_claim("c", count=chance.randint(1, 2))
    wanted["metadata"]["namespace"] = subject["metadata"]["namespace"]
    cluster.devices.append(wanted)
    return cluster, subject


def _explained(cluster: Cluster, subject: Json, state: ClusterState, _chance: random.Random) -> None:
    explain(cluster.request(subject, state))


def _more_groups(_cluster: Cluster, _subject: Json, state: ClusterState, chance: random.Random) -> None:
    """Each group has claims of volumes and of devices."""
    loaded = LoadedCluster(default_settings(), state)
    loaded.create_claim_template(template())
    manifest = parse_manifest(
        group_with_claims("g"), namespace="default", semantics=loaded.settings.semantics
    )
    count_more(loaded, GroupKey(GroupKind.OWN, "default", "g"), [(manifest, 1)], chance)


def _shadowed(cluster: Cluster, subject: Json, state: ClusterState, chance: random.Random) -> None:
    """Another scheduler may not have known of changed nodes, pods, claims, rules and slices."""
    recent, placed = RecentChanges(state, window_s=9.0), list(state.placed)
    documents = chance.sample(cluster.devices, min(len(cluster.devices), 3))
    for document in (*documents, rule("late", driver=DRIVER)):
        seen = KINDS[document["kind"]].decode(encoded(document))
        seen = replace(seen, resource_version="7")
        freed = replace(seen, allocation=None) if isinstance(seen, ResourceClaim) else seen
        recent.apply(ObjectSeen(freed), 0.0)
    recent.apply(NodeSeen(decode_node(encoded(random_node(chance, 0)))), 0.0)
    recent.apply(PodSeen(replace(decoded(subject), node_name="n0")), 0.0)
    for uid in placed[:1]:
        recent.apply(PodGone(uid), 0.0)
    before = everything(state)
    assert list(recent.explains(lambda: differences(state) != [], 0.0)) == []
    assert everything(state) == before


def template() -> Json:
    claim = resource_claim("t")
    return {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": claim["spec"]}}


def group_with_claims(name: str) -> Json:
    """Return a StatefulSet of one pod that is a group and has a claim of each kind."""
    of_devices = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    spec = {"schedulerName": NAME, "resourceClaims": of_devices}
    labels = {"app": name, GROUP: name, MIN_COUNT: "1"}
    data = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {}}}
    pod = build.pod(cpu="100m", labels=labels, spec=spec)
    return workload("StatefulSet", name, pod, 1, volumeClaimTemplates=[data])


@pytest.mark.parametrize("question", [_explained, _more_groups, _shadowed])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_after_a_question_the_cluster_is_as_before(
    question: Callable[[Cluster, Json, ClusterState, random.Random], None], seed: int
) -> None:
    cluster, subject = drawn_cluster(seed)
    state = cluster.state()
    before = everything(state)
    question(cluster, subject, state, random.Random(seed))
    if question is not _shadowed:
        assert everything(state) == before
    assert differences(state) == []


def test_after_a_group_with_claims_as_many_more_of_another_fit() -> None:
    """Of five devices each of two groups takes one, and each further one."""
    devices = [device_class(), device_slice("n", 5)]
    cluster = LoadedCluster(default_settings(), Cluster([build.node("n")], devices=devices).state())
    cluster.create_claim_template(template())
    manifests = []
    for name in ("one", "two"):
        document = group_with_claims(name)
        del document["spec"]["volumeClaimTemplates"]
        semantics = cluster.settings.semantics
        manifests.append(parse_manifest(document, namespace="default", semantics=semantics))
    simulations = simulate_manifests(cluster, manifests, None, random.Random(1))
    assert [(each.n_placed, each.n_more_groups) for each in simulations] == [(1, 3), (1, 3)]
