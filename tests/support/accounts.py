"""
The ServiceAccounts of the manifests on an embedded cluster, and a record of all that is asked in their names.

Every process of the product that runs beside an embedded cluster runs as its own account, with what its manifests
grant and no more. `RECORD` is judged when all tests have run: tests/manifests/test_used_rights.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import NamedTuple

from scheduler.devcluster.access.authentication import User
from scheduler.devcluster.access.rbac import Attributes
from scheduler.devcluster.cluster import DevCluster
from scheduler.devcluster.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    SERVICE_ACCOUNT,
    kind_of,
)
from tests.support.build import Json
from tests.support.cluster import kubeconfig_text
from tests.support.manifest_files import MANIFESTS, documents, resources

_INSTALLED = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Secret")


class Component(NamedTuple):
    """One program of the product, as its manifests install it."""

    folder: Path
    account: str
    namespace: str

    @property
    def user(self) -> str:
        """As the API server calls it."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"

    def objects(self) -> list[Json]:
        """Account, roles and bindings, in their namespaces as kustomize has them."""
        found = [each for each in resources(self.folder) if each["kind"] in _INSTALLED]
        for each in found:
            if not each["kind"].startswith("Cluster"):
                each["metadata"].setdefault("namespace", self.namespace)
            for subject in each.get("subjects", []):
                subject.setdefault("namespace", self.namespace)
        return found


COMPONENTS = {
    "scheduler": Component(MANIFESTS / "base", "affinity-scheduler", "kube-system"),
    "enforcer": Component(MANIFESTS / "enforcer", "affinity-scheduler-enforcer", "kube-system"),
    "webhook": Component(MANIFESTS / "webhook", "affinity-scheduler-webhook", "affinity-scheduler-webhook"),
}

#: Somebody's name, whether it was allowed, and the fields of the attributes.
Told = tuple[str, bool, tuple[str, ...]]


@dataclass
class Record:
    """What was asked in whose name, and what of it was refused."""

    granted: defaultdict[str, set[Attributes]] = field(default_factory=lambda: defaultdict(set))
    refused: defaultdict[str, set[Attributes]] = field(default_factory=lambda: defaultdict(set))
    #: Other processes of the same run whose records are not in this one.
    unheard: set[str] = field(default_factory=set)

    def told(self, user: User, attributes: Attributes, allowed: bool) -> None:
        """As `DevCluster.decision_listeners` wants it. Only names that RBAC knows are kept: objects come and go."""
        (self.granted if allowed else self.refused)[user.name].add(attributes)

    def written(self) -> list[Told]:
        """All of it, for another process to read."""
        both = ((True, self.granted), (False, self.refused))
        return [
            (name, allowed, astuple(attributes))
            for allowed, wishes_by_name in both
            for name, wishes in wishes_by_name.items()
            for attributes in wishes
        ]

    def read(self, written: Iterable[Told]) -> None:
        """What another process recorded is in this record as well."""
        for name, allowed, attributes in written:
            (self.granted if allowed else self.refused)[name].add(Attributes(*attributes))


RECORD = Record()

METRICS_READER = MANIFESTS / "monitoring" / "metrics-reader.yaml"
EXPLAIN_READER = MANIFESTS / "explain" / "role.yaml"


def install(cluster: DevCluster, component: str, record: Record = RECORD) -> str:
    """Account, roles and bindings of the manifests are there, and the record is told; a token of the account."""
    where = COMPONENTS[component]
    if cluster.store.find(NAMESPACE, "", where.namespace) is None:
        cluster.store.create(NAMESPACE, "", {"metadata": {"name": where.namespace}})
    for each in where.objects():
        create(cluster, each)
    if record.told not in cluster.decision_listeners:
        cluster.decision_listeners.append(record.told)
    return cluster.token_of(where.namespace, where.account)


def other(cluster: DevCluster, name: str, role: Path | None = None) -> str:
    """A token of a new ServiceAccount of nobody's, to which the ClusterRole of a manifest is bound, if any."""
    cluster.store.create(SERVICE_ACCOUNT, "default", {"metadata": {"name": name}})
    if role is not None:
        (bound,) = documents(role)
        if cluster.store.find(CLUSTER_ROLE, "", bound["metadata"]["name"]) is None:
            create(cluster, bound)
        binding = {
            "metadata": {"name": name},
            "roleRef": {"kind": "ClusterRole", "name": bound["metadata"]["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        cluster.store.create(CLUSTER_ROLE_BINDING, "", binding)
    return cluster.token_of("default", name)


def create(cluster: DevCluster, obj: Json) -> None:
    """The object of a manifest is there."""
    kind = kind_of(obj["apiVersion"], obj["kind"])
    assert kind is not None, obj["kind"]
    cluster.store.create(kind, obj["metadata"].get("namespace", ""), obj)


def account_kubeconfig(cluster: DevCluster, component: str, folder: Path) -> Path:
    """A kubeconfig with a token of the component's account, and no other credentials."""
    path = folder / f"{component}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(kubeconfig_text(cluster.url, token=install(cluster, component)))
    return path
