"""
The strategy of each kind. Kinds not named here are data with the default behaviour.

Source: the strategies under pkg/registry (kubernetes 1.36).
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.devcluster import fields
from scheduler.devcluster.admission.affinity import selector_errors
from scheduler.devcluster.admission.defaults import (
    default_deployment,
    default_replication_controller,
    default_service,
    default_stateful_set,
    default_workload,
)
from scheduler.devcluster.admission.event_rules import EventStrategy
from scheduler.devcluster.admission.pods import PodStrategy
from scheduler.devcluster.admission.quota_rules import QuotaStrategy
from scheduler.devcluster.admission.role_rules import BindingStrategy, RoleStrategy
from scheduler.devcluster.admission.strategy import Strategy, View
from scheduler.devcluster.admission.webhook_rules import WebhookStrategy
from scheduler.devcluster.fields import FieldError
from scheduler.devcluster.kinds import JsonObject, Kind
from scheduler.devcluster.storage.request_selectors import object_selector_matches

_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MAX_USER_PRIORITY: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class NamespaceStrategy(Strategy):
    """Namespaces are labelled with their name and are Active until deleted."""

    has_status: bool = True
    returns_deleted: bool = True

    def name_faults(self, name: str) -> list[str]:
        """A namespace's name is a DNS label."""
        return fields.label_name_faults(name)

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """Name label, finalizer and phase are set."""
        del view
        obj["status"] = {"phase": "Active"}
        spec = obj.setdefault("spec", {})
        spec["finalizers"] = ["kubernetes"]
        self._label(obj)

    def prepare_update(self, new: JsonObject, old: JsonObject, view: View) -> None:
        """The name label stays, and the finalizers are the server's."""
        del view
        new["spec"] = {**(new.get("spec") or {}), "finalizers": (old.get("spec") or {}).get("finalizers")}
        self._label(new)

    def _label(self, obj: JsonObject) -> None:
        metadata = obj["metadata"]
        name = metadata.get("name", "")
        if name:
            metadata["labels"] = {**(metadata.get("labels") or {}), _NAME_LABEL: name}


@dataclass(frozen=True, slots=True)
class NodeStrategy(Strategy):
    """Nodes come with their status; afterwards it is written through the subresource alone."""

    has_status: bool = True
    status_writes_metadata: bool = True

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """The status is kept; capacity stands for allocatable where that is absent."""
        del view
        obj.setdefault("spec", {})
        status = obj.setdefault("status", {})
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """The rules that the node's taints break."""
        errors: list[FieldError] = []
        seen: set[tuple[str, str]] = set()
        for index, taint in enumerate((obj.get("spec") or {}).get("taints") or []):
            path = f"metadata.taints[{index}]"
            key, effect = taint.get("key") or "", taint.get("effect") or ""
            errors += [
                fields.invalid(f"{path}.key", key, fault) for fault in fields.qualified_name_faults(key)
            ]
            value = taint.get("value") or ""
            errors += [
                fields.invalid(f"{path}.value", value, fault) for fault in fields.label_value_faults(value)
            ]
            if effect not in _EFFECTS:
                errors.append(fields.not_supported(f"{path}.effect", effect, _EFFECTS))
            if (key, effect) in seen:
                duplicated = {
                    "Key": key,
                    "Value": value,
                    "Effect": effect,
                    "TimeAdded": taint.get("timeAdded"),
                }
                detail = "taints must be unique by key and effect pair"
                errors.append(fields.duplicate(path, duplicated, detail))
            seen.add((key, effect))
        return errors


