"""Pods and nodes for queue tests: decoded from the JSON an API server would send, only what matters spelled out."""

from collections.abc import Mapping, Sequence

import msgspec

from scheduler.engine.model.nodes import Node, decode_node
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod

_DECODER = PodDecoder()


def pod(
    name: str,
    *,
    namespace: str = "default",
    priority: int | None = None,
    labels: Mapping[str, str] | None = None,
    gates: Sequence[str] = (),
    tolerations: Sequence[str] = (),
    requests: Mapping[str, str] | None = None,
    profile: str = "default-scheduler",
    claims: Sequence[str] = (),
    ephemeral: Sequence[str] = (),
) -> Pod:
    """Return a pending pod whose UID is its name, with a volume for each claim and each ephemeral volume's name."""
    document = {
        "metadata": {"uid": name, "namespace": namespace, "name": name, "labels": labels or {}},
        "spec": {
            "schedulerName": profile,
            "priority": priority,
            "schedulingGates": [{"name": gate} for gate in gates],
            "tolerations": [{"key": key, "operator": "Exists"} for key in tolerations],
            "containers": [{"name": "main", "image": "app", "resources": {"requests": requests or {}}}],
            "volumes": [
                *({"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims),
                *({"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": {}}}} for name in ephemeral),
            ],
        },
    }
    return _DECODER.decode(msgspec.json.encode(document))


def node(
    name: str = "n1",
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    unschedulable: bool = False,
    cpu: str = "4",
    image: str = "app",
    features: Sequence[str] = (),
) -> Node:
    """Return a node."""
    document = {
        "metadata": {"uid": name, "name": name, "labels": labels or {}},
        "spec": {
            "unschedulable": unschedulable,
            "taints": [{"key": key, "effect": "NoSchedule"} for key in taints],
        },
        "status": {
            "allocatable": {"cpu": cpu},
            "images": [{"names": [image], "sizeBytes": 1}],
            "declaredFeatures": list(features),
        },
    }
    return decode_node(msgspec.json.encode(document))
