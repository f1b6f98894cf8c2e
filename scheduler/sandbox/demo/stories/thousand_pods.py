"""1,000 pods on 500 nodes, and how long the decisions took."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from typing import Final

from scheduler.sandbox.demo.api import JsonObject
from scheduler.sandbox.demo.pod_watch import node_of
from scheduler.sandbox.demo.processes import text_of
from scheduler.sandbox.demo.stage import ZONE, Stage, Story, ready_node
from scheduler.sandbox.demo.waiting import until

_MANIFEST: Final = "05-service.yaml"
_SERVICES: Final = "abcdefghij"
_EACH: Final = 100
_TOTAL: Final = _EACH * len(_SERVICES)
_NODES: Final = 500
_ZONES: Final = ("zone-a", "zone-b", "zone-c", "zone-d", "zone-e")
_WITHIN_S: Final = 120.0


async def _play(stage: Stage) -> None:
    show = stage.show
    share = _NODES // len(_ZONES)
    there = Counter((await stage.region_by_node()).values())
    await stage.add_nodes(
        [
            ready_node(f"fleet-{zone}-{i:03d}", {ZONE: zone})
            for zone in _ZONES
            for i in range(1, share - there[zone] + 1)
        ]
    )
    n_bound = sum((await _throughput(stage))["bound"])
    began_s = time.monotonic()
    for service in _SERVICES:
        swap = None if service == "a" else ("service-a", f"service-{service}")
        await stage.apply(_MANIFEST, swap, quiet=service not in "ab")
    show.step("... and so on up to service-j")
    took_s = await _placed(stage) - began_s
    decision = (await _counted(stage, n_bound + _TOTAL))["decision"]
    await _draw(stage)
    p50_ms, p99_ms = (decision[each] * 1e3 for each in ("p50", "p99"))
    show.good(
        f"one decision, nearly all over {_NODES} nodes: p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms; "
        f"{_TOTAL / took_s:,.0f} pods/s with API server, controllers and this screen on one machine"
    )


async def _placed(stage: Stage) -> float:
    """Wait until all pods have a node; return the time."""

    def placed() -> int:
        return sum(bool(node_of(pod)) for pod in stage.watch.pods(stage.namespaces))

    await until(
        lambda: placed() == _TOTAL,
        lambda: f"{placed()} of {_TOTAL} pods have a node",
        within_s=_WITHIN_S,
    )
    return time.monotonic()


async def _counted(stage: Stage, n_bound: int) -> JsonObject:
    """Return the throughput once so many pods are bound: a watch may show a bind before it is answered."""
    found: list[JsonObject] = []

    async def is_whole() -> bool:
        found.append(await _throughput(stage))
        return sum(found[-1]["bound"]) >= n_bound

    await until(is_whole, lambda: f"the scheduler says {sum(found[-1]['bound'])} of {n_bound} pods are bound")
    return found[-1]


async def _throughput(stage: Stage) -> JsonObject:
    """Return what the scheduler's page shows of the last quarter of an hour."""
    shown: JsonObject = json.loads(await text_of(f"{stage.scheduler_url}/api/v1/now"))["throughput"]
    return shown


async def _draw(stage: Stage) -> None:
    """Draw the nodes of each zone, its pods, and how many pods of each service."""
    zones = await stage.region_by_node()
    by_zone: defaultdict[str, Counter[str]] = defaultdict(Counter)
    nodes_by_service: defaultdict[str, set[str]] = defaultdict(set)
    for pod in await stage.pods():
        service = pod["metadata"]["labels"]["app"].removeprefix("service-")
        by_zone[zones[node_of(pod)]][service] += 1
        nodes_by_service[service].add(node_of(pod))
    stage.expect(
        all(len(nodes) == _EACH for nodes in nodes_by_service.values()), "a node for each pod of a service"
    )
    rows = [
        [
            zone,
            str(n_nodes),
            str(by_zone[zone].total()),
            *(str(by_zone[zone][one] or "-") for one in _SERVICES),
        ]
        for zone, n_nodes in sorted(Counter(zones.values()).items())
    ]
    stage.show.figures(("ZONE", "NODES", "PODS", *_SERVICES), rows)


STORY: Final = Story(
    "A thousand pods with affinity",
    "Ten services of 100 pods on 500 nodes: never two of a service on one node, and each service in one zone if "
    "possible. Schedulers get slow where every pod asks about all others.",
    _play,
)
