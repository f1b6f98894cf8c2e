"""
Bodies in Kubernetes' protobuf encoding, read only.

kubectl 1.32 and later send the objects that `create deployment`, `create role`, `autoscale`, `drain`, `auth can-i` and
their like make up in no other form. The table lists the messages that those commands fill, with their field numbers.
A field that is not listed and not empty is refused, never dropped. Answers are always JSON.

Source: apimachinery pkg/runtime/serializer/protobuf, and generated.proto of core, apps, batch, policy, scheduling,
rbac, networking, authentication, authorization and meta v1, and autoscaling v2 (kubernetes 1.36).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from scheduler.devcluster import status
from scheduler.devcluster.kinds import JsonObject
from scheduler.devcluster.timestamps import rfc3339

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_DEPTH: Final = 32

#: Message -> its fields as "number:name:type". Types: s string, i integer, b boolean, y bytes, t Time, q Quantity,
#: o IntOrString, or a message's name; `*` before repeats it, `@` makes it a map from strings, and `?` behind marks
#: a field that Go keeps as a pointer: present is present, even at its zero value. A message without a name is
#: embedded: its fields are those of the message around it.
_MESSAGES: Final[Mapping[str, str]] = {
    "ObjectMeta": "1:name:s 2:generateName:s 3:namespace:s 5:uid:s 6:resourceVersion:s 7:generation:i "
    "8:creationTimestamp:t 9:deletionTimestamp:t 10:deletionGracePeriodSeconds:i? 11:labels:@s 12:annotations:@s "
    "13:ownerReferences:*OwnerReference 14:finalizers:*s",
    "OwnerReference": "1:kind:s 3:name:s 4:uid:s 5:apiVersion:s 6:controller:b? 7:blockOwnerDeletion:b?",
    "LabelSelector": "1:matchLabels:@s 2:matchExpressions:*LabelSelectorRequirement",
    "LabelSelectorRequirement": "1:key:s 2:operator:s 3:values:*s",
    "DeleteOptions": "1:gracePeriodSeconds:i? 2:preconditions:Preconditions? 3:orphanDependents:b? "
    "4:propagationPolicy:s? 5:dryRun:*s",
    "Preconditions": "1:uid:s? 2:resourceVersion:s?",
    "Namespace": "1:metadata:ObjectMeta 2:spec:NamespaceSpec",
    "NamespaceSpec": "1:finalizers:*s",
    "ConfigMap": "1:metadata:ObjectMeta 2:data:@s 3:binaryData:@y 4:immutable:b?",
    "Secret": "1:metadata:ObjectMeta 2:data:@y 3:type:s 4:stringData:@s 5:immutable:b?",
    "ServiceAccount": "1:metadata:ObjectMeta 3:imagePullSecrets:*LocalObjectReference "
    "4:automountServiceAccountToken:b?",
    "LocalObjectReference": "1:name:s",
    "Service": "1:metadata:ObjectMeta 2:spec:ServiceSpec",
    "ServiceSpec": "1:ports:*ServicePort 2:selector:@s 3:clusterIP:s 4:type:s 5:externalIPs:*s 7:sessionAffinity:s "
    "8:loadBalancerIP:s 10:externalName:s 11:externalTrafficPolicy:s 13:publishNotReadyAddresses:b 18:clusterIPs:*s",
    "ServicePort": "1:name:s 2:protocol:s 3:port:i 4:targetPort:o 5:nodePort:i 6:appProtocol:s?",
    "ResourceQuota": "1:metadata:ObjectMeta 2:spec:ResourceQuotaSpec",
    "ResourceQuotaSpec": "1:hard:@q 2:scopes:*s 3:scopeSelector:ScopeSelector?",
    "ScopeSelector": "1:matchExpressions:*ScopedResourceSelectorRequirement",
    "ScopedResourceSelectorRequirement": "1:scopeName:s 2:operator:s 3:values:*s",
    "Deployment": "1:metadata:ObjectMeta 2:spec:DeploymentSpec",
    "DeploymentSpec": "1:replicas:i? 2:selector:LabelSelector? 3:template:PodTemplateSpec "
    "4:strategy:DeploymentStrategy 5:minReadySeconds:i 6:revisionHistoryLimit:i? 7:paused:b "
    "9:progressDeadlineSeconds:i?",
    "DeploymentStrategy": "1:type:s 2:rollingUpdate:RollingUpdateDeployment?",
    "RollingUpdateDeployment": "1:maxUnavailable:o? 2:maxSurge:o?",
    "Job": "1:metadata:ObjectMeta 2:spec:JobSpec",
    "JobSpec": "1:parallelism:i? 2:completions:i? 3:activeDeadlineSeconds:i? 4:selector:LabelSelector? "
    "5:manualSelector:b? 6:template:PodTemplateSpec 7:backoffLimit:i? 8:ttlSecondsAfterFinished:i? "
    "9:completionMode:s? 10:suspend:b?",
    "CronJob": "1:metadata:ObjectMeta 2:spec:CronJobSpec",
    "CronJobSpec": "1:schedule:s 2:startingDeadlineSeconds:i? 3:concurrencyPolicy:s 4:suspend:b? "
    "5:jobTemplate:JobTemplateSpec 6:successfulJobsHistoryLimit:i? 7:failedJobsHistoryLimit:i? 8:timeZone:s?",
    "JobTemplateSpec": "1:metadata:ObjectMeta 2:spec:JobSpec",
    "PodTemplateSpec": "1:metadata:ObjectMeta 2:spec:PodSpec",
    "PodSpec": "2:containers:*Container 3:restartPolicy:s 4:terminationGracePeriodSeconds:i? 6:dnsPolicy:s "
    "7:nodeSelector:@s 8:serviceAccountName:s 10:nodeName:s 11:hostNetwork:b 12:hostPID:b 13:hostIPC:b 16:hostname:s "
    "17:subdomain:s 19:schedulerName:s 20:initContainers:*Container 22:tolerations:*Toleration 24:priorityClassName:s",
    "Container": "1:name:s 2:image:s 3:command:*s 4:args:*s 5:workingDir:s 6:ports:*ContainerPort 7:env:*EnvVar "
    "8:resources:ResourceRequirements 13:terminationMessagePath:s 14:imagePullPolicy:s 16:stdin:b 17:stdinOnce:b "
    "18:tty:b 20:terminationMessagePolicy:s 24:restartPolicy:s?",
    "ContainerPort": "1:name:s 2:hostPort:i 3:containerPort:i 4:protocol:s 5:hostIP:s",
    "EnvVar": "1:name:s 2:value:s",
    "ResourceRequirements": "1:limits:@q 2:requests:@q",
    "Toleration": "1:key:s 2:operator:s 3:value:s 4:effect:s 5:tolerationSeconds:i?",
    "PodDisruptionBudget": "1:metadata:ObjectMeta 2:spec:PodDisruptionBudgetSpec",
    "PodDisruptionBudgetSpec": "1:minAvailable:o? 2:selector:LabelSelector? 3:maxUnavailable:o? "
    "4:unhealthyPodEvictionPolicy:s?",
    "Eviction": "1:metadata:ObjectMeta 2:deleteOptions:DeleteOptions?",
    "PriorityClass": "1:metadata:ObjectMeta 2:value:i? 3:globalDefault:b 4:description:s 5:preemptionPolicy:s?",
    "Role": "1:metadata:ObjectMeta 2:rules:*PolicyRule",
    "ClusterRole": "1:metadata:ObjectMeta 2:rules:*PolicyRule 3:aggregationRule:AggregationRule?",
    "PolicyRule": "1:verbs:*s 2:apiGroups:*s 3:resources:*s 4:resourceNames:*s 5:nonResourceURLs:*s",
    "AggregationRule": "1:clusterRoleSelectors:*LabelSelector",
    "RoleBinding": "1:metadata:ObjectMeta 2:subjects:*Subject 3:roleRef:RoleRef",
    "ClusterRoleBinding": "1:metadata:ObjectMeta 2:subjects:*Subject 3:roleRef:RoleRef",
    "Subject": "1:kind:s 2:apiGroup:s 3:name:s 4:namespace:s",
    "RoleRef": "1:apiGroup:s 2:kind:s 3:name:s",
    "Ingress": "1:metadata:ObjectMeta 2:spec:IngressSpec",
    "IngressSpec": "1:defaultBackend:IngressBackend? 2:tls:*IngressTLS 3:rules:*IngressRule 4:ingressClassName:s?",
    "IngressTLS": "1:hosts:*s 2:secretName:s",
    "IngressRule": "1:host:s 2::IngressRuleValue",
    "IngressRuleValue": "1:http:HTTPIngressRuleValue?",
    "HTTPIngressRuleValue": "1:paths:*HTTPIngressPath",
    "HTTPIngressPath": "1:path:s 2:backend:IngressBackend 3:pathType:s?",
    "IngressBackend": "4:service:IngressServiceBackend?",
    "IngressServiceBackend": "1:name:s 2:port:ServiceBackendPort",
    "ServiceBackendPort": "1:name:s 2:number:i",
    "HorizontalPodAutoscaler": "1:metadata:ObjectMeta 2:spec:HorizontalPodAutoscalerSpec",
    "HorizontalPodAutoscalerSpec": "1:scaleTargetRef:CrossVersionObjectReference 2:minReplicas:i? 3:maxReplicas:i "
    "4:metrics:*MetricSpec",
    "CrossVersionObjectReference": "1:kind:s 2:name:s 3:apiVersion:s",
    "MetricSpec": "1:type:s 4:resource:ResourceMetricSource?",
    "ResourceMetricSource": "1:name:s 2:target:MetricTarget",
    "MetricTarget": "1:type:s 2:value:q? 3:averageValue:q? 4:averageUtilization:i?",
    "TokenRequest": "1:metadata:ObjectMeta 2:spec:TokenRequestSpec",
    "TokenRequestSpec": "1:audiences:*s 3:boundObjectRef:BoundObjectReference? 4:expirationSeconds:i?",
    "BoundObjectReference": "1:kind:s 2:apiVersion:s 3:name:s 4:uid:s",
    "Binding": "1:metadata:ObjectMeta 2:target:ObjectReference",
    "ObjectReference": "1:kind:s 2:namespace:s 3:name:s 4:uid:s 5:apiVersion:s 6:resourceVersion:s 7:fieldPath:s",
    "SelfSubjectAccessReview": "1:metadata:ObjectMeta 2:spec:SelfSubjectAccessReviewSpec",
    "SelfSubjectAccessReviewSpec": "1:resourceAttributes:ResourceAttributes? "
    "2:nonResourceAttributes:NonResourceAttributes?",
    "ResourceAttributes": "1:namespace:s 2:verb:s 3:group:s 4:version:s 5:resource:s 6:subresource:s 7:name:s",
    "NonResourceAttributes": "1:path:s 2:verb:s",
    "SelfSubjectRulesReview": "1:metadata:ObjectMeta 2:spec:SelfSubjectRulesReviewSpec",
    "SelfSubjectRulesReviewSpec": "1:namespace:s",
    "SelfSubjectReview": "1:metadata:ObjectMeta",
}  # fmt: skip


class _Field(NamedTuple):
    name: str
    type: str
    repeats: bool
    is_map: bool
    is_pointer: bool


def _parsed(spec: str) -> _Field:
    _, name, of_type = spec.split(":")
    core = of_type.strip("*@?")
    return _Field(name, core, of_type.startswith("*"), of_type.startswith("@"), of_type.endswith("?"))


_FIELDS: Final[Mapping[str, Mapping[int, _Field]]] = {
    message: {int(spec.partition(":")[0]): _parsed(spec) for spec in specs.split()}
    for message, specs in _MESSAGES.items()
}


def decoded(body: bytes) -> JsonObject:
    """
    Return the object in `body`, as JSON would state it.

    Raises: StatusError 400 if the bytes are no such object, 415 if it has fields that are not read here.
    """
    if not body.startswith(_MAGIC):
        raise status.bad_request(
            "error decoding the body of the request: it does not begin as protobuf does here"
        )
    try:
        envelope = dict(_entries(body[len(_MAGIC) :]))
        type_meta = {number: _text(value) for number, value in _entries(_bytes(envelope.get(1, b"")))}
        kind = type_meta.get(2, "")
        if kind not in _FIELDS:
            raise status.unsupported_media_type(["application/json", "application/yaml"])
        obj = _message(kind, _bytes(envelope.get(2, b"")), 0)
    except (IndexError, ValueError) as error:
        raise status.bad_request(f"error decoding the body of the request: {error}") from error
    return {"kind": kind, "apiVersion": type_meta.get(1, ""), **obj}


def _entries(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of one message's fields, in their order. Raises: IndexError, ValueError."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            length, position = _varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"protobuf wire type {wire_type} is unknown")
        if position + length > len(data):
            raise ValueError("protobuf ends amid a field")
        yield number, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
        if shift > 63:
            raise ValueError("a protobuf integer is too long")


def _message(message: str, data: bytes, depth: int) -> JsonObject:
    if depth > _MAX_DEPTH:
        raise ValueError("protobuf messages are nested too deeply")
    obj: JsonObject = {}
    for number, raw in _entries(data):
        field = _FIELDS[message].get(number)
        if field is None:
            if not _is_blank(raw, depth):
                raise status.StatusError(
                    415,
                    "UnsupportedMediaType",
                    f"field {number} of {message} is not read from protobuf here: send JSON",
                )
        elif field.is_map:
            key, value = _map_entry(field.type, _bytes(raw), depth)
            obj.setdefault(field.name, {})[key] = value
        elif field.repeats:
            obj.setdefault(field.name, []).append(_value(field.type, raw, depth))
        else:
            value = _value(field.type, raw, depth)
            if not field.name and isinstance(value, dict):
                obj |= value
            elif field.is_pointer or value not in ("", 0, None, {}):
                obj[field.name] = value
    return obj


def _is_blank(raw: int | bytes, depth: int) -> bool:
    """Return True if a field is zero, empty, or a message of such fields: Go writes unset structs so."""
    if not raw or isinstance(raw, int) or depth > _MAX_DEPTH:
        return not raw
    try:
        return all(_is_blank(value, depth + 1) for _, value in _entries(raw))
    except (IndexError, ValueError):
        return False


def _map_entry(of_type: str, data: bytes, depth: int) -> tuple[str, object]:
    entry = dict(_entries(data))
    return _text(entry.get(1, b"")), _value(of_type, entry.get(2, b""), depth)


def _value(of_type: str, raw: int | bytes, depth: int) -> object:
    scalar = _SCALARS.get(of_type)
    return scalar(raw) if scalar else _message(of_type, _bytes(raw), depth + 1)


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise ValueError("protobuf has a number where a message is expected")  # noqa: TRY004 - of the body, not of us
    return raw


def _text(raw: int | bytes) -> str:
    return _bytes(raw).decode()


def _integer(raw: int | bytes) -> int:
    if not isinstance(raw, int):
        raise ValueError("protobuf has a message where a number is expected")  # noqa: TRY004 - as above
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _quantity(raw: int | bytes) -> str:
    return _text(dict(_entries(_bytes(raw))).get(1, b""))


def _time(raw: int | bytes) -> str | None:
    seconds = dict(_entries(_bytes(raw))).get(1)
    return None if seconds is None else rfc3339(_integer(seconds))


def _int_or_string(raw: int | bytes) -> int | str:
    parts = dict(_entries(_bytes(raw)))
    return _text(parts.get(3, b"")) if parts.get(1) else _integer(parts.get(2, 0))


_SCALARS: Final[Mapping[str, Callable[[int | bytes], Any]]] = {
    "s": _text,
    "i": _integer,
    "b": lambda raw: bool(_integer(raw)),
    "y": lambda raw: base64.b64encode(_bytes(raw)).decode(),
    "t": _time,
    "q": _quantity,
    "o": _int_or_string,
}
