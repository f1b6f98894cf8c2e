"""
The ServiceAccounts of the manifests on an embedded cluster, and a record of every request in their names.

Every process of the product that runs beside an embedded cluster runs as its own account, with what its manifests
grant and no more. `RECORD` is judged when all tests have run: tests/system/manifests/test_used_rights.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import NamedTuple

from scheduler.sandbox.devcluster.access.authentication import User
from scheduler.sandbox.devcluster.access.rbac import Attributes
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    SERVICE_ACCOUNT,
)
from tests.support.build import Json
from tests.support.cluster import kubeconfig_text
from tests.support.manifest_files import MANIFESTS, documents, kind_of, resources

_INSTALLED = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Secret")


class Component(NamedTuple):
    """One program of the product, as its manifests install it."""

    folder: Path
    account: str
    namespace: str

    @property
    def user(self) -> str:
        """Return the user name by which the API server knows the account."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"

    def objects(self) -> list[Json]:
        """Return the account, roles and bindings, each in the namespace that kustomize gives it."""
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

#: A user name, whether the request was allowed, and the fields of its attributes.
Entry = tuple[str, bool, tuple[str, ...]]


@dataclass
class Record:
    """The access decisions of an embedded cluster, by user name."""

    granted: defaultdict[str, set[Attributes]] = field(default_factory=lambda: defaultdict(set))
    refused: defaultdict[str, set[Attributes]] = field(default_factory=lambda: defaultdict(set))
    #: Worker processes of the run whose records have not been added to this one.
    missing: set[str] = field(default_factory=set)

    def add(self, user: User, attributes: Attributes, allowed: bool) -> None:
        """Add a decision; a listener for `DevCluster.decision_listeners`."""
        (self.granted if allowed else self.refused)[user.name].add(attributes)

    def entries(self) -> list[Entry]:
        """Return every entry, for another process to read."""
        both = ((True, self.granted), (False, self.refused))
        return [
            (name, allowed, astuple(attributes))
            for allowed, wishes_by_name in both
            for name, wishes in wishes_by_name.items()
            for attributes in wishes
        ]

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add the decisions that another process recorded."""
        for name, allowed, attributes in entries:
            (self.granted if allowed else self.refused)[name].add(Attributes(*attributes))


RECORD = Record()

METRICS_READER = MANIFESTS / "monitoring" / "metrics-reader.yaml"
EXPLAIN_READER = MANIFESTS / "explain" / "role.yaml"


def install(cluster: DevCluster, component: str, record: Record = RECORD) -> str:
    """Create the component's account, roles and bindings, and record its requests. Return a token of the account."""
    where = COMPONENTS[component]
    if cluster.store.find(NAMESPACE, "", where.namespace) is None:
        cluster.store.create(NAMESPACE, "", {"metadata": {"name": where.namespace}})
    for each in where.objects():
        create(cluster, each)
    if record.add not in cluster.decision_listeners:
        cluster.decision_listeners.append(record.add)
    return cluster.token_of(where.namespace, where.account)


def new_account(cluster: DevCluster, name: str, role: Path | None = None) -> str:
    """Return a token of a new ServiceAccount without rights, or with the ClusterRole in the manifest `role`."""
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


def person_kubeconfig(cluster: DevCluster, folder: Path, role: Path | None = None) -> str:
    """Return the path of a kubeconfig of a new person, with or without the ClusterRole in the manifest `role`."""
    path = folder / "person"
    path.write_text(kubeconfig_text(cluster.url, token=new_account(cluster, "person", role)))
    return str(path)


def create(cluster: DevCluster, obj: Json) -> None:
    cluster.store.create(kind_of(obj), obj["metadata"].get("namespace", ""), obj)


def account_kubeconfig(cluster: DevCluster, component: str, folder: Path) -> Path:
    """Return a kubeconfig with a token of the component's account, and no other credentials."""
    path = folder / f"{component}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(kubeconfig_text(cluster.url, token=install(cluster, component)))
    return path
