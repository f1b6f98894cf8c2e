"""The pods and workloads that the arguments of `explain` name, in kubectl's forms and in those of its own output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from scheduler.engine.model.pods import Pod
from scheduler.errors import SettingsError
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.explain.workloads import Workload, kind_of, workload_of

_EXPECTED: Final = "POD, NAMESPACE/POD, or a workload such as deploy/NAME; use -f FILE to explain a manifest"


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
