"""
Objects as an API server sends them on a watch: with defaults, managedFields, conditions and a token volume; a pod
has about 3 KB, as from a Deployment. Built once for each template, then filled in.
"""

from __future__ import annotations

import json
from typing import Final, Literal

from tests.bench.templates import Planned, Template
from tests.support.build import Json

#: The events of a pod's life on the watch.
Stage = Literal["pending", "bound", "running"]

_CREATED: Final = "2026-01-01T00:00:00Z"
_TOKEN: Final = "kube-api-access-x7k2p"
_MOUNT: Final = {
    "name": _TOKEN,
    "readOnly": True,
    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
}
_DEFAULTS: Final[Json] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "serviceAccount": "default",
    "securityContext": {},
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "tolerations": [
        {
            "key": f"node.kubernetes.io/{what}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for what in ("not-ready", "unreachable")
    ],
    "volumes": [
        {
            "name": _TOKEN,
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {
                        "configMap": {
                            "name": "kube-root-ca.crt",
                            "items": [{"key": "ca.crt", "path": "ca.crt"}],
                        }
                    },
                ],
                "defaultMode": 420,
            },
        }
    ],
}
_CONTAINER: Final[Json] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
    "volumeMounts": [_MOUNT],
}


class Served:
    """Watch lines for planned pods and other objects, each with a resourceVersion of its own."""

    def __init__(self, scheduler: str) -> None:
        self._scheduler = scheduler
        self._texts: dict[tuple[Template, str, Stage, str], str] = {}
        self._version = 0

    def next_version(self) -> int:
        """Return a resourceVersion that no object has."""
        self._version += 1
        return self._version

    def pod(
        self, planned: Planned, stage: Stage, *, node: str = "", change: str = "ADDED", version: int = 0
    ) -> bytes:
        """Return the watch line of the pod at this stage of its life; `version` 0 for a new one."""
        version = version or self.next_version()
        key = (planned.template, planned.namespace, stage, change)
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = _line(change, _pod(planned, stage, self._scheduler))
        return (
            text.replace("@NAME@", planned.name)
            .replace("@NODE@", node or planned.node)
            .replace("@VERSION@", str(version))
            .encode()
        )

    def object(self, document: Json, *, change: str = "ADDED") -> bytes:
        """Return the watch line of any other object."""
        meta = {
            **document["metadata"],
            "uid": f"uid-{document['metadata']['name']}",
            "resourceVersion": str(self.next_version()),
            "creationTimestamp": _CREATED,
        }
        return _line(change, {**document, "metadata": meta}).encode()

    def bookmark(self, kind: str) -> bytes:
        """Return the bookmark that ends the initial events."""
        meta = {
            "resourceVersion": str(self.next_version()),
            "annotations": {"k8s.io/initial-events-end": "true"},
        }
        return _line("BOOKMARK", {"kind": kind, "metadata": meta}).encode()


def object_of(line: bytes) -> bytes:
    """Return the object of a watch line."""
    return line[line.index(b'"object":') + len(b'"object":') : -1]


def _line(change: str, document: Json) -> str:
    return json.dumps({"type": change, "object": document}, separators=(",", ":"))


def _pod(planned: Planned, stage: Stage, scheduler: str) -> Json:
    """Return the object with placeholders where pods of the template differ."""
    node = "" if stage == "pending" else "@NODE@"
    made = planned.template.pod(planned.namespace, "@NAME@", node=node, scheduler=scheduler)
    made["metadata"] |= {
        "generateName": f"{planned.template.name}-",
        "uid": f"0d4b6c2e-5a1f-4b7e-9c3d-{planned.namespace}-@NAME@",
        "resourceVersion": "@VERSION@",
        "generation": 1,
        "creationTimestamp": _CREATED,
        "ownerReferences": [_owner(planned.template)],
        "managedFields": [_managed("kube-controller-manager", made["spec"])],
    }
    made["spec"] |= {**_DEFAULTS, "volumes": [*made["spec"].get("volumes", ()), *_DEFAULTS["volumes"]]}
    made["spec"]["containers"] = [{**container, **_CONTAINER} for container in made["spec"]["containers"]]
    made["status"] = _status(stage)
    return made


def _owner(template: Template) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{template.name}-5d8f7c",
        "uid": "6f1d2c3b-0000-4000-8000-000000000000",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _managed(manager: str, spec: Json) -> Json:
    fields: Json = {f"f:{name}": {} for name in (*spec, *_DEFAULTS)}
    fields["f:containers"] = {'k:{"name":"c"}': {f"f:{name}": {} for name in (".", "image", *_CONTAINER)}}
    owner: Json = {"f:ownerReferences": {".": {}, 'k:{"uid":"6f1d2c3b-0000-4000-8000-000000000000"}': {}}}
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _CREATED,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:generateName": {}, "f:labels": {".": {}}, **owner}, "f:spec": fields},
    }


def _status(stage: Stage) -> Json:
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": _CREATED}
    ]
    if stage == "pending":
        return {"phase": "Pending", "qosClass": "Burstable"}
    if stage == "bound":
        return {"phase": "Pending", "qosClass": "Burstable", "conditions": conditions}
    ready = [{**conditions[0], "type": kind} for kind in ("Initialized", "Ready", "ContainersReady")]
    running = {"name": "c", "ready": True, "started": True, "restartCount": 0, "image": "pause"}
    return {
        "phase": "Running",
        "qosClass": "Burstable",
        "conditions": [*conditions, *ready],
        "hostIP": "10.0.0.1",
        "podIP": "10.1.0.1",
        "podIPs": [{"ip": "10.1.0.1"}],
        "startTime": _CREATED,
        "containerStatuses": [{**running, "state": {"running": {"startedAt": _CREATED}}, "lastState": {}}],
    }
