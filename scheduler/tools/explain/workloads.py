"""Which workload a pod belongs to, and how commands name workloads."""

from __future__ import annotations

from typing import Final, NamedTuple

from scheduler.engine.model.pods import Pod
from scheduler.engine.model.revisions import REVISION_KEY

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
KINDS_AS_WRITTEN: Final = {
    written: kind
    for kind, short in _SHORT.items()
    for written in (short, kind.lower(), f"{kind.lower()}s", "po" if kind == "Pod" else short)
}


class Workload(NamedTuple):
    """What made a pod: its controller, or that one's Deployment; a pod without a controller itself."""

    kind: str
    namespace: str
    name: str

    @property
    def text(self) -> str:
        """Return such as `deploy/shop`, which `kind_of` reads; kinds that kubectl does not have keep their name."""
        return f"{_SHORT.get(self.kind, self.kind)}/{self.name}"


def workload_of(pod: Pod) -> Workload:
    """Return the pod's workload. The ReplicaSet of a Deployment is named after it and the pods' revision."""
    owner = pod.owner
    if owner is None:
        return Workload("Pod", pod.namespace, pod.name)
    revision = pod.labels.get(REVISION_KEY)
    if owner.kind == "ReplicaSet" and revision and owner.name.endswith(f"-{revision}"):
        return Workload("Deployment", pod.namespace, owner.name.removesuffix(f"-{revision}"))
    return Workload(owner.kind, pod.namespace, owner.name)


def kind_of(text: str) -> str | None:
    """Return the kind that a user means by `deploy`, `deployments` or `deployment.apps`; None for a namespace."""
    if text[:1].isupper():
        return text
    return KINDS_AS_WRITTEN.get(text.partition(".")[0])
