"""A snapshot or a recording has exactly what scheduling reads, and no secrets."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
import yaml

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceClass, DeviceKind
from scheduler.engine.model.nodes import decode_node
from scheduler.tools.explain.formats.recording_file import recorded_fields
from tests.support import build, device_documents, storage_objects
from tests.support.json_cluster import decoded, encoded
from tests.tools.explain.random_clusters import random_cluster

#: Stands wherever a secret or the name of one could be.
SECRET = "s3cr3t"

FULL_POD: dict[str, Any] = yaml.safe_load("""
apiVersion: v1
kind: Pod
metadata:
  {name: p, namespace: default, uid: u, labels: {app: web}, managedFields: [{manager: s3cr3t}], finalizers: [s3cr3t]}
spec:
  schedulerName: affinity-scheduler
  serviceAccountName: s3cr3t
  imagePullSecrets: [{name: s3cr3t}]
  hostAliases: [{ip: 1.2.3.4, hostnames: [s3cr3t]}]
  securityContext: {sysctls: [{name: x, value: s3cr3t}]}
  initContainers: [{name: i, image: i, env: [{name: s3cr3t, value: s3cr3t}]}]
  containers:
  - name: c
    image: pause
    command: [s3cr3t]
    args: [s3cr3t]
    workingDir: s3cr3t
    env:
    - {name: PASSWORD, value: s3cr3t}
    - {name: TOKEN, valueFrom: {secretKeyRef: {name: s3cr3t, key: s3cr3t}}}
    envFrom: [{secretRef: {name: s3cr3t}}, {configMapRef: {name: s3cr3t}}]
    ports: [{containerPort: 80, hostPort: 80, name: s3cr3t}]
    volumeMounts: [{name: s3cr3t, mountPath: s3cr3t}]
    livenessProbe: {httpGet: {httpHeaders: [{name: A, value: s3cr3t}]}}
    lifecycle: {preStop: {exec: {command: [s3cr3t]}}}
    resources: {requests: {cpu: "1"}, limits: {cpu: "2"}}
  volumes:
  - {name: s3cr3t, secret: {secretName: s3cr3t}}
  - {name: s3cr3t, projected: {sources: [{secret: {name: s3cr3t}}]}}
  - {name: s3cr3t, csi: {driver: d, nodePublishSecretRef: {name: s3cr3t}}}
  - {name: s3cr3t, configMap: {name: s3cr3t}}
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: disk, rbd: {image: i, monitors: [m], secretRef: {name: s3cr3t}, keyring: s3cr3t}}
  - {name: scratch, ephemeral: {volumeClaimTemplate: {metadata: {annotations: {a: s3cr3t}}}}}
status:
  phase: Pending
  message: s3cr3t
  podIP: s3cr3t
  containerStatuses: [{name: c, containerID: s3cr3t, state: {terminated: {message: s3cr3t}}}]
