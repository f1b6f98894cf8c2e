"""
Defaults of pods and of the templates of pods, for the fields that something here or in a scheduler reads.

Every function changes its argument.
Source: pkg/apis/core/v1/defaults.go and the admission plugin DefaultTolerationSeconds (kubernetes 1.36).
"""

from typing import Final

from scheduler.sandbox.devcluster.kinds import JsonObject

_NOT_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EVICTION_AFTER_S: Final = 300
_POD: Final = {
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}


def default_pod_spec(spec: JsonObject) -> None:
    """Fill in the spec of a pod or of a pod template."""
    for name, value in _POD.items():
        spec.setdefault(name, value)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for port in container.get("ports") or []:
            port.setdefault("protocol", "TCP")
            if spec.get("hostNetwork") and port.get("containerPort"):
                port.setdefault("hostPort", port["containerPort"])
        resources = container.get("resources") or {}
        if limits := resources.get("limits"):
            # A limit is the default of its request.
            resources["requests"] = {**limits, **(resources.get("requests") or {})}
    for volume in spec.get("volumes") or []:
        if isinstance(volume.get("ephemeral"), dict):
            default_claim_spec(
                volume["ephemeral"].setdefault("volumeClaimTemplate", {}).setdefault("spec", {})
            )


def default_claim_spec(spec: JsonObject) -> None:
    """Fill in the spec of a claim's template."""
    spec.setdefault("volumeMode", "Filesystem")


def add_default_tolerations(spec: JsonObject) -> None:
    """Add tolerations of five minutes for nodes that are not ready or unreachable, unless the pod has its own."""
    tolerations = list(spec.get("tolerations") or [])
    for key in _NOT_READY:
        said = any(
            one.get("key") in (key, None, "") and one.get("effect") in ("NoExecute", None, "")
            for one in tolerations
        )
        if not said:
            added = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**added, "tolerationSeconds": _EVICTION_AFTER_S})
    spec["tolerations"] = tolerations


def default_template(spec: JsonObject) -> None:
    """Fill in the pod template in the spec of a workload."""
    if template := spec.get("template"):
        template.setdefault("metadata", {})
        default_pod_spec(template.setdefault("spec", {}))
