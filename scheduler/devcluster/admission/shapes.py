"""
Checks the JSON types of the fields that the embedded cluster reads.

Upstream decodes into Go structures and answers 400 for a wrong type; the table below has those structures as far as the
embedded cluster looks into objects. Unknown fields are left alone, and every field may be absent or null, as in Go.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from scheduler.devcluster.admission.amounts import QUANTITY_RULE, quantity
from scheduler.devcluster.kinds import JsonObject, Kind
from scheduler.devcluster.status import bad_request


class _Quantity:
    """Marks a field that holds a quantity."""


#: Structure -> its fields as "name:type". Types: s string, i integer, b boolean, q quantity, o integer or string,
#: j any object, or a structure's name; `*` before repeats it, `@` makes it a map from strings.
_FIELDS: Final[Mapping[str, str]] = {
    # Parts
    "Metadata": "name:s generateName:s namespace:s uid:s resourceVersion:s generation:i labels:@s annotations:@s "
    "finalizers:*s ownerReferences:*Owner",
    "Owner": "apiVersion:s kind:s name:s uid:s controller:b",
    "Reference": "kind:s namespace:s name:s uid:s",
    "Requirement": "key:s operator:s values:*s",
    "LabelSelector": "matchLabels:@s matchExpressions:*Requirement",
    "Status": "conditions:*Condition phase:s nominatedNodeName:s",
    "Condition": "type:s status:s",
    # Pods
    "PodSpec": "containers:*Container initContainers:*Container affinity:Affinity topologySpreadConstraints:*Spread "
    "tolerations:*Toleration schedulingGates:*Gate volumes:*Volume serviceAccountName:s nodeSelector:@s nodeName:s "
    "schedulerName:s restartPolicy:s priority:i priorityClassName:s terminationGracePeriodSeconds:i "
    "activeDeadlineSeconds:i overhead:@q resources:Resources",
    "Container": "name:s image:s resources:Resources ports:*ContainerPort",
    "ContainerPort": "containerPort:i hostPort:i protocol:s",
    "Resources": "requests:@q limits:@q",
    "Affinity": "nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAffinity",
    "PodAffinity": "requiredDuringSchedulingIgnoredDuringExecution:*Term "
    "preferredDuringSchedulingIgnoredDuringExecution:*WeightedTerm",
    "WeightedTerm": "weight:i podAffinityTerm:Term",
    "Term": "labelSelector:LabelSelector namespaceSelector:LabelSelector namespaces:*s topologyKey:s "
    "matchLabelKeys:*s mismatchLabelKeys:*s",
    "Spread": "labelSelector:LabelSelector topologyKey:s matchLabelKeys:*s maxSkew:i whenUnsatisfiable:s minDomains:i "
    "nodeAffinityPolicy:s nodeTaintsPolicy:s",
    "NodeAffinity": "requiredDuringSchedulingIgnoredDuringExecution:NodeSelector "
    "preferredDuringSchedulingIgnoredDuringExecution:*PreferredNode",
    "NodeSelector": "nodeSelectorTerms:*NodeTerm",
    "NodeTerm": "matchExpressions:*Requirement matchFields:*Requirement",
    "PreferredNode": "weight:i preference:NodeTerm",
    "Toleration": "key:s operator:s value:s effect:s tolerationSeconds:i",
    "Gate": "name:s",
    "Volume": "name:s configMap:j secret:j projected:j persistentVolumeClaim:ClaimSource ephemeral:EphemeralSource",
    "ClaimSource": "claimName:s readOnly:b",
    "EphemeralSource": "volumeClaimTemplate:ClaimTemplate",
    "ClaimTemplate": "metadata:Metadata spec:ClaimSpec",
    # Volumes
    "ClaimSpec": "accessModes:*s resources:Resources volumeName:s storageClassName:s volumeMode:s "
    "selector:LabelSelector volumeAttributesClassName:s",
    "ClaimStatus": "phase:s accessModes:*s capacity:@q conditions:*Condition",
    "VolumeSpec": "accessModes:*s capacity:@q claimRef:Reference storageClassName:s volumeMode:s "
    "persistentVolumeReclaimPolicy:s nodeAffinity:VolumeAffinity mountOptions:*s volumeAttributesClassName:s csi:j",
    "VolumeAffinity": "required:NodeSelector",
    "TopologyTerm": "matchLabelExpressions:*TopologyRequirement",
    "TopologyRequirement": "key:s values:*s",
    "DriverSpec": "attachRequired:b podInfoOnMount:b storageCapacity:b requiresRepublish:b seLinuxMount:b "
    "fsGroupPolicy:s volumeLifecycleModes:*s tokenRequests:*j",
    "CsiNodeSpec": "drivers:*NodeDriver",
    "NodeDriver": "name:s nodeID:s topologyKeys:*s allocatable:DriverResources",
    "DriverResources": "count:i",
    "AttachmentSpec": "attacher:s nodeName:s source:j",
    # Workloads
    "Template": "metadata:Metadata spec:PodSpec",
    "WorkloadSpec": "selector:LabelSelector replicas:i template:Template strategy:UpdateStrategy "
    "updateStrategy:UpdateStrategy volumeClaimTemplates:*ClaimTemplate serviceName:s minReadySeconds:i "
    "persistentVolumeClaimRetentionPolicy:RetentionPolicy",
    "RetentionPolicy": "whenDeleted:s whenScaled:s",
    "JobSpec": "selector:LabelSelector template:Template completions:i parallelism:i backoffLimit:i suspend:b "
    "activeDeadlineSeconds:i ttlSecondsAfterFinished:i manualSelector:b completionMode:s",
    "JobTemplate": "metadata:Metadata spec:JobSpec",
    "CronJobSpec": "schedule:s suspend:b concurrencyPolicy:s startingDeadlineSeconds:i successfulJobsHistoryLimit:i "
    "failedJobsHistoryLimit:i jobTemplate:JobTemplate timeZone:s",
    "UpdateStrategy": "type:s rollingUpdate:j",
    "LabelledSpec": "selector:@s replicas:i template:Template ports:*ServicePort type:s clusterIP:s",
    "ServicePort": "port:i protocol:s targetPort:o",
    "BudgetStatus": "conditions:*Condition disruptionsAllowed:i currentHealthy:i desiredHealthy:i expectedPods:i "
    "observedGeneration:i disruptedPods:@s",
    # Nodes, namespaces and quotas
    "NodeSpec": "unschedulable:b taints:*Taint",
    "NodeStatus": "conditions:*Condition phase:s allocatable:@q capacity:@q",
    "Taint": "key:s value:s effect:s",
    "NamespaceSpec": "finalizers:*s",
    "QuotaSpec": "hard:@q scopes:*s scopeSelector:ScopeSelector",
    "QuotaStatus": "hard:@q used:@q",
    "ScopeSelector": "matchExpressions:*ScopeRequirement",
    "ScopeRequirement": "scopeName:s operator:s values:*s",
    # Custom resources
    "DefinitionSpec": "group:s scope:s names:DefinitionNames versions:*DefinitionVersion conversion:j",
    "DefinitionNames": "kind:s plural:s singular:s listKind:s shortNames:*s categories:*s",
    "DefinitionVersion": "name:s served:b storage:b schema:j subresources:j additionalPrinterColumns:*DefinitionColumn",
    "DefinitionColumn": "name:s type:s jsonPath:s priority:i",
    # Webhooks, events and roles
    "Webhook": "name:s clientConfig:ClientConfig rules:*WebhookRule failurePolicy:s matchPolicy:s "
    "namespaceSelector:LabelSelector objectSelector:LabelSelector sideEffects:s timeoutSeconds:i "
    "admissionReviewVersions:*s reinvocationPolicy:s",
    "ClientConfig": "url:s service:ServiceReference caBundle:s",
    "ServiceReference": "namespace:s name:s path:s port:i",
    "WebhookRule": "operations:*s apiGroups:*s apiVersions:*s resources:*s scope:s",
    "Series": "count:i lastObservedTime:s",
    "Source": "component:s host:s",
    "Rule": "verbs:*s apiGroups:*s resources:*s resourceNames:*s nonResourceURLs:*s",
    "Subject": "kind:s apiGroup:s name:s namespace:s",
    # Bodies of requests
    "Preconditions": "uid:s resourceVersion:s",
    "DeleteOptions": "gracePeriodSeconds:i preconditions:Preconditions propagationPolicy:s orphanDependents:b "
    "dryRun:*s",
    "ScaleSpec": "replicas:i",
    "TokenRequestSpec": "audiences:*s expirationSeconds:i",
    "TokenReviewSpec": "token:s audiences:*s",
    "AccessReviewSpec": "resourceAttributes:ResourceAttributes nonResourceAttributes:PathAttributes user:s groups:*s "
    "uid:s namespace:s",
    "ResourceAttributes": "namespace:s verb:s group:s version:s resource:s subresource:s name:s",
    "PathAttributes": "path:s verb:s",
}
_ROLE: Final = "rules:*Rule"
_ROLE_BINDING: Final = "roleRef:Subject subjects:*Subject"
_WORKLOAD: Final = "spec:WorkloadSpec status:j"
_LABELLED: Final = "spec:LabelledSpec status:j"
_PLAIN: Final = "spec:j status:j"
#: Storage -> the fields of its objects beside apiVersion, kind and metadata; other kinds are `_PLAIN`.
_STORED: Final[Mapping[str, str]] = {
    "pods": "spec:PodSpec status:Status",
    "nodes": "spec:NodeSpec status:NodeStatus",
    "services": _LABELLED,
    "namespaces": "spec:NamespaceSpec status:Status",
    "configmaps": "data:@s binaryData:@s",
    "events": "involvedObject:Reference related:Reference series:Series source:Source reason:s message:s type:s "
    "action:s count:i eventTime:s firstTimestamp:s lastTimestamp:s reportingComponent:s reportingInstance:s",
    "resourcequotas": "spec:QuotaSpec status:QuotaStatus",
    "secrets": "data:@s stringData:@s type:s",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": "webhooks:*Webhook",
    "validatingwebhookconfigurations.admissionregistration.k8s.io": "webhooks:*Webhook",
    "clusterroles.rbac.authorization.k8s.io": _ROLE,
    "roles.rbac.authorization.k8s.io": _ROLE,
    "clusterrolebindings.rbac.authorization.k8s.io": _ROLE_BINDING,
    "rolebindings.rbac.authorization.k8s.io": _ROLE_BINDING,
    "replicationcontrollers": _LABELLED,
    "deployments.apps": _WORKLOAD,
    "replicasets.apps": _WORKLOAD,
    "statefulsets.apps": _WORKLOAD,
    "daemonsets.apps": _WORKLOAD,
    "jobs.batch": "spec:JobSpec status:j",
    "cronjobs.batch": "spec:CronJobSpec status:j",
    "persistentvolumes": "spec:VolumeSpec status:Status",
    "persistentvolumeclaims": "spec:ClaimSpec status:ClaimStatus",
    "storageclasses.storage.k8s.io": "provisioner:s parameters:@s reclaimPolicy:s volumeBindingMode:s "
    "allowVolumeExpansion:b allowedTopologies:*TopologyTerm mountOptions:*s",
    "csidrivers.storage.k8s.io": "spec:DriverSpec",
    "csinodes.storage.k8s.io": "spec:CsiNodeSpec",
    "csistoragecapacities.storage.k8s.io": "storageClassName:s capacity:q maximumVolumeSize:q "
    "nodeTopology:LabelSelector",
    "volumeattachments.storage.k8s.io": "spec:AttachmentSpec status:j",
    "poddisruptionbudgets.policy": "spec:WorkloadSpec status:BudgetStatus",
    "customresourcedefinitions.apiextensions.k8s.io": "spec:DefinitionSpec status:j",
    "priorityclasses.scheduling.k8s.io": "value:i globalDefault:b preemptionPolicy:s",
}
#: Kind -> the fields of bodies that are no stored objects.
_REQUESTS: Final[Mapping[str, str]] = {
    "Binding": "target:Reference",
    "DeleteOptions": _FIELDS["DeleteOptions"],
    "Eviction": "deleteOptions:DeleteOptions",
    "Scale": "spec:ScaleSpec",
    "TokenRequest": "spec:TokenRequestSpec",
    "TokenReview": "spec:TokenReviewSpec",
    "LocalSubjectAccessReview": "spec:AccessReviewSpec",
    "SelfSubjectAccessReview": "spec:AccessReviewSpec",
    "SelfSubjectRulesReview": "spec:AccessReviewSpec",
    "SubjectAccessReview": "spec:AccessReviewSpec",
}


def check_request(kind_name: str, body: JsonObject) -> None:
    """Raise StatusError 400 if a body that is no stored object has a field of the wrong JSON type."""
    shape = _REQUEST_SHAPES.get(kind_name)
    if shape is not None:
        try:
            msgspec.convert(body, shape)
        except msgspec.ValidationError as error:
            raise bad_request(f"{kind_name} cannot be handled as a {kind_name}: json: {error}") from error


def check_shape(kind: Kind, obj: JsonObject) -> None:
    """Raise StatusError 400 if a field that is read here has the wrong JSON type, or is no quantity."""
    try:
        shape = _CUSTOM_SHAPE if kind.is_custom else _STORED_SHAPES.get(kind.storage, _PLAIN_SHAPE)
        msgspec.convert(obj, shape, dec_hook=_check_quantity)
    except msgspec.ValidationError as error:
        why = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: json: {error}'
        raise bad_request(why) from error


def _check_quantity(_: type, value: object) -> _Quantity:
    if quantity(value) is None:
        raise ValueError(QUANTITY_RULE)
    return _Quantity()


# -- structures from the table -------------------------------------------------------------------------------

_SCALARS: Final[Mapping[str, Any]] = {
    "s": str, "i": int, "b": bool, "q": _Quantity, "o": int | str, "j": dict[str, Any],
}  # fmt: skip
_structures: Final[dict[str, Any]] = {}


def _structure(name: str, fields: str) -> Any:  # noqa: ANN401 - a class made at run time
    defined: list[Any] = []
    for field in fields.split():
        field_name, _, of_type = field.partition(":")
        core = of_type.lstrip("*@")
        found: Any = _SCALARS.get(core) or _named(core)
        if of_type.startswith("*"):
            found = list[found]
        elif of_type.startswith("@"):
            found = dict[str, found]
        defined.append((field_name, found | None, None))
    return msgspec.defstruct(name, defined)


def _named(name: str) -> Any:  # noqa: ANN401 - a class made at run time
    if name not in _structures:
        _structures[name] = _structure(name, _FIELDS[name])
    return _structures[name]


def _shapes(table: Mapping[str, str]) -> dict[str, Any]:
    head = "apiVersion:s kind:s metadata:Metadata"
    return {name: _structure(name.partition(".")[0], f"{head} {fields}") for name, fields in table.items()}


_STORED_SHAPES: Final = _shapes(_STORED)
_REQUEST_SHAPES: Final = _shapes(_REQUESTS)
_PLAIN_SHAPE: Final = _structure("plain", f"apiVersion:s kind:s metadata:Metadata {_PLAIN}")
_CUSTOM_SHAPE: Final = _structure("custom", "apiVersion:s kind:s metadata:Metadata")