""")
FULL_POD["metadata"] |= {
    "annotations": {
        "kubectl.kubernetes.io/last-applied-configuration": SECRET,
        f"{SECRET}/x": "y",
        "affinity-scheduler.io/affinity": "{}",
    },
    "ownerReferences": [build.owned_by("ReplicaSet", "web-1")],
}
FULL_POD["status"]["conditions"] = [
    build.unscheduled("0/1 nodes"),
    {"type": "Ready", "status": "False", "message": SECRET, SECRET: SECRET},
]


def test_no_secret_of_a_pod_is_in_the_file() -> None:
    """The pod has one in every place that may have one."""
    before = copy.deepcopy(FULL_POD)
    found = recorded_fields("Pod", FULL_POD)
    assert before == FULL_POD
    assert SECRET not in json.dumps(found)
    assert found["status"]["conditions"][0] == FULL_POD["status"]["conditions"][0]  # type: ignore[index]  # JSON
    assert found["spec"]["volumes"] == [  # type: ignore[index]  # JSON
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "disk", "rbd": {"image": "i", "monitors": ["m"]}},
        {"name": "scratch", "ephemeral": {}},
    ]


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        (
            "Node",
            {
                "metadata": {
                    "name": "n",
                    "annotations": {"a": SECRET},
                    "managedFields": [{"manager": SECRET}],
                },
                "spec": {"providerID": SECRET, "podCIDR": SECRET},
                "status": {"addresses": [{"address": SECRET}], "nodeInfo": {"machineID": SECRET}},
            },
        ),
        ("Namespace", {"metadata": {"annotations": {"a": SECRET}}, "spec": {"finalizers": [SECRET]}}),
        ("Service", {"metadata": {"annotations": {"a": SECRET}}, "spec": {"externalName": SECRET}}),
        ("StatefulSet", {"spec": {"template": FULL_POD, "selector": {"x": SECRET}}}),
        ("ReplicaSet", {"spec": {"template": FULL_POD}}),
        ("ReplicationController", {"spec": {"template": FULL_POD}}),
    ],
)
def test_no_secret_of_another_object_is_in_the_file(kind: str, document: build.Json) -> None:
    """Pod templates of workloads have the same places."""
    assert SECRET not in json.dumps(recorded_fields(kind, document))


def test_the_lists_of_the_file_have_the_names_that_earlier_versions_gave_them() -> None:
    """And recordings name the kinds as they did: old files are read."""
    names = (
        "Node:nodes Namespace:namespaces Pod:pods Service:services ReplicaSet:replicaSets"
        " ReplicationController:replicationControllers StatefulSet:statefulSets StorageClass:storageClasses"
        " PersistentVolume:persistentVolumes PersistentVolumeClaim:persistentVolumeClaims CSINode:csiNodes"
        " CSIDriver:csiDrivers CSIStorageCapacity:csiStorageCapacities VolumeAttachment:volumeAttachments"
        " DeviceClass:deviceClasses DeviceTaintRule:deviceTaintRules ResourceSlice:resourceSlices"
        " ResourceClaim:resourceClaims PodDisruptionBudget:podDisruptionBudgets"
        " PodGroup.v1alpha2.scheduling.k8s.io:podGroups PodGroup.v1beta1.scheduling.k8s.io:podGroupsV1beta1"
        " PodGroup.v1alpha1.scheduling.x-k8s.io:coschedulingPodGroups"
        " Topology.v1beta1.kueue.x-k8s.io:topologiesV1beta1 Topology.v1beta2.kueue.x-k8s.io:topologies"
        " ResourceFlavor.v1beta1.kueue.x-k8s.io:resourceFlavorsV1beta1"
        " ResourceFlavor.v1beta2.kueue.x-k8s.io:resourceFlavors"
    )
    assert {row.kind: row.section for row in KINDS.values()} == dict(
        each.split(":") for each in names.split()
    )


@pytest.mark.parametrize("seed", range(40))
def test_an_object_in_the_file_decodes_as_the_whole_object(seed: int) -> None:
    """The fields left out do not matter to scheduling."""
    cluster, subject = random_cluster(seed)
    for pod in [*cluster.pods, subject]:
        whole, reduced = decoded(pod), decoded(recorded_fields("Pod", pod))
        assert _facts(reduced) == _facts(whole)
    for node in cluster.nodes:
        assert decode_node(encoded(recorded_fields("Node", node))) == decode_node(encoded(node))
    for namespace in cluster.namespaces:
        decode, kept = KINDS["Namespace"].decode, recorded_fields("Namespace", namespace)
        assert decode(encoded(kept)) == decode(encoded(namespace))


def test_why_a_pod_waits_is_in_the_file() -> None:
    pod = build.pod("p")
    pod["status"] |= {"nominatedNodeName": "n", "conditions": [build.unscheduled("0/1 nodes")]}
    before, after = decoded(pod), decoded(recorded_fields("Pod", pod))
    assert after.scheduled_condition == before.scheduled_condition is not None
    assert after.nominated_node_name == "n"


def test_selectors_of_workloads_are_in_the_file() -> None:
    for kind, document in (
        ("Service", build.service("s", {"app": "web"})),
        ("ReplicaSet", build.replica_set("s", build.selector("app=web", "tier in a,b"))),
        ("StatefulSet", build.stateful_set("s", build.selector("app=web"))),
    ):
        decode = KINDS[kind].decode
        assert decode(encoded(recorded_fields(kind, document))) == decode(encoded(document))


@pytest.mark.parametrize(
    "document",
    [
        storage_objects.claim(
            "c",
            "s",
            volume="v",
            node="a",
            owner="u",
            terminating=True,
            selector={"matchLabels": {"a": "b"}},
            volumeMode="Block",
        ),
        storage_objects.claim("c", phase="Lost"),
        storage_objects.volume(
            "v",
            "s",
            terms=[build.node_term("x in y")],
            claimed_by="default/c",
            claim_uid="u",
            labels={"a": "b"},
        ),
        storage_objects.volume("v", source={"awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}}),
        storage_objects.storage_class("s", topologies=[{"zone": ["a", "b"]}]),
        storage_objects.csi_node("a", migrated=["kubernetes.io/aws-ebs"], d=3, e=None),
        storage_objects.csi_driver("d", tracks_capacity=True),
        storage_objects.capacity("p", "s", topology={}, largest="1Gi"),
        storage_objects.capacity("p", "s", topology={"matchLabels": {"a": "b"}}),
        storage_objects.attachment("x", "v", "a"),
    ],
    ids=lambda document: document["kind"],
)
def test_a_part_of_volumes_in_the_file_decodes_as_the_whole(document: build.Json) -> None:
    kind = document["kind"]
    secret = copy.deepcopy(document)
    secret["metadata"]["annotations"] = {**document["metadata"].get("annotations", {}), "a": SECRET}
    secret["parameters"] = {"secret": SECRET}
    if "csi" in document.get("spec", {}):
        secret["spec"]["csi"] |= {"nodeStageSecretRef": {"name": SECRET}, "volumeAttributes": {"a": SECRET}}
    reduced = recorded_fields(kind, secret)
    assert SECRET not in json.dumps(reduced)
    assert KINDS[kind].decode(encoded(reduced)) == KINDS[kind].decode(encoded(document))


def test_parameters_for_a_driver_of_devices_are_not_in_the_file() -> None:
    """They are the driver's own, and may be anything."""
    config = [{"opaque": {"driver": "d", "parameters": {"token": SECRET}}}]
    of_class = {"metadata": {"name": "c"}, "spec": {"config": config}}
    claim = device_documents.resource_claim("c", allocation={"devices": {"config": config}})
    claim["spec"]["devices"]["config"] = config
    for kind, document in ((DeviceKind.CLASS, of_class), (DeviceKind.CLAIM, claim)):
        reduced = recorded_fields(kind, document)
        assert SECRET not in json.dumps(reduced)
        read = KINDS[kind].decode(encoded(reduced))
        assert isinstance(read, (DeviceClass, ResourceClaim))
        (kept,) = read.config
        assert msgspec.json.decode(msgspec.json.encode(kept)) == {"opaque": {"driver": "d"}}


def test_a_claim_of_devices_in_the_file_has_its_version() -> None:
    """Claims without one count as not created, and of two claims with one device the older one keeps it."""
    document = device_documents.resource_claim("c", allocation={})
    document["metadata"]["resourceVersion"] = "7"
    reduced = KINDS[DeviceKind.CLAIM].decode(encoded(recorded_fields(DeviceKind.CLAIM, document)))
    assert reduced == KINDS[DeviceKind.CLAIM].decode(encoded(document))
    assert isinstance(reduced, ResourceClaim)
    assert reduced.resource_version == "7"


def _facts(pod: Any) -> list[Any]:
    """Return all fields of a pod and of its spec, since specs are compared by identity."""
    spec = pod.spec
    own = [getattr(pod, name) for name in pod.__dataclass_fields__ if name != "spec"]
    return own + [getattr(spec, name) for name in spec.__dataclass_fields__]
