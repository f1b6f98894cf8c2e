"""The pods and workloads that the arguments of `explain` name, in kubectl's forms and in those of its own output."""

from __future__ import annotations

from collections.abc import Container, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from scheduler.engine.model.pods import Pod
from scheduler.errors import SettingsError
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.explain.workloads import KINDS_AS_WRITTEN, Workload, kind_of, workload_of

_EXPECTED: Final = "POD, NAMESPACE/POD, or a workload such as deploy/NAME; use -f FILE to explain a manifest"
#: What kubectl calls kinds whose objects are no workloads.
_NO_WORKLOADS: Final = (
    *("svc", "service", "services", "ing", "ingress", "cm", "configmap", "configmaps", "secret", "secrets"),
    *("no", "node", "nodes", "ns", "namespace", "namespaces", "cj", "cronjob", "cronjobs"),
    *("pv", "pvc", "pdb", "hpa"),
)


class Subject(NamedTuple):
    """A pod, or all pods of a workload."""

    kind: str
    namespace: str
    name: str

    @property
    def is_pod(self) -> bool:
        """Whether it is one pod."""
        return self.kind == "Pod"

    def pods(self, cluster: LoadedCluster) -> Sequence[Pod]:
        """Return the workload's pods. A ReplicaSet of a Deployment is one too."""
        return [pod for pod in cluster.pods.values() if self._has(pod)]

    def _has(self, pod: Pod) -> bool:
        if pod.namespace != self.namespace:
            return False
        owner = pod.owner
        is_owned = owner is not None and (owner.kind, owner.name) == (self.kind, self.name)
        return is_owned or workload_of(pod) == Workload(*self)


def parse_subject(text: str, namespace: str) -> Subject:
    """Return what an argument names; `namespace` is that of arguments which name none. Raises SettingsError."""
    parts = text.split("/")
    if not all(parts) or len(parts) > 3:
        raise SettingsError("POD", "", repr(text), _EXPECTED)
    kind = kind_of(parts[-2]) if len(parts) > 1 else "Pod"
    if len(parts) == 3 and kind is None:
        raise SettingsError("POD", "", repr(text), _EXPECTED)
    if kind is None or len(parts) == 3:
        namespace = parts[0]
    return Subject(kind or "Pod", namespace, parts[-1])


def not_found(text: str, subject: Subject, stated: str | None, namespaces: Container[str]) -> str:
    """
    Return why an argument names no pod; what stands before its slash may have been meant as a kind.

    `stated` is the namespace of -n, `namespaces` are those of the cluster.
    """
    prefix, name = subject.namespace, subject.name
    if text == f"{prefix}/{name}" and kind_of(prefix) is None and prefix not in namespaces:
        alike = get_close_matches(prefix, KINDS_AS_WRITTEN, n=1)
        if prefix in _NO_WORKLOADS:
            return f"{prefix}: no kind of workload; expected {_EXPECTED}"
        if alike:
            meant = Workload(KINDS_AS_WRITTEN[alike[0]], "", name).text
            return f"{prefix}: no kind of workload; did you mean {meant}?"
        if stated is not None and stated != prefix:
            return f"there is no pod {name} in namespace {prefix}, and {prefix} is no kind of workload"
    what = f"pod {name}" if subject.is_pod else f"pod of {subject.kind} {name}"
    return f"there is no {what} in namespace {prefix}"