@dataclass(frozen=True, slots=True)
class WorkloadStrategy(Strategy):
    """Deployment, ReplicaSet and StatefulSet: a template, and a selector that must match it and never changes."""

    has_generation: bool = True
    has_status: bool = True

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """Defaults are set and the status is empty."""
        self.default(obj)
        obj["status"] = self.initial_status(obj, view)

    def initial_status(self, obj: JsonObject, view: View) -> JsonObject:
        """Counts of nothing, as far as they are printed."""
        del view
        counts = {"Deployment": {}, "StatefulSet": {"replicas": 0, "availableReplicas": 0}}
        return counts.get(obj["kind"], {"replicas": 0})

    def default(self, obj: JsonObject) -> None:
        """Absent fields get their defaults."""
        by_kind = {"Deployment": default_deployment, "StatefulSet": default_stateful_set}
        by_kind.get(obj["kind"], default_workload)(obj)

    def prepare_update(self, new: JsonObject, old: JsonObject, view: View) -> None:
        """Defaults are set where an update left fields out."""
        del view, old
        self.default(new)

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """The rules that selector, replicas and template labels break."""
        spec = obj["spec"]
        errors: list[FieldError] = []
        if spec["replicas"] < 0:
            errors.append(
                fields.invalid("spec.replicas", spec["replicas"], "must be greater than or equal to 0")
            )
        selector = spec.get("selector")
        if selector is None:
            errors.append(fields.required("spec.selector"))
        else:
            errors += selector_errors(selector, "spec.selector")
            if not selector.get("matchLabels") and not selector.get("matchExpressions"):
                detail = f"empty selector is invalid for {obj['kind'].lower()}"
                errors.append(fields.invalid("spec.selector", selector, detail))
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        unusable = selector is not None and errors
        if not unusable and not object_selector_matches(selector, labels or {}):
            detail = "`selector` does not match template `labels`"
            errors.append(fields.invalid("spec.template.metadata.labels", labels, detail))
        if not ((spec.get("template") or {}).get("spec") or {}).get("containers"):
            errors.append(fields.required("spec.template.spec.containers"))
        return errors

    def validate_update(self, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """As at creation, and the selector is as it was."""
        errors = self.validate_create(new)
        if new["spec"].get("selector") != old["spec"].get("selector"):
            detail = "field is immutable"
            errors.append(fields.invalid("spec.selector", new["spec"].get("selector"), detail))
        return errors


@dataclass(frozen=True, slots=True)
class ReplicationControllerStrategy(Strategy):
    """ReplicationControllers select by a map of labels."""

    has_generation: bool = True
    has_status: bool = True

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """Defaults are set and the status is empty."""
        del view
        default_replication_controller(obj)
        obj["status"] = {"replicas": 0}

    def prepare_update(self, new: JsonObject, old: JsonObject, view: View) -> None:
        """Defaults are set where an update left fields out."""
        del view, old
        default_replication_controller(new)


@dataclass(frozen=True, slots=True)
class ServiceStrategy(Strategy):
    """Services get a cluster IP that nothing listens on."""

    has_status: bool = True
    returns_deleted: bool = True

    def name_faults(self, name: str) -> list[str]:
        """A service's name is a DNS label."""
        return fields.label_name_faults(name)

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """Defaults and a made-up cluster IP are set."""
        del view
        default_service(obj)
        spec = obj["spec"]
        if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
            number = int(obj["metadata"]["uid"][:4], 16)
            spec["clusterIP"] = f"10.96.{number >> 8}.{number & 255}"
            spec["clusterIPs"] = [spec["clusterIP"]]
            spec["ipFamilies"] = ["IPv4"]
            spec["ipFamilyPolicy"] = "SingleStack"
        obj["status"] = {"loadBalancer": {}}

    def prepare_update(self, new: JsonObject, old: JsonObject, view: View) -> None:
        """Defaults are set where an update left fields out, and the cluster IP stays."""
        del view
        default_service(new)
        for name in ("clusterIP", "clusterIPs"):
            if name in (old.get("spec") or {}) and not new["spec"].get(name):
                new["spec"][name] = old["spec"][name]


@dataclass(frozen=True, slots=True)
class PriorityClassStrategy(Strategy):
    """Priority classes: their value is fixed, and users' values have a ceiling."""

    has_generation: bool = True

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """The preemption policy is set."""
        del view
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
        obj.setdefault("value", 0)

    def prepare_update(self, new: JsonObject, old: JsonObject, view: View) -> None:
        """As at creation."""
        del old
        self.prepare_create(new, view)

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """The rules that value and name break."""
        if obj["metadata"].get("name", "").startswith("system-"):
            detail = (
                "priority class names with 'system-' prefix are reserved for system use only. error: "
                f"{obj['metadata']['name']} is not a known system priority class"
            )
            return [fields.forbidden("metadata.name", detail)]
        if obj["value"] > _MAX_USER_PRIORITY:
            detail = f"maximum allowed value of a user defined priority is {_MAX_USER_PRIORITY}"
            return [fields.forbidden("value", detail)]
        return []

    def validate_update(self, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """Value and preemption policy are fixed at creation."""
        errors: list[FieldError] = []
        if new["value"] != old["value"]:
            errors.append(fields.forbidden("value", "may not be changed in an update."))
        if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
            detail = "field is immutable"
            errors.append(fields.invalid("preemptionPolicy", new.get("preemptionPolicy"), detail))
        return errors


@dataclass(frozen=True, slots=True)
class DisruptionBudgetStrategy(Strategy):
    """Disruption budgets: one of two bounds."""

    has_generation: bool = True
    has_status: bool = True
    unconditional_update: bool = False

    def initial_status(self, obj: JsonObject, view: View) -> JsonObject:
        """No disruption is allowed until somebody has counted."""
        del obj, view
        return {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """The rules that the bounds and the selector break."""
        spec = obj.get("spec") or {}
        errors = list(selector_errors(spec.get("selector"), "spec.selector"))
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            detail = "minAvailable and maxUnavailable cannot be both set"
            errors.append(fields.invalid("spec", spec, detail))
        return errors


@dataclass(frozen=True, slots=True)
class SecretStrategy(Strategy):
    """Secrets are data of a type; nothing here reads them."""

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """The type is set, and what was given as text is encoded."""
        del view
        obj.setdefault("type", "Opaque")
        given = obj.pop("stringData", None) or {}
        if given:
            encoded = {name: base64.b64encode(text.encode()).decode() for name, text in given.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}

    def prepare_update(self, new: JsonObject, old: JsonObject, view: View) -> None:
        """As at creation."""
        del old
        self.prepare_create(new, view)


@dataclass(frozen=True, slots=True)
class LeaseStrategy(Strategy):
    """Leases are never overwritten blindly."""

    unconditional_update: bool = False


_DEFAULT: Final = Strategy()
_WORKLOAD: Final = WorkloadStrategy()
_STRICT_EVENTS: Final = EventStrategy(strict=True)
_BY_STORAGE: Final[Mapping[str, Strategy]] = {
    "pods": PodStrategy(),
    "nodes": NodeStrategy(),
    "namespaces": NamespaceStrategy(),
    "services": ServiceStrategy(),
    "resourcequotas": QuotaStrategy(),
    "serviceaccounts": Strategy(returns_deleted=True),
    "replicationcontrollers": ReplicationControllerStrategy(),
    "deployments.apps": _WORKLOAD,
    "replicasets.apps": _WORKLOAD,
    "statefulsets.apps": _WORKLOAD,
    "events": EventStrategy(),
    "secrets": SecretStrategy(),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": WebhookStrategy(mutates=True),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": WebhookStrategy(),
    "clusterroles.rbac.authorization.k8s.io": RoleStrategy(of_cluster=True),
    "roles.rbac.authorization.k8s.io": RoleStrategy(),
    "clusterrolebindings.rbac.authorization.k8s.io": BindingStrategy(),
    "rolebindings.rbac.authorization.k8s.io": BindingStrategy(),
    "leases.coordination.k8s.io": LeaseStrategy(),
    "priorityclasses.scheduling.k8s.io": PriorityClassStrategy(),
    "poddisruptionbudgets.policy": DisruptionBudgetStrategy(),
}


def strategy_of(kind: Kind) -> Strategy:
    """The strategy of a kind."""
    return _STRICT_EVENTS if kind.group == "events.k8s.io" else _BY_STORAGE.get(kind.storage, _DEFAULT)
