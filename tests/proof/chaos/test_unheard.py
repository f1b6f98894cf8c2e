"""Which pods that could evict others no event had to wake: the judge excuses these, and no other ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.journal import Written, key_of
from tests.proof.chaos.unheard import is_unheard
from tests.support import build

_APART = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=alone"))])
_BESIDE = build.affinity(required=[build.term(build.HOSTNAME, build.selector("app=web"))])


def _pod(
    name: str, priority: int, *, cpu: str = "1", node: str = "", app: str = "x", **more: Any
) -> JsonObject:
    containers = [build.container(requests={"cpu": cpu})]
    spec: build.Json = {"schedulerName": "ours", "priority": priority}
    return build.pod(name, node=node or None, labels={"app": app}, containers=containers, spec=spec, **more)


def _node(cpu: str) -> JsonObject:
    return build.node("n", allocatable={"cpu": cpu})


_NAMESPACE = build.namespace("default")
_LOW = _pod("low", 0, cpu="2", node="n")
#: Keeps pods with app=alone from its node, and is too important to be evicted.
_GUARD = _pod("guard", 20, node="n", affinity=_APART)


def _excuses(begin: Sequence[JsonObject], then: Sequence[JsonObject]) -> bool:
    """Return whether the pod `high` is excused after the objects were written, one after the other."""
    there: dict[tuple[str, str], JsonObject] = {}
    written: list[Written] = []
    for obj in (*begin, *then):
        key = obj["kind"], key_of(obj)
        written.append(Written(len(written), 0.0, *key, obj, there.get(key), ""))
        there[key] = obj
    objects = {kind: [obj for (its, _), obj in there.items() if its == kind] for kind, _ in there}
    high = next(one for one in objects["Pod"] if one["metadata"]["name"] == "high")
    return is_unheard(high, objects, written)


@pytest.mark.parametrize(
    ("begin", "then", "is_excused"),
    [
        pytest.param(
            [_NAMESPACE, _node("3"), _GUARD, _LOW, _pod("high", 9, cpu="2", app="alone")],
            [_pod("high", 9, cpu="2", app="other")],
            True,
            id="its own label changed, and lack of room alone refused it",
        ),
        pytest.param(
            [
                _NAMESPACE,
                _node("3"),
                _pod("guard", 20, node="n", app="x"),
                _LOW,
                _pod("high", 9, cpu="2", affinity=_BESIDE),
            ],
            [_pod("guard", 20, node="n", app="web")],
            True,
            id="the label of another pod changed, and lack of room alone refused it",
        ),
        pytest.param(
            [_NAMESPACE, _node("1"), _LOW, _pod("high", 9, cpu="2")],
            [_node("2")],
            False,
            id="the node grew, and lack of room refused it",
        ),
        pytest.param(
            [_NAMESPACE, _node("2"), _LOW],
            [_pod("high", 9, cpu="2")],
            False,
            id="it could evict others from the first",
        ),
    ],
)
def test_a_pod_is_excused_if_nothing_that_refused_it_changed(
    begin: list[JsonObject], then: list[JsonObject], *, is_excused: bool
) -> None:
    assert _excuses(begin, then) == is_excused
