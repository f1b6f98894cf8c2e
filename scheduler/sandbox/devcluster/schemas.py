"""
The fields of objects and of their parts, as far as the embedded cluster looks into them: one table with three readers.

`admission.shapes` checks the JSON types of bodies and finds misspelled fields, `http.protobuf` decodes bodies that are
no JSON, and `http.openapi` describes kinds for `kubectl explain`.

Source: types.go and generated.proto of the API groups (kubernetes 1.36).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Field(NamedTuple):
    """A field of a structure. `number` is its number in protobuf; None if it is read from JSON alone."""

    number: int | None
    name: str
    type: str
    repeats: bool
    is_map: bool
    is_pointer: bool


#: Structure -> its fields as "name:type", or "number:name:type" if kubectl sends them in protobuf. Types: s string,
#: i integer, b boolean, y bytes, t time, q quantity, o integer or string, j any object, or a structure's name; `*`
#: before repeats it, `@` makes it a map from strings, and `?` behind marks a field that Go keeps as a pointer: present
#: is present, even at its zero value.
_STRUCTURES: Final[Mapping[str, str]] = {
    # Parts
    "ObjectMeta": "1:name:s 2:generateName:s 3:namespace:s 4:selfLink:s 5:uid:s 6:resourceVersion:s 7:generation:i "
    "creationTimestamp:t deletionTimestamp:t 10:deletionGracePeriodSeconds:i? 11:labels:@s 12:annotations:@s "
    "13:ownerReferences:*OwnerReference 14:finalizers:*s managedFields:*j",
    "OwnerReference": "1:kind:s 3:name:s 4:uid:s 5:apiVersion:s 6:controller:b? 7:blockOwnerDeletion:b?",
    "ObjectReference": "1:kind:s 2:namespace:s 3:name:s 4:uid:s 5:apiVersion:s 6:resourceVersion:s 7:fieldPath:s",
    "Requirement": "1:key:s 2:operator:s 3:values:*s",
    "LabelSelector": "1:matchLabels:@s 2:matchExpressions:*Requirement",
    "Status": "conditions:*Condition phase:s nominatedNodeName:s resourceClaimStatuses:*PodClaimStatus "
    "extendedResourceClaimStatus:j",
    "Condition": "type:s status:s",
    # Pods
    "PodSpec": "2:containers:*Container 3:restartPolicy:s 4:terminationGracePeriodSeconds:i? activeDeadlineSeconds:i "
    "6:dnsPolicy:s 7:nodeSelector:@s 8:serviceAccountName:s 10:nodeName:s 11:hostNetwork:b 12:hostPID:b 13:hostIPC:b "
    "16:hostname:s 17:subdomain:s affinity:Affinity 19:schedulerName:s 20:initContainers:*Container "
    "22:tolerations:*Toleration 24:priorityClassName:s priority:i topologySpreadConstraints:*Spread "
    "schedulingGates:*Gate volumes:*Volume overhead:@q resources:Resources resourceClaims:*PodClaim "
    "ephemeralContainers:*j serviceAccount:s automountServiceAccountToken:b shareProcessNamespace:b "
    "securityContext:j imagePullSecrets:*j hostAliases:*j dnsConfig:j readinessGates:*j runtimeClassName:s "
    "enableServiceLinks:b preemptionPolicy:s setHostnameAsFQDN:b os:j hostUsers:b hostnameOverride:s workloadRef:j "
    "schedulingGroup:j",
    "Container": "1:name:s 2:image:s 3:command:*s 4:args:*s 5:workingDir:s 6:ports:*ContainerPort 7:env:*EnvVar "
    "8:resources:Resources 13:terminationMessagePath:s 14:imagePullPolicy:s 16:stdin:b 17:stdinOnce:b 18:tty:b "
    "20:terminationMessagePolicy:s 24:restartPolicy:s? envFrom:*j resizePolicy:*j restartPolicyRules:*j "
    "volumeMounts:*j volumeDevices:*j livenessProbe:j readinessProbe:j startupProbe:j lifecycle:j securityContext:j",
    "ContainerPort": "1:name:s 2:hostPort:i 3:containerPort:i 4:protocol:s 5:hostIP:s",
    "EnvVar": "1:name:s 2:value:s valueFrom:j",
    "Resources": "limits:@q requests:@q claims:*j",
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
    "Toleration": "1:key:s 2:operator:s 3:value:s 4:effect:s 5:tolerationSeconds:i?",
    "Gate": "name:s",
    "Volume": "name:s persistentVolumeClaim:ClaimSource ephemeral:EphemeralSource "
    + " ".join(
        f"{source}:j"
        for source in (
            "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "configMap", "csi", "downwardAPI",
            "emptyDir", "fc", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "hostPath", "image",
            "iscsi", "nfs", "photonPersistentDisk", "portworxVolume", "projected", "quobyte", "rbd", "scaleIO",
            "secret", "storageos", "vsphereVolume",
        )
    ),
    "ClaimSource": "claimName:s readOnly:b",
    "EphemeralSource": "volumeClaimTemplate:ClaimTemplate",
    "ClaimTemplate": "metadata:ObjectMeta spec:ClaimSpec status:j",
    # Volumes
    "ClaimSpec": "accessModes:*s resources:Resources volumeName:s storageClassName:s volumeMode:s "
    "selector:LabelSelector volumeAttributesClassName:s dataSource:j dataSourceRef:j",
    "ClaimStatus": "phase:s accessModes:*s capacity:@q conditions:*Condition",
    "VolumeSpec": "accessModes:*s capacity:@q claimRef:ObjectReference storageClassName:s volumeMode:s "
    "persistentVolumeReclaimPolicy:s nodeAffinity:VolumeAffinity mountOptions:*s volumeAttributesClassName:s csi:j",
    "VolumeAffinity": "required:NodeSelector",
    "TopologyTerm": "matchLabelExpressions:*TopologyRequirement",
    "TopologyRequirement": "key:s values:*s",
    # Devices
    "PodClaim": "name:s resourceClaimName:s resourceClaimTemplateName:s",
    "PodClaimStatus": "name:s resourceClaimName:s",
    "DeviceClaimSpec": "devices:DeviceClaim",
    "DeviceClaimTemplate": "metadata:ObjectMeta spec:DeviceClaimSpec",
    "DeviceClaim": "requests:*DeviceRequest constraints:*DeviceConstraint config:*DeviceConfig",
    "DeviceRequest": "name:s exactly:AskedDevices firstAvailable:*AskedDevices",
    "AskedDevices": "name:s deviceClassName:s selectors:*DeviceSelector allocationMode:s count:i adminAccess:b "
    "tolerations:*Toleration capacity:AskedCapacity",
    "AskedCapacity": "requests:@q",
    "DeviceSelector": "cel:CelSelector",
    "CelSelector": "expression:s",
    "DeviceConstraint": "requests:*s matchAttribute:s distinctAttribute:s",
    "DeviceConfig": "requests:*s source:s opaque:OpaqueConfig",
    "OpaqueConfig": "driver:s parameters:j",
    "DeviceClaimStatus": "allocation:DeviceAllocation reservedFor:*DeviceConsumer devices:*DeviceStatus",
    "DeviceAllocation": "devices:AllocatedDevices nodeSelector:NodeSelector allocationTimestamp:s",
    "AllocatedDevices": "results:*DeviceResult config:*DeviceConfig",
    "DeviceResult": "request:s driver:s pool:s device:s adminAccess:b tolerations:*Toleration bindingConditions:*s "
    "bindingFailureConditions:*s shareID:s consumedCapacity:@q",
    "DeviceConsumer": "apiGroup:s resource:s name:s uid:s",
    "DeviceStatus": "driver:s pool:s device:s shareID:s conditions:*Condition data:j networkData:j",
    "SliceSpec": "driver:s pool:DevicePool nodeName:s devices:*Device",
    "DevicePool": "name:s generation:i resourceSliceCount:i",
    "Device": "name:s taints:*Taint",
    "DeviceClassSpec": "selectors:*DeviceSelector config:*DeviceConfig extendedResourceName:s",
    # Workloads
    "PodTemplateSpec": "1:metadata:ObjectMeta 2:spec:PodSpec",
    "DeploymentSpec": "1:replicas:i? 2:selector:LabelSelector? 3:template:PodTemplateSpec "
    "4:strategy:DeploymentStrategy 5:minReadySeconds:i 6:revisionHistoryLimit:i? 7:paused:b "
    "9:progressDeadlineSeconds:i?",
    "DeploymentStrategy": "1:type:s 2:rollingUpdate:RollingUpdateDeployment?",
    "RollingUpdateDeployment": "1:maxUnavailable:o? 2:maxSurge:o?",
    "ReplicaSetSpec": "selector:LabelSelector replicas:i template:PodTemplateSpec minReadySeconds:i",
    "StatefulSetSpec": "selector:LabelSelector replicas:i template:PodTemplateSpec updateStrategy:UpdateStrategy "
    "volumeClaimTemplates:*ClaimTemplate serviceName:s minReadySeconds:i podManagementPolicy:s revisionHistoryLimit:i "
    "persistentVolumeClaimRetentionPolicy:RetentionPolicy ordinals:j",
    "DaemonSetSpec": "selector:LabelSelector template:PodTemplateSpec updateStrategy:UpdateStrategy minReadySeconds:i "
    "revisionHistoryLimit:i",
    "UpdateStrategy": "type:s rollingUpdate:j",
    "RetentionPolicy": "whenDeleted:s whenScaled:s",
    "JobSpec": "1:parallelism:i? 2:completions:i? 3:activeDeadlineSeconds:i? 4:selector:LabelSelector? "
    "5:manualSelector:b? 6:template:PodTemplateSpec 7:backoffLimit:i? 8:ttlSecondsAfterFinished:i? "
    "9:completionMode:s? 10:suspend:b? podFailurePolicy:j successPolicy:j backoffLimitPerIndex:i maxFailedIndexes:i "
    "podReplacementPolicy:s managedBy:s",
    "JobTemplateSpec": "1:metadata:ObjectMeta 2:spec:JobSpec",
    "CronJobSpec": "1:schedule:s 2:startingDeadlineSeconds:i? 3:concurrencyPolicy:s 4:suspend:b? "
    "5:jobTemplate:JobTemplateSpec 6:successfulJobsHistoryLimit:i? 7:failedJobsHistoryLimit:i? 8:timeZone:s?",
    "ReplicationControllerSpec": "selector:@s replicas:i template:PodTemplateSpec minReadySeconds:i",
    "PodDisruptionBudgetSpec": "1:minAvailable:o? 2:selector:LabelSelector? 3:maxUnavailable:o? "
    "4:unhealthyPodEvictionPolicy:s?",
    "BudgetStatus": "conditions:*Condition disruptionsAllowed:i currentHealthy:i desiredHealthy:i expectedPods:i "
    "observedGeneration:i disruptedPods:@s",
    # Services
    "ServiceSpec": "1:ports:*ServicePort 2:selector:@s 3:clusterIP:s 4:type:s 5:externalIPs:*s 7:sessionAffinity:s "
    "8:loadBalancerIP:s 10:externalName:s 11:externalTrafficPolicy:s 13:publishNotReadyAddresses:b 18:clusterIPs:*s",
    "ServicePort": "1:name:s 2:protocol:s 3:port:i 4:targetPort:o 5:nodePort:i 6:appProtocol:s?",
    # Nodes and namespaces
    "NodeSpec": "unschedulable:b taints:*Taint",
    "NodeStatus": "conditions:*Condition phase:s allocatable:@q capacity:@q",
    "Taint": "key:s value:s effect:s",
    "NamespaceSpec": "1:finalizers:*s",
    "LocalObjectReference": "1:name:s",
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
    "PolicyRule": "1:verbs:*s 2:apiGroups:*s 3:resources:*s 4:resourceNames:*s 5:nonResourceURLs:*s",
    "AggregationRule": "1:clusterRoleSelectors:*LabelSelector",
    "Subject": "1:kind:s 2:apiGroup:s 3:name:s 4:namespace:s",
    "RoleRef": "1:apiGroup:s 2:kind:s 3:name:s",
    # Bodies of requests
    "Preconditions": "1:uid:s? 2:resourceVersion:s?",
    "DeleteOptions": "1:gracePeriodSeconds:i? 2:preconditions:Preconditions? 3:orphanDependents:b? "
    "4:propagationPolicy:s? 5:dryRun:*s",
    "ScaleSpec": "replicas:i",
    "TokenRequestSpec": "1:audiences:*s 3:boundObjectRef:BoundObjectReference? 4:expirationSeconds:i?",
    "BoundObjectReference": "1:kind:s 2:apiVersion:s 3:name:s 4:uid:s",
    "RulesReviewSpec": "1:namespace:s",
    "TokenReviewSpec": "token:s audiences:*s",
    "AccessReviewSpec": "1:resourceAttributes:ResourceAttributes? 2:nonResourceAttributes:NonResourceAttributes? "
    "user:s groups:*s uid:s",
    "ResourceAttributes": "1:namespace:s 2:verb:s 3:group:s 4:version:s 5:resource:s 6:subresource:s 7:name:s",
    "NonResourceAttributes": "1:path:s 2:verb:s",
}  # fmt: skip
_ROLE_BINDING: Final = "2:subjects:*Subject 3:roleRef:RoleRef"
_ACCESS_REVIEW: Final = "2:spec:AccessReviewSpec"
#: Kind -> its fields beside apiVersion, kind and metadata.
_KINDS: Final = {
    "Pod": "2:spec:PodSpec status:Status",
    "Node": "spec:NodeSpec status:NodeStatus",
    "Namespace": "2:spec:NamespaceSpec status:Status",
    "Service": "2:spec:ServiceSpec status:j",
    "ConfigMap": "2:data:@s 3:binaryData:@y 4:immutable:b?",
    "Secret": "2:data:@y 3:type:s 4:stringData:@s 5:immutable:b?",
    "ServiceAccount": "3:imagePullSecrets:*LocalObjectReference 4:automountServiceAccountToken:b?",
    "Event": "involvedObject:ObjectReference related:ObjectReference series:Series source:Source reason:s message:s "
    "type:s action:s count:i eventTime:s firstTimestamp:s lastTimestamp:s reportingComponent:s reportingInstance:s",
    "MutatingWebhookConfiguration": "webhooks:*Webhook",
    "ValidatingWebhookConfiguration": "webhooks:*Webhook",
    "Role": "2:rules:*PolicyRule",
    "ClusterRole": "2:rules:*PolicyRule 3:aggregationRule:AggregationRule?",
    "RoleBinding": _ROLE_BINDING,
    "ClusterRoleBinding": _ROLE_BINDING,
    "ReplicationController": "spec:ReplicationControllerSpec status:j",
    "Deployment": "2:spec:DeploymentSpec status:j",
    "ReplicaSet": "spec:ReplicaSetSpec status:j",
    "StatefulSet": "spec:StatefulSetSpec status:j",
    "DaemonSet": "spec:DaemonSetSpec status:j",
    "Job": "2:spec:JobSpec status:j",
    "CronJob": "2:spec:CronJobSpec status:j",
    "PersistentVolume": "spec:VolumeSpec status:Status",
    "PersistentVolumeClaim": "spec:ClaimSpec status:ClaimStatus",
    "StorageClass": "provisioner:s parameters:@s reclaimPolicy:s volumeBindingMode:s allowVolumeExpansion:b "
    "allowedTopologies:*TopologyTerm mountOptions:*s",
    "CSIDriver": "spec:j",
    "CSINode": "spec:j",
    "CSIStorageCapacity": "storageClassName:s capacity:q maximumVolumeSize:q nodeTopology:LabelSelector",
    "VolumeAttachment": "spec:j status:j",
    "VolumeAttributesClass": "driverName:s parameters:@s",
    "ResourceClaim": "spec:DeviceClaimSpec status:DeviceClaimStatus",
    "ResourceClaimTemplate": "spec:DeviceClaimTemplate",
    "ResourceSlice": "spec:SliceSpec",
    "DeviceClass": "spec:DeviceClassSpec",
    "PodDisruptionBudget": "2:spec:PodDisruptionBudgetSpec status:BudgetStatus",
    "CustomResourceDefinition": "spec:DefinitionSpec status:j",
    "PriorityClass": "2:value:i? 3:globalDefault:b 4:description:s 5:preemptionPolicy:s?",
    "Endpoints": "subsets:*j",
    "EndpointSlice": "addressType:s endpoints:*j ports:*j",
    "PodTemplate": "template:PodTemplateSpec",
    "ControllerRevision": "data:j revision:i",
    "RuntimeClass": "handler:s overhead:j scheduling:j",
}
#: Kind -> the fields of a body that is no stored object.
_BODIES: Final = {
    "Binding": "2:target:ObjectReference",
    "Eviction": "2:deleteOptions:DeleteOptions?",
    "Scale": "spec:ScaleSpec",
    "TokenRequest": "2:spec:TokenRequestSpec",
    "TokenReview": "spec:TokenReviewSpec",
    "SelfSubjectAccessReview": _ACCESS_REVIEW,
    "SelfSubjectRulesReview": "2:spec:RulesReviewSpec",
    "SubjectAccessReview": _ACCESS_REVIEW,
}
_METADATA: Final = "1:metadata:ObjectMeta"


def _parsed(text: str) -> Field:
    *number, name, of_type = text.split(":")
    return Field(
        int(number[0]) if number else None,
        name,
        of_type.strip("*@?"),
        repeats=of_type.startswith("*"),
        is_map=of_type.startswith("@"),
        is_pointer=of_type.endswith("?"),
    )


def _fields(text: str) -> tuple[Field, ...]:
    return tuple(map(_parsed, text.split()))


#: Every structure, kinds included, by its name.
STRUCTURES: Final[Mapping[str, tuple[Field, ...]]] = {
    **{name: _fields(text) for name, text in _STRUCTURES.items()},
    **{kind: _fields(f"{_METADATA} {text}") for kind, text in (_KINDS | _BODIES).items()},
}
#: Kinds whose fields are all in the table, down to those of type j.
WHOLE: Final = frozenset(
    {
        "Pod", "PodTemplate", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob",
        "ReplicationController",
    }
)  # fmt: skip
#: Kinds of bodies that are no stored objects.
BODIES: Final = frozenset({*_BODIES, "DeleteOptions"})
#: The fields of a kind that is not in the table.
PLAIN: Final = _fields(f"{_METADATA} spec:j status:j")
#: The fields of an object whose kind a CustomResourceDefinition defines.
CUSTOM: Final = _fields(_METADATA)
