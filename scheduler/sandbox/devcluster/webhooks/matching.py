"""
Selects the webhooks of a new pod.

Source: apiserver pkg/admission/plugin/webhook/{predicates,generic} (kubernetes 1.36).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.label_selectors import selects


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook of one configuration. `key` is unique among all."""

    key: str
    spec: JsonObject

    @property
    def name(self) -> str:
        """Return the webhook's name as messages print it."""
        return str(self.spec["name"])

    @property
    def fails_open(self) -> bool:
        """Return True if pods are created without this webhook when it cannot be called."""
        return bool(self.spec["failurePolicy"] == "Ignore")

    @property
    def is_reinvoked(self) -> bool:
        """Return True if this webhook is called again after later ones have changed the pod."""
        return self.spec.get("reinvocationPolicy") == "IfNeeded"

    def matches(self, pod: JsonObject, namespace_labels: Mapping[str, str]) -> bool:
        """Return True if this webhook is for the pod."""
        labels = (pod.get("metadata") or {}).get("labels") or {}
        return selects(self.spec["namespaceSelector"], namespace_labels) and selects(
            self.spec["objectSelector"], labels
        )


def pod_webhooks(configurations: Iterable[JsonObject]) -> list[Webhook]:
    """Return the webhooks with a rule for new pods, in the order of calls: by configuration, then as listed."""
    return [
        Webhook(f"{configuration['metadata']['name']}/{index}", spec)
        for configuration in sorted(configurations, key=lambda one: str(one["metadata"]["name"]))
        for index, spec in enumerate(configuration.get("webhooks") or [])
        if any(_is_about_new_pods(rule) for rule in spec.get("rules") or [])
    ]


def _is_about_new_pods(rule: JsonObject) -> bool:
    return (
        bool({"*", "CREATE"}.intersection(rule["operations"]))
        and bool({"*", ""}.intersection(rule["apiGroups"]))
        and bool({"*", "v1"}.intersection(rule["apiVersions"]))
        and bool({"*", "*/*", "pods", "pods/*"}.intersection(rule["resources"]))
        and rule["scope"] in ("*", "Namespaced")
    )
