"""
The selector of default spread constraints: what the pod's services and its owner select.

Source: plugins/helper/spread.go, DefaultSelector (kubernetes 1.36).
"""

from tests.reference.question import Object, Question, namespace_of
from tests.reference.selectors import Selector, SelectorError, from_map, parse


def default_selector(question: Question) -> Selector:
    """Return the selectors of all services that match the pod, merged with its owner's; everything if it has none."""
    merged: dict[str, str] = {}
    for service in _in_namespace(question, "Service"):
        selects = (service.get("spec") or {}).get("selector")
        if selects is not None and from_map(selects).matches(question.pod_labels):
            merged |= selects
    owner = _controller(question.pod)
    kind = (owner.get("apiVersion"), owner.get("kind"))
    if kind == ("v1", "ReplicationController"):
        for controller in _named(question, "ReplicationController", owner["name"]):
            merged |= (controller.get("spec") or {}).get("selector") or {}
    selector = from_map(merged)
    if kind in (("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")):
        for controller in _named(question, owner["kind"], owner["name"]):
            try:
                more = parse((controller.get("spec") or {}).get("selector"))
            except SelectorError:
                continue
            selector = Selector(selector.requirements + more.requirements)
    return selector


def _controller(pod: Object) -> Object:
    for reference in pod["metadata"].get("ownerReferences") or []:
        if reference.get("controller"):
            owner: Object = reference
            return owner
    return {}


def _in_namespace(question: Question, kind: str) -> list[Object]:
    return [thing for thing in question.owners.get(kind, []) if namespace_of(thing) == question.namespace]


def _named(question: Question, kind: str, name: str) -> list[Object]:
    return [thing for thing in _in_namespace(question, kind) if thing["metadata"]["name"] == name]
