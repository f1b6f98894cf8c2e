"""Which workload a pod belongs to, and how people name pods and workloads."""

from __future__ import annotations

from collections.abc import Container, Iterable
from difflib import get_close_matches
from typing import Final, NamedTuple

from scheduler.engine.model.pods import Pod
from scheduler.engine.model.revisions import deployment_of
from scheduler.errors import SettingsError
from scheduler.tools.explain.sentences import reason_in

#: kubectl's short names by kind.
_SHORT: Final = {
    "Pod": "pod",
    "Deployment": "deploy",
    "ReplicaSet": "rs",
    "ReplicationController": "rc",
    "StatefulSet": "sts",
    "DaemonSet": "ds",
    "Job": "job",
}
#: Kinds by what a user may write for them before a slash.
_KINDS_AS_WRITTEN: Final = {
    written: kind
    for kind, short in _SHORT.items()
    for written in (short, kind.lower(), f"{kind.lower()}s", "po" if kind == "Pod" else short)
}
#: Each pod of these has a spec of its own, with its node or its claims: those that were refused alike are alike.
_SPECS_DIFFER: Final = ("StatefulSet", "DaemonSet")
_EXPECTED: Final = "POD, NAMESPACE/POD, or a workload such as deploy/NAME; use -f FILE to explain a manifest"
#: What kubectl calls kinds whose objects are no workloads.
_NO_WORKLOADS: Final = (
    *("svc", "service", "services", "ing", "ingress", "cm", "configmap", "configmaps", "secret", "secrets"),
    *("no", "node", "nodes", "ns", "namespace", "namespaces", "cj", "cronjob", "cronjobs"),
    *("pv", "pvc", "pdb", "hpa"),
)


class OwningWorkload(NamedTuple):
    """What made a pod: its controller, or that one's Deployment; a pod without a controller itself."""

    kind: str
    namespace: str
    name: str

    @property
    def text(self) -> str:
        """Return such as `deploy/shop`, which `kind_of` reads; kinds that kubectl does not have keep their name."""
        return f"{_SHORT.get(self.kind, self.kind)}/{self.name}"

    @property
    def is_pod(self) -> bool:
        """Whether it is one pod."""
        return self.kind == "Pod"

    def has(self, pod: Pod) -> bool:
        """Return whether the pod is one of the workload's. A ReplicaSet of a Deployment has pods too."""
        if pod.namespace != self.namespace:
            return False
        owner = pod.owner
        is_owned = owner is not None and (owner.kind, owner.name) == (self.kind, self.name)
        return is_owned or workload_of(pod) == self


def workload_of(pod: Pod) -> OwningWorkload:
    """Return the pod's workload. The ReplicaSet of a Deployment is named after it and the pods' revision."""
    owner = pod.owner
    if owner is None:
        return OwningWorkload("Pod", pod.namespace, pod.name)
    if deployment := deployment_of(pod):
        return OwningWorkload("Deployment", pod.namespace, deployment)
    return OwningWorkload(owner.kind, pod.namespace, owner.name)


def alike(pods: Iterable[Pod]) -> list[list[Pod]]:
    """Return the pods in groups that one explanation is about, by the oldest pod of each, which is its first."""
    groups: dict[tuple[object, ...], list[Pod]] = {}
    # RFC 3339 in UTC, as the API server writes it: the order of texts is the order of times.
    for pod in sorted(pods, key=lambda pod: (pod.created, pod.key)):
        kind, namespace, name = workload_of(pod)
        spec = _last_reason(pod) if kind in _SPECS_DIFFER else id(pod.spec)
        # Rules of other pods select some labels and not others; those of one controller's pods are alike.
        own = (kind, namespace, frozenset(pod.labels.items()) if pod.owner is None else name)
        groups.setdefault((*own, spec, pod.scheduler_name, pod.gates, pod.priority), []).append(pod)
    return list(groups.values())


def _last_reason(pod: Pod) -> str:
    """Return why its scheduler last put the pod back, as all pods have it that wait for the same."""
    condition = pod.scheduled_condition
    return "" if condition is None or condition.status != "False" else reason_in(condition.message)


def kind_of(text: str) -> str | None:
    """Return the kind that `deploy`, `deployments` or `deployment.apps` means; None if unknown, such as a namespace."""
    if text[:1].isupper():
        return text
    return _KINDS_AS_WRITTEN.get(text.partition(".")[0])


def parse_workload(text: str, namespace: str) -> OwningWorkload:
    """Return what an argument names; `namespace` is that of arguments which name none. Raises SettingsError."""
    parts = text.split("/")
    kind = kind_of(parts[-2]) if len(parts) > 1 else "Pod"
    if not all(parts) or len(parts) > 3 or (len(parts) == 3 and kind is None):
        raise SettingsError("POD", "", repr(text), _EXPECTED)
    if kind is None or len(parts) == 3:
        namespace = parts[0]
    return OwningWorkload(kind or "Pod", namespace, parts[-1])


def why_not_found(text: str, named: OwningWorkload, stated: str | None, namespaces: Container[str]) -> str:
    """Return why an argument names no pod: its prefix may be meant as a kind. `stated`: the namespace of -n."""
    prefix, name = named.namespace, named.name
    if text == f"{prefix}/{name}" and kind_of(prefix) is None and prefix not in namespaces:
        alike = get_close_matches(prefix, _KINDS_AS_WRITTEN, n=1)
        if prefix in _NO_WORKLOADS:
            return f"{prefix}: no kind of workload; expected {_EXPECTED}"
        if alike:
            meant = OwningWorkload(_KINDS_AS_WRITTEN[alike[0]], "", name).text
            return f"{prefix}: no kind of workload; did you mean {meant}?"
        if stated is not None and stated != prefix:
            return f"there is no pod {name} in namespace {prefix}, and {prefix} is no kind of workload"
    what = f"pod {name}" if named.is_pod else f"pod of {named.kind} {name}"
    return f"there is no {what} in namespace {prefix}"
