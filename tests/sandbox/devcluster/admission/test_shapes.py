"""Objects of the wrong shape: whatever is wrong, it is the client's fault and never a fault of the server."""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from scheduler.sandbox.devcluster.bootstrap import node, populate
from scheduler.sandbox.devcluster.kinds import DEPLOYMENT, EVENT, NODE, POD, JsonObject, Kind
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.patches import PatchType
from scheduler.sandbox.devcluster.storage.store import ObjectStore
from tests.support import build
from tests.support.workloads import workload

_WRONG: list[Any] = [None, -1, "", [], {}, "x", True, [1], [None], {"a": 1}, 1.5, "Bad Value!", 10**30]
_TERM = {**build.term("z", build.selector("a=b", "k in v"), namespaces=["n"]), "matchLabelKeys": ["c"]}
_AFFINITY = build.affinity(
    required=[_TERM], preferred=[(1, _TERM)], node_required=[build.node_term("k in v")]
)
_POD = build.pod(
    labels={"a": "b"},
    annotations={"a": "b"},
    node_selector={"a": "b"},
    tolerations=[build.toleration("a")],
    affinity=_AFFINITY,
    spread=[build.spread("z", None)],
    containers=[build.container(requests={"cpu": "1"}, host_ports=["80"])],
    spec={"schedulingGates": [{"name": "a.io/b"}], "volumes": [{"name": "v", "configMap": {"name": "x"}}]},
)
_POD["metadata"]["finalizers"] = ["a.io/b"]
_POD["status"] |= {"conditions": [{"type": "a", "status": "True"}], "nominatedNodeName": "n"}
_ROLLING = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}
_DEPLOYMENT = workload("Deployment", "d", build.pod(labels={"a": "b"}), 1, **_ROLLING)
_EVENT = {
    "metadata": {"name": "e"},
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": "a.io/b",
    "reportingInstance": "i",
    "action": "a",
    "reason": "r",
    "type": "Normal",
    "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"},
}


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of everything inside a JSON value."""
    steps: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for step, inner in steps:
        yield (*path, step)
        yield from _paths(inner, (*path, step))


def _with(obj: JsonObject, path: tuple[str | int, ...], value: Any) -> JsonObject:
    changed: Any = copy.deepcopy(obj)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    whole: JsonObject = changed
    return whole


@pytest.mark.parametrize(
    ("kind", "namespace", "good"),
    [
        pytest.param(POD, "default", _POD, id="pod"),
        pytest.param(NODE, "", node("n", "z", "2026-01-01T00:00:00Z"), id="node"),
        pytest.param(DEPLOYMENT, "default", _DEPLOYMENT, id="deployment"),
        pytest.param(EVENT, "default", _EVENT, id="event"),
    ],
)
def test_a_malformed_object_is_taken_or_refused_but_breaks_nothing(
    kind: Kind, namespace: str, good: JsonObject
):
    store = ObjectStore()
    populate(store, nodes=0, zones=1)
    store.create(kind, namespace, {**copy.deepcopy(good), "metadata": {"name": "good"}})
    codes: set[int] = set()
    for path in _paths(good):
        for value in _WRONG:
            bad = _with(good, path, value)
            patch = _with(bad, ("metadata",), {}) if path[0] != "metadata" else bad
            good_one = partial(store.patch, kind, namespace, "good", patch, dry_run=True)
            for attempt in (
                partial(store.create, kind, namespace, bad, dry_run=True),
                partial(good_one, patch_type=PatchType.STRATEGIC),
                partial(good_one, subresource="status" if kind is POD else None),
            ):
                try:
                    attempt()
                except StatusError as refusal:
                    codes.add(refusal.code)
    assert codes
    assert codes <= {400, 403, 404, 409, 422}
