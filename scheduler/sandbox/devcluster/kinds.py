"""
The kinds that the embedded cluster serves: one table, read by routes, discovery, tables and controllers.

Source: kubernetes 1.36, names, short names and categories as its discovery documents give them.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

#: A JSON object as it goes over the wire. Kubernetes objects are open records, so values stay unnamed here.
JsonObject = dict[str, Any]

_ALL_VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column that a CustomResourceDefinition adds to the table of its objects."""

    name: str
    type: str
    json_path: str
    wide: bool


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """
    One resource as discovery describes it: its names, its scope and its verbs. Each is one object, equal to itself.

    Two kinds with the same `storage` show the same stored objects in two API versions (core and events.k8s.io Events).
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = _ALL_VERBS
    #: Columns beside the name, of a kind that a CustomResourceDefinition defines; None for a kind that is built in.
    printer_columns: tuple[PrinterColumn, ...] | None = None

    @property
    def is_custom(self) -> bool:
        """Return whether a CustomResourceDefinition defines the kind."""
        return self.printer_columns is not None

    @property
    def api_version(self) -> str:
        """Return the `apiVersion` that objects of this kind carry: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """Return the resource name as error messages print it: `pods`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        """Return the name under which objects are kept; equal for kinds that share their objects."""
        return "events" if self.plural == "events" else self.qualified

    @property
    def path(self) -> str:
        """Return the URL path of the group and version, without a trailing slash."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


_CATEGORIES: Final = ("all", "api-extensions")


def built_in(
    kind: str, group: str = "", short_names: str = "", traits: str = "", version: str = "v1"
) -> Kind:
    """
    Return a kind whose resource is named after it, as `Pod` is at `pods`.

    `traits` are words: `cluster` for a kind without namespaces, a category, or a subresource.
    """
    words = traits.split()
    return Kind(
        group,
        version,
        kind,
        _plural(kind.lower()),
        kind.lower(),
        namespaced="cluster" not in words,
        short_names=tuple(short_names.split()),
        categories=tuple(word for word in words if word in _CATEGORIES),
        subresources=tuple(word for word in words if word not in ("cluster", *_CATEGORIES)),
    )


def _plural(singular: str) -> str:
    """Return the plural as upstream forms it. Source: apimachinery pkg/api/meta, UnsafeGuessKindToResource."""
    if singular == "endpoints":
        return singular
    if singular.endswith("s"):
        return f"{singular}es"
    return f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"


_RBAC: Final = "rbac.authorization.k8s.io"
_STORAGE: Final = "storage.k8s.io"
_DEVICES: Final = "resource.k8s.io"
_REGISTRATION: Final = "admissionregistration.k8s.io"
_FLOW_CONTROL: Final = "flowcontrol.apiserver.k8s.io"
_NETWORKING: Final = "networking.k8s.io"

NAMESPACE: Final = built_in("Namespace", "", "ns", "cluster status")
NODE: Final = built_in("Node", "", "no", "cluster status")
POD: Final = built_in("Pod", "", "po", "all status binding eviction")
BINDING: Final = built_in("Binding")
SERVICE: Final = built_in("Service", "", "svc", "all status")
CONFIG_MAP: Final = built_in("ConfigMap", "", "cm")
SECRET: Final = built_in("Secret")
SERVICE_ACCOUNT: Final = built_in("ServiceAccount", "", "sa", "token")
CORE_EVENT: Final = built_in("Event", "", "ev")
EVENT: Final = built_in("Event", "events.k8s.io", "ev")
REPLICATION_CONTROLLER: Final = built_in("ReplicationController", "", "rc", "all status")
DEPLOYMENT: Final = built_in("Deployment", "apps", "deploy", "all status scale")
REPLICA_SET: Final = built_in("ReplicaSet", "apps", "rs", "all status scale")
STATEFUL_SET: Final = built_in("StatefulSet", "apps", "sts", "all status scale")
DAEMON_SET: Final = built_in("DaemonSet", "apps", "ds", "all status")
JOB: Final = built_in("Job", "batch", "", "all status")
CRON_JOB: Final = built_in("CronJob", "batch", "cj", "all status")
MUTATING_WEBHOOKS: Final = built_in(
    "MutatingWebhookConfiguration", _REGISTRATION, "", "cluster api-extensions"
)  # fmt: skip
VALIDATING_WEBHOOKS: Final = built_in(
    "ValidatingWebhookConfiguration", _REGISTRATION, "", "cluster api-extensions"
)
LEASE: Final = built_in("Lease", "coordination.k8s.io")
CLUSTER_ROLE: Final = built_in("ClusterRole", _RBAC, "", "cluster")
CLUSTER_ROLE_BINDING: Final = built_in("ClusterRoleBinding", _RBAC, "", "cluster")
ROLE: Final = built_in("Role", _RBAC)
ROLE_BINDING: Final = built_in("RoleBinding", _RBAC)
PRIORITY_CLASS: Final = built_in("PriorityClass", "scheduling.k8s.io", "pc", "cluster")
POD_DISRUPTION_BUDGET: Final = built_in("PodDisruptionBudget", "policy", "pdb", "status")
PERSISTENT_VOLUME: Final = built_in("PersistentVolume", "", "pv", "cluster status")
PERSISTENT_VOLUME_CLAIM: Final = built_in("PersistentVolumeClaim", "", "pvc", "status")
STORAGE_CLASS: Final = built_in("StorageClass", _STORAGE, "sc", "cluster")
CSI_DRIVER: Final = built_in("CSIDriver", _STORAGE, "", "cluster")
CSI_NODE: Final = built_in("CSINode", _STORAGE, "", "cluster")
CSI_STORAGE_CAPACITY: Final = built_in("CSIStorageCapacity", _STORAGE)
VOLUME_ATTACHMENT: Final = built_in("VolumeAttachment", _STORAGE, "", "cluster status")
RESOURCE_CLAIM: Final = built_in("ResourceClaim", _DEVICES, "", "status")
RESOURCE_CLAIM_TEMPLATE: Final = built_in("ResourceClaimTemplate", _DEVICES)
RESOURCE_SLICE: Final = built_in("ResourceSlice", _DEVICES, "", "cluster")
DEVICE_CLASS: Final = built_in("DeviceClass", _DEVICES, "", "cluster")
DEVICE_TAINT_RULE: Final = built_in("DeviceTaintRule", _DEVICES, "", "cluster status")
CUSTOM_RESOURCE_DEFINITION: Final = built_in(
    "CustomResourceDefinition", "apiextensions.k8s.io", "crd crds", "cluster api-extensions status"
)
#: Objects that subresources carry.
EVICTION: Final = built_in("Eviction", "policy")
SCALE: Final = built_in("Scale", "autoscaling")
TOKEN_REQUEST: Final = built_in("TokenRequest", "authentication.k8s.io")

