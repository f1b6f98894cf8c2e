"""
Defaults of the API server, for the fields that something here or in a scheduler reads.

Every function changes its argument.
Source: pkg/apis/core/v1/defaults.go, pkg/apis/apps/v1/defaults.go and the admission plugin
DefaultTolerationSeconds (kubernetes 1.36).
"""

from typing import Final

from scheduler.sandbox.devcluster.kinds import JsonObject

_NOT_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EVICTION_AFTER_S: Final = 300


def default_pod_spec(spec: JsonObject) -> None:
    """Fill in the spec of a pod or of a pod template."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    for name in ("initContainers", "containers"):
        for container in spec.get(name) or []:
            _default_container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or []:
        for source in ("configMap", "secret", "projected"):
            if isinstance(volume.get(source), dict):
                volume[source].setdefault("defaultMode", 0o644)
        if isinstance(volume.get("ephemeral"), dict):
            template = volume["ephemeral"].setdefault("volumeClaimTemplate", {})
            template.setdefault("metadata", {})
            default_claim_spec(template.setdefault("spec", {}))
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])


def default_claim_spec(spec: JsonObject) -> None:
    """Fill in the spec of a claim or of a claim's template."""
    spec.setdefault("resources", {})
    spec.setdefault("volumeMode", "Filesystem")


def _default_container(container: JsonObject, *, host_network: bool) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = container.get("image") or ""
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    pinned = "@" in image or tag not in ("", "latest")
    container.setdefault("imagePullPolicy", "IfNotPresent" if pinned else "Always")
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
        if host_network and port.get("containerPort"):
            port.setdefault("hostPort", port["containerPort"])
    resources = container["resources"] or {}
    limits = resources.get("limits")
    if limits:
        # A limit is the default of its request.
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def add_default_tolerations(spec: JsonObject) -> None:
    """Add tolerations of five minutes for nodes that are not ready or unreachable, unless the pod has its own."""
    tolerations = spec.get("tolerations") or []
    for key in _NOT_READY:
        said = any(
            one.get("key") in (key, None, "") and one.get("effect") in ("NoExecute", None, "")
            for one in tolerations
        )
        if not said:
            added = {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _EVICTION_AFTER_S,
            }
            tolerations = [*tolerations, added]
    spec["tolerations"] = tolerations


def default_workload(obj: JsonObject) -> None:
    """Fill in the fields that Deployment, ReplicaSet, StatefulSet and ReplicationController share."""
    spec = obj.setdefault("spec", {})
    if spec.get("replicas") is None:
        spec["replicas"] = 1
    default_template(spec)


def default_template(spec: JsonObject) -> None:
    """Fill in the pod template in the spec of a workload."""
    template = spec.get("template")
    if template:
        template.setdefault("metadata", {})
        default_pod_spec(template.setdefault("spec", {}))


def default_deployment(obj: JsonObject) -> None:
    """Fill in a Deployment: its strategy, its history limit and its deadline."""
    default_workload(obj)
    _default_strategy(obj["spec"], "strategy", maxUnavailable="25%", maxSurge="25%")
    obj["spec"].setdefault("progressDeadlineSeconds", 600)


def _default_strategy(spec: JsonObject, name: str, **rolling: int | str) -> None:
    """Fill in how a workload replaces its pods; `rolling` are the defaults of a rolling update."""
    strategy = spec.setdefault(name, {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy["rollingUpdate"] = rolling | (strategy.get("rollingUpdate") or {})
    spec.setdefault("revisionHistoryLimit", 10)


def default_stateful_set(obj: JsonObject) -> None:
    """Fill in a StatefulSet: its policies."""
    default_workload(obj)
    spec = obj["spec"]
    spec.setdefault("podManagementPolicy", "OrderedReady")
    retained = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    spec.setdefault("persistentVolumeClaimRetentionPolicy", retained)
    _default_strategy(spec, "updateStrategy", partition=0)
    for claim in spec.get("volumeClaimTemplates") or []:
        claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}
        default_claim_spec(claim.setdefault("spec", {}))


def default_daemon_set(obj: JsonObject) -> None:
    """Fill in a DaemonSet: how it replaces pods."""
    spec = obj.setdefault("spec", {})
    default_template(spec)
    _default_strategy(spec, "updateStrategy", maxSurge=0, maxUnavailable=1)


def default_job(obj: JsonObject) -> None:
    """Fill in a Job: its counts and policies. Its selector is set by its strategy."""
    spec = obj.setdefault("spec", {})
    default_template(spec)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("manualSelector", False)
    policy = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", policy)
    spec.setdefault("suspend", False)


def default_cron_job(obj: JsonObject) -> None:
    """Fill in a CronJob: its policies and the history that it keeps."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("failedJobsHistoryLimit", 1)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("suspend", False)
    job = spec.setdefault("jobTemplate", {})
    job.setdefault("metadata", {})
    default_template(job.setdefault("spec", {}))


def default_network_policy(obj: JsonObject) -> None:
    """Fill in a NetworkPolicy: the directions that it rules, and the protocols of its ports."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("podSelector", {})
    spec.setdefault("policyTypes", ["Ingress", *(["Egress"] if spec.get("egress") else [])])
    for rule in [*(spec.get("ingress") or []), *(spec.get("egress") or [])]:
        for port in rule.get("ports") or []:
            port.setdefault("protocol", "TCP")


def default_autoscaler(obj: JsonObject) -> None:
    """Fill in a HorizontalPodAutoscaler: its least size."""
    obj.setdefault("spec", {}).setdefault("minReplicas", 1)


def default_replication_controller(obj: JsonObject) -> None:
    """Fill in a ReplicationController: it selects and carries the labels of its template."""
    default_workload(obj)
    labels = (obj["spec"].get("template") or {}).get("metadata", {}).get("labels")
    if labels:
        if not obj["spec"].get("selector"):
            obj["spec"]["selector"] = dict(labels)
        obj["metadata"].setdefault("labels", dict(labels))


def default_service(obj: JsonObject) -> None:
    """Fill in a Service: its type, affinity and ports. Its cluster IP is set by its strategy."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        if "port" in port:
            port.setdefault("targetPort", port["port"])
