"""
The kinds that the embedded cluster serves: one table, read by routes, discovery, tables and controllers.

Source: kubernetes 1.36, names, short names and categories as its discovery documents give them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

#: A JSON object as it goes over the wire. Kubernetes objects are open records, so values stay unnamed here.
JsonObject = dict[str, Any]

_ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_NO_COLLECTION_DELETE: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column that a CustomResourceDefinition adds to the table of its objects."""

    name: str
    type: str
    json_path: str
    wide: bool


@dataclass(frozen=True, slots=True)
class Kind:
    """
    One resource as discovery describes it: its names, its scope and its verbs.

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
    def list_kind(self) -> str:
        """Return the `kind` of a list of these."""
        return f"{self.kind}List"

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


NAMESPACE: Final = Kind(
    "", "v1", "Namespace", "namespaces", "namespace", False, ("ns",), (), ("status", "finalize"),
    verbs=_NO_COLLECTION_DELETE,
)  # fmt: skip
NODE: Final = Kind("", "v1", "Node", "nodes", "node", False, ("no",), (), ("status",))
POD: Final = Kind(
    "", "v1", "Pod", "pods", "pod", True, ("po",), ("all",), ("status", "binding", "eviction")
)  # fmt: skip
BINDING: Final = Kind("", "v1", "Binding", "bindings", "binding", verbs=("create",))
SERVICE: Final = Kind("", "v1", "Service", "services", "service", True, ("svc",), ("all",), ("status",))
CONFIG_MAP: Final = Kind("", "v1", "ConfigMap", "configmaps", "configmap", True, ("cm",))
SERVICE_ACCOUNT: Final = Kind(
    "", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", True, ("sa",), (), ("token",)
)
CORE_EVENT: Final = Kind("", "v1", "Event", "events", "event", True, ("ev",))
EVENT: Final = Kind("events.k8s.io", "v1", "Event", "events", "event", True, ("ev",))
RESOURCE_QUOTA: Final = Kind(
    "", "v1", "ResourceQuota", "resourcequotas", "resourcequota", True, ("quota",), (), ("status",)
)
REPLICATION_CONTROLLER: Final = Kind(
    "", "v1", "ReplicationController", "replicationcontrollers", "replicationcontroller",
    True, ("rc",), ("all",), ("status", "scale"),
)  # fmt: skip
DEPLOYMENT: Final = Kind(
    "apps", "v1", "Deployment", "deployments", "deployment", True, ("deploy",), ("all",), ("status", "scale")
)
REPLICA_SET: Final = Kind(
    "apps", "v1", "ReplicaSet", "replicasets", "replicaset", True, ("rs",), ("all",), ("status", "scale")
)
STATEFUL_SET: Final = Kind(
    "apps", "v1", "StatefulSet", "statefulsets", "statefulset", True, ("sts",), ("all",), ("status", "scale")
)
SECRET: Final = Kind("", "v1", "Secret", "secrets", "secret")
MUTATING_WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations",
    "mutatingwebhookconfiguration", False, (), ("api-extensions",),
)  # fmt: skip
VALIDATING_WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations",
    "validatingwebhookconfiguration", False, (), ("api-extensions",),
)  # fmt: skip
LEASE: Final = Kind("coordination.k8s.io", "v1", "Lease", "leases", "lease")
_RBAC: Final = "rbac.authorization.k8s.io"
CLUSTER_ROLE: Final = Kind(_RBAC, "v1", "ClusterRole", "clusterroles", "clusterrole", False)
CLUSTER_ROLE_BINDING: Final = Kind(
    _RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding", False
)
ROLE: Final = Kind(_RBAC, "v1", "Role", "roles", "role")
ROLE_BINDING: Final = Kind(_RBAC, "v1", "RoleBinding", "rolebindings", "rolebinding")
PRIORITY_CLASS: Final = Kind(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "priorityclass", False, ("pc",)
)
POD_DISRUPTION_BUDGET: Final = Kind(
    "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget",
    True, ("pdb",), (), ("status",),
)  # fmt: skip

DAEMON_SET: Final = Kind(
    "apps", "v1", "DaemonSet", "daemonsets", "daemonset", True, ("ds",), ("all",), ("status",)
)
JOB: Final = Kind("batch", "v1", "Job", "jobs", "job", True, (), ("all",), ("status",))
CRON_JOB: Final = Kind("batch", "v1", "CronJob", "cronjobs", "cronjob", True, ("cj",), ("all",), ("status",))
PERSISTENT_VOLUME: Final = Kind(
    "", "v1", "PersistentVolume", "persistentvolumes", "persistentvolume", False, ("pv",), (), ("status",)
)
PERSISTENT_VOLUME_CLAIM: Final = Kind(
    "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim",
    True, ("pvc",), (), ("status",),
)  # fmt: skip
_STORAGE: Final = "storage.k8s.io"
STORAGE_CLASS: Final = Kind(_STORAGE, "v1", "StorageClass", "storageclasses", "storageclass", False, ("sc",))
CSI_DRIVER: Final = Kind(_STORAGE, "v1", "CSIDriver", "csidrivers", "csidriver", False)
CSI_NODE: Final = Kind(_STORAGE, "v1", "CSINode", "csinodes", "csinode", False)
CSI_STORAGE_CAPACITY: Final = Kind(
    _STORAGE, "v1", "CSIStorageCapacity", "csistoragecapacities", "csistoragecapacity"
)
VOLUME_ATTACHMENT: Final = Kind(
    _STORAGE, "v1", "VolumeAttachment", "volumeattachments", "volumeattachment", False, (), (), ("status",)
)

_API_EXTENSIONS: Final = ("api-extensions",)
CUSTOM_RESOURCE_DEFINITION: Final = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
    "customresourcedefinition", False, ("crd", "crds"), _API_EXTENSIONS, ("status",),
)  # fmt: skip
_FLOW_CONTROL: Final = "flowcontrol.apiserver.k8s.io"
_REGISTRATION: Final = "admissionregistration.k8s.io"
#: Kinds that are stored and nothing more, since charts bring them.
_DATA_KINDS: Final = (
    Kind("", "v1", "Endpoints", "endpoints", "endpoints", True, ("ep",)),
    Kind("", "v1", "LimitRange", "limitranges", "limitrange", True, ("limits",)),
    Kind("", "v1", "PodTemplate", "podtemplates", "podtemplate"),
    Kind("apps", "v1", "ControllerRevision", "controllerrevisions", "controllerrevision"),
    Kind(
        "autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "horizontalpodautoscaler",
        True, ("hpa",), ("all",), ("status",),
    ),
    Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "endpointslice"),
    Kind(_FLOW_CONTROL, "v1", "FlowSchema", "flowschemas", "flowschema", False, (), (), ("status",)),
    Kind(
        _FLOW_CONTROL, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations",
        "prioritylevelconfiguration", False, (), (), ("status",),
    ),
    Kind("networking.k8s.io", "v1", "IngressClass", "ingressclasses", "ingressclass", False),
    Kind("networking.k8s.io", "v1", "Ingress", "ingresses", "ingress", True, ("ing",), (), ("status",)),
    Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "networkpolicy", True, ("netpol",)),
    Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass", False),
    Kind(
        _STORAGE, "v1", "VolumeAttributesClass", "volumeattributesclasses", "volumeattributesclass",
        False, ("vac",),
    ),
    Kind(
        "apiregistration.k8s.io", "v1", "APIService", "apiservices", "apiservice",
        False, (), _API_EXTENSIONS, ("status",),
    ),
    Kind(
        _REGISTRATION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies",
        "validatingadmissionpolicy", False, (), _API_EXTENSIONS, ("status",),
    ),
    Kind(
        _REGISTRATION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings",
        "validatingadmissionpolicybinding", False, (), _API_EXTENSIONS,
    ),
)  # fmt: skip

#: Every kind that is built in, in the order in which discovery lists groups.
KINDS: Final = (
    BINDING, CONFIG_MAP, CORE_EVENT, NAMESPACE, NODE, POD, REPLICATION_CONTROLLER, RESOURCE_QUOTA, SECRET,
    SERVICE_ACCOUNT, SERVICE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS,
    DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET, JOB, CRON_JOB, EVENT, POD_DISRUPTION_BUDGET,
    CLUSTER_ROLE_BINDING, CLUSTER_ROLE, ROLE_BINDING, ROLE, LEASE, PRIORITY_CLASS, STORAGE_CLASS, CSI_DRIVER,
    CSI_NODE, CSI_STORAGE_CAPACITY, VOLUME_ATTACHMENT, CUSTOM_RESOURCE_DEFINITION, *_DATA_KINDS,
)  # fmt: skip

_BY_PATH: Final[Mapping[tuple[str, str, str], Kind]] = {(k.group, k.version, k.plural): k for k in KINDS}
_BY_KIND: Final[Mapping[tuple[str, str], Kind]] = {(k.api_version, k.kind): k for k in KINDS}


def kind_at(group: str, version: str, plural: str) -> Kind | None:
    """Return the kind served at /apis/<group>/<version>/<plural> (group "" = /api), or None if there is none."""
    return _BY_PATH.get((group, version, plural))


def kind_of(api_version: str, kind: str) -> Kind | None:
    """Return the kind that an object's `apiVersion` and `kind` name, or None if it is not served."""
    return _BY_KIND.get((api_version, kind))


