"""Pods made to hold up a scheduler: beyond the limits of `engine.model.limits`, and just within them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from scheduler.engine.model.limits import (
    MAX_NODE_REQUIREMENTS,
    MAX_OPEN_TERMS,
    MAX_RESOURCES,
    MAX_SPREAD,
    MAX_TERMS,
    MAX_TOLERATIONS,
    MAX_VALUES,
)
from tests.support import build
from tests.support.build import Json

#: Topology keys that nodes have, and values that pods have.
KEYS = [f"key-{number}" for number in range(20)]
APPS = [f"app-{number}" for number in range(1500)]


def _not(key: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": "NotIn", "values": list(values)}]}


def _terms(n: int, selects: Any, **more: Any) -> list[Json]:
    return [build.term(KEYS[i % len(KEYS)], selects(i), **more) for i in range(n)]


def _weighted(terms: list[Json]) -> list[tuple[int, Json]]:
    return [(1, term) for term in terms]


def hostile(what: str, times: int, nonce: str = "none") -> dict[str, Any]:
    """
    Return keywords of `build.pod`, with too much of one of `KINDS`; `times` 1 is as much as the limits let be.

    Another nonce asks other questions, so that nothing of an earlier answer is of use.
    """
    return _made(times, nonce)[what]()


def _made(times: int, nonce: str) -> dict[str, Callable[[], Json]]:
    """Return what makes the keywords, by what is there too much of: all of it would take seconds."""
    in_turn = [
        APPS[i % len(APPS)] if i < len(APPS) else f"{nonce}-{i}" for i in range(MAX_VALUES * times - 1)
    ]
    rules: dict[str, Callable[[], Json]] = {
        "terms, keys that nodes have": lambda: build.affinity(
            anti_required=_terms(MAX_TERMS * times, lambda i: build.selector(f"app={APPS[i]}", f"!{nonce}"))
        ),
        "terms, keys that no node has": lambda: build.affinity(
            anti_required=[
                build.term(f"{nonce}-{i}", build.selector(f"app={APPS[i]}", f"!{nonce}"))
                for i in range(MAX_TERMS * times)
            ]
        ),
        "preferred terms about everybody": lambda: build.affinity(
            preferred=_weighted(
                _terms(MAX_OPEN_TERMS * times, lambda i: _not(f"{nonce}-{i}", "a"), namespace_selector={})
            )
        ),
        "anti-affinity with everybody but some": lambda: build.affinity(
            anti_required=_terms(
                MAX_OPEN_TERMS * times,
                lambda i: _not("app", nonce, *in_turn[i * 127 : (i + 1) * 127]),
                namespace_selector={},
            )
        ),
        "one selector of many values": lambda: build.affinity(
            required=[
                build.term(
                    build.ZONE,
                    build.selector(f"app in {','.join(in_turn)}", f"!{nonce}"),
                    namespace_selector={},
                )
            ]
        ),
        "one selector of many requirements": lambda: build.affinity(
            anti_required=[
                build.term(
                    build.HOSTNAME,
                    {
                        "matchExpressions": [
                            {"key": f"{nonce}-{i}", "operator": "DoesNotExist"}
                            for i in range(MAX_VALUES * times)
                        ]
                    },
                    namespace_selector={},
                )
            ]
        ),
        "namespaces by name": lambda: build.affinity(
            anti_required=[
                build.term(
                    build.HOSTNAME,
                    build.selector("x"),
                    namespaces=[f"ns-{i}" for i in range(5000 * times)],
                )
            ]
        ),
        "node terms": lambda: build.affinity(
            node_required=[
                build.node_term(f"{KEYS[i % len(KEYS)]} in v{i}")
                for i in range(MAX_NODE_REQUIREMENTS // 2 * times)
            ]
        ),
        "preferred node terms": lambda: build.affinity(
            node_preferred=[
                (1, build.node_term(f"{KEYS[i % len(KEYS)]} in v{i}"))
                for i in range(MAX_NODE_REQUIREMENTS // 2 * times)
            ]
        ),
        "node names": lambda: build.affinity(
            node_required=[
                build.node_term(f"{build.HOSTNAME} in {','.join(f'n{i}' for i in range(9000 * times))}")
            ]
        ),
    }
    others: dict[str, Callable[[], Json]] = {
        "spread constraints": lambda: {
            "spread": [
                build.spread(KEYS[i % len(KEYS)], build.selector(f"tier={i}", f"!{nonce}"))
                for i in range(MAX_SPREAD * times)
            ]
        },
        "soft spread constraints": lambda: {
            "spread": [
                build.spread(KEYS[i % len(KEYS)], build.selector(f"tier={i}", f"!{nonce}"), soft=True)
                for i in range(MAX_SPREAD * times)
            ]
        },
        "tolerations": lambda: {
            "tolerations": [build.toleration(f"{nonce}-{i}") for i in range(MAX_TOLERATIONS * times)]
        },
        "node selector": lambda: {
            "node_selector": {f"{nonce}-{i}": "v" for i in range(MAX_NODE_REQUIREMENTS * times)}
        },
        "resources": lambda: {
            "containers": [
                build.container(requests={f"{nonce}.example/r{i}": "1" for i in range(MAX_RESOURCES * times)})
            ]
        },
        "containers": lambda: {
            "containers": [build.container(f"c{i}", requests={"cpu": "1m"}) for i in range(250 * times)]
        },
        "images": lambda: {
            "containers": [build.container(f"c{i}", image=f"image-{i}") for i in range(250 * times)]
        },
        "labels": lambda: {"labels": {f"{nonce}-{i}": "v" for i in range(1000 * times)}},
        "host ports": lambda: {
            "containers": [build.container(host_ports=[str(1024 + i) for i in range(1000 * times)])]
        },
    }
    return {**{name: partial(_ruled, rule) for name, rule in rules.items()}, **others}


def _ruled(rule: Callable[[], Json]) -> Json:
    return {"affinity": rule()}


KINDS = tuple(_made(1, ""))