#: Every kind that is built in, in the order in which discovery lists groups.
KINDS: Final = (
    CONFIG_MAP, CORE_EVENT, NAMESPACE, NODE, POD, REPLICATION_CONTROLLER, SECRET,
    SERVICE_ACCOUNT, SERVICE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS,
    DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET, JOB, CRON_JOB, EVENT, POD_DISRUPTION_BUDGET,
    CLUSTER_ROLE_BINDING, CLUSTER_ROLE, ROLE_BINDING, ROLE, LEASE, PRIORITY_CLASS, STORAGE_CLASS, CSI_DRIVER,
    CSI_NODE, CSI_STORAGE_CAPACITY, VOLUME_ATTACHMENT, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, RESOURCE_SLICE,
    DEVICE_CLASS, DEVICE_TAINT_RULE, CUSTOM_RESOURCE_DEFINITION,
    # Stored and nothing more, since charts bring them.
    built_in("Endpoints", "", "ep"),
    built_in("LimitRange", "", "limits"),
    built_in("ResourceQuota", "", "quota", "status"),
    built_in("PodTemplate"),
    built_in("ControllerRevision", "apps"),
    built_in("HorizontalPodAutoscaler", "autoscaling", "hpa", "all status", "v2"),
    built_in("EndpointSlice", "discovery.k8s.io"),
    built_in("FlowSchema", _FLOW_CONTROL, "", "cluster status"),
    built_in("PriorityLevelConfiguration", _FLOW_CONTROL, "", "cluster status"),
    built_in("IngressClass", _NETWORKING, "", "cluster"),
    built_in("Ingress", _NETWORKING, "ing", "status"),
    built_in("NetworkPolicy", _NETWORKING, "netpol"),
    built_in("RuntimeClass", "node.k8s.io", "", "cluster"),
    built_in("VolumeAttributesClass", _STORAGE, "vac", "cluster"),
    built_in("APIService", "apiregistration.k8s.io", "", "cluster api-extensions status"),
    built_in("ValidatingAdmissionPolicy", _REGISTRATION, "", "cluster api-extensions status"),
    built_in("ValidatingAdmissionPolicyBinding", _REGISTRATION, "", "cluster api-extensions"),
)  # fmt: skip


class ServedKinds:
    """The built-in kinds but the `hidden` ones, and the kinds that CustomResourceDefinitions define."""

    def __init__(self, hidden: Collection[str] = ()) -> None:
        self._built_in = tuple(kind for kind in KINDS if kind.qualified not in hidden)
        #: Name of a definition -> a kind for each of its served versions.
        self._custom: dict[str, tuple[Kind, ...]] = {}
        self._index()

    def _index(self) -> None:
        # The built-in ones come first in all, and count if two have one name.
        kinds = tuple(reversed(self.all()))
        self._by_path = {(kind.group, kind.version, kind.plural): kind for kind in kinds}

    def define(self, name: str, kinds: tuple[Kind, ...]) -> None:
        """Serve `kinds` from now on, maybe none, in place of the former kinds of the definition of this name."""
        self._custom[name] = kinds
        self._index()

    def defined_by(self, name: str) -> tuple[Kind, ...]:
        """Return the kinds of the definition of this name."""
        return self._custom.get(name, ())

    def all(self) -> tuple[Kind, ...]:
        """Return every kind, the built-in ones first."""
        return (*self._built_in, *(kind for kinds in self._custom.values() for kind in kinds))

    def at(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind served at /apis/<group>/<version>/<plural>, or None if there is none."""
        return self._by_path.get((group, version, plural))
