"""Pods and nodes hold no dict that can be changed."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.frozen_dict import FrozenDict
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_decoder import PodDecoder
from tests.support import build

CHANGES: dict[str, Callable[[Any], Any]] = {
    "set": lambda one: one.__setitem__("a", 2),
    "delete": lambda one: one.__delitem__("a"),
    "update": lambda one: one.update(a=2),
    "merge": lambda one: one.__ior__({"a": 2}),
    "clear": lambda one: one.clear(),
    "pop": lambda one: one.pop("a"),
    "pop an item": lambda one: one.popitem(),
    "set a default": lambda one: one.setdefault("b", 2),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_it_cannot_be_changed_and_is_a_dict_otherwise(change: Callable[[Any], Any]):
    one = FrozenDict({"a": 1})
    with pytest.raises(TypeError, match="a plugin only reads them"):
        change(one)
    assert one == {"a": 1} == {**one} == one.copy()
    assert msgspec.json.encode(one) == b'{"a":1}'
    assert type(copy.copy({**one})) is dict


def _dicts_in(value: Any, seen: set[int]) -> list[dict[Any, Any]]:
    """Return every dict that can be reached through fields and items."""
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, dict):
        return [value, *(each for one in value.values() for each in _dicts_in(one, seen))]
    if isinstance(value, tuple | list | frozenset | set):
        return [each for one in value for each in _dicts_in(one, seen)]
    fields = getattr(type(value), "__dataclass_fields__", ())
    return [each for name in fields for each in _dicts_in(getattr(value, name), seen)]


def test_no_dict_of_a_pod_a_node_or_a_namespace_can_be_changed():
    pod = build.pod(
        "p",
        labels={"app": "web"},
        containers=[build.container(requests={"cpu": "1"}, host_ports=["80"])],
    )
    pod["spec"]["overhead"] = {"cpu": "1m"}
    pod["spec"]["nodeSelector"] = {"disk": "ssd"}
    term = build.term("zone", {"matchLabels": {"app": "web"}})
    pod["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    node = build.node("n", labels={"zone": "a"}, allocatable={"cpu": "1"})
    node["metadata"]["annotations"] = {"price": "1"}
    read = (
        PodDecoder().decode(msgspec.json.encode(pod)),
        decode_node(msgspec.json.encode(node), ("price",)),
        KINDS["Namespace"].decode(msgspec.json.encode(build.namespace("ns", labels={"a": "b"}))),
    )
    dicts = _dicts_in(read, set())
    assert len(dicts) >= 6
    assert [one for one in dicts if not isinstance(one, FrozenDict)] == []