class ServedKinds:
    """The built-in kinds, and the kinds that CustomResourceDefinitions define."""

    def __init__(self) -> None:
        #: Name of a definition -> a kind for each of its served versions.
        self._custom: dict[str, tuple[Kind, ...]] = {}

    def define(self, name: str, kinds: tuple[Kind, ...]) -> None:
        """Serve `kinds` from now on, in place of the former kinds of the definition of this name."""
        self._custom[name] = kinds

    def remove(self, name: str) -> None:
        """Stop serving the kinds of this definition."""
        self._custom.pop(name, None)

    def defined_by(self, name: str) -> tuple[Kind, ...]:
        """Return the kinds of the definition of this name."""
        return self._custom.get(name, ())

    def all(self) -> tuple[Kind, ...]:
        """Return every kind, the built-in ones first."""
        return (*KINDS, *(kind for kinds in self._custom.values() for kind in kinds))

    def at(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind served at /apis/<group>/<version>/<plural>, or None if there is none."""
        custom = self._custom.get(f"{plural}.{group}", ())
        found = (kind for kind in custom if kind.version == version)
        return kind_at(group, version, plural) or next(found, None)

    def of(self, api_version: str, kind_name: str) -> Kind | None:
        """Return the kind that an object's `apiVersion` and `kind` name, or None if it is not served."""
        custom = (kind for kinds in self._custom.values() for kind in kinds)
        found = (kind for kind in custom if (kind.api_version, kind.kind) == (api_version, kind_name))
        return kind_of(api_version, kind_name) or next(found, None)
