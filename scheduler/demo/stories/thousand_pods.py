"""Story 5: 1,000 pods on 500 nodes, and how long the decisions took."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from typing import Final

from scheduler.demo.latency import Sample, parse_sample
from scheduler.demo.made_objects import ready_node
from scheduler.demo.objects import JsonObject, Node, Pod
from scheduler.demo.stage import Stage, Story

_MANIFEST: Final = "05-service.yaml"
_SERVICES: Final = "abcdefghij"
_EACH: Final = 100
_NODES: Final = 500
_ZONES: Final = ("zone-a", "zone-b", "zone-c", "zone-d", "zone-e")
_WITHIN_S: Final = 120.0
_POLL_S: Final = 0.05


async def _play(stage: Stage) -> None:
    show = stage.show
    await stage.add_nodes(_more_nodes(await stage.nodes()))
    show.step(f"the cluster has {_NODES} nodes now, {_NODES // len(_ZONES)} in each of {len(_ZONES)} zones")
    before = parse_sample(await stage.metrics())
    began_s = time.monotonic()
    for service in _SERVICES:
        swap = None if service == "a" else ("service-a", f"service-{service}")
        await stage.apply(_MANIFEST, swap, quiet=service not in "ab")
    show.line("    ... and so on up to service-j")
    total = _EACH * len(_SERVICES)
    await _all_placed(stage, total)
    took_s = time.monotonic() - began_s
    decisions = await _decisions(stage, before, total)
    await stage.wait_ready(total, within_s=_WITHIN_S)
    pods = await stage.check()
    stage.expect(sum(bool(pod.spec.node_name) for pod in pods) == total, f"{total} pods with a node")
    await _draw(stage, pods)
    _report(stage, decisions, took_s)


async def _all_placed(stage: Stage, total: int) -> None:
    def placed() -> int:
        return sum(bool(pod.spec.node_name) for pod in stage.watch.pods(stage.namespaces))

    await stage.watch.until(
        lambda: placed() == total,
        within_s=_WITHIN_S,
        failing=lambda: f"{placed()} of {total} pods have a node",
        on_look=lambda: stage.show.progress(placed(), total, "pods placed"),
    )


async def _decisions(stage: Stage, before: Sample, total: int) -> Sample:
    """Return the decisions on all pods; wait for the last, since the watch may show a bind before it is answered."""
    ends_s = time.monotonic() + _WITHIN_S
    while (decisions := parse_sample(await stage.metrics()) - before).scheduled != total:
        claim = f"{total} pods in the scheduler's metrics, found {decisions.scheduled:.0f}"
        stage.expect(time.monotonic() < ends_s, claim)
        await asyncio.sleep(_POLL_S)
    return decisions


def _more_nodes(there: list[Node]) -> list[JsonObject]:
    """Return nodes that fill the cluster up to its size, alike in every zone."""
    count = Counter(node.zone for node in there)
    share = _NODES // len(_ZONES)
    return [
        ready_node(f"fleet-{zone}-{i:03d}", zone)
        for zone in _ZONES
        for i in range(1, share - count[zone] + 1)
    ]


async def _draw(stage: Stage, pods: list[Pod]) -> None:
    """Draw per zone: nodes, pods, and how many pods of each service."""
    nodes = await stage.nodes()
    zone_by_node = {node.metadata.name: node.zone for node in nodes}
    fullest = Counter(pod.spec.node_name for pod in pods)
    by_zone: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        by_zone[zone_by_node[pod.spec.node_name]][pod.metadata.labels["app"].removeprefix("service-")] += 1
    rows = [
        [
            zone,
            str(sum(node.zone == zone for node in nodes)),
            str(by_zone[zone].total()),
            str(max((n for name, n in fullest.items() if zone_by_node[name] == zone), default=0)),
            *(str(by_zone[zone][service] or "-") for service in _SERVICES),
        ]
        for zone in sorted(set(zone_by_node.values()))
    ]
    stage.show.figures(("ZONE", "NODES", "PODS", "FULLEST", *_SERVICES), rows)
    stage.show.line("  fullest: pods on the zone's fullest node; a to j: pods of that service")
    stage.show.line()


def _report(stage: Stage, decisions: Sample, took_s: float) -> None:
    p50_s, p99_s = decisions.quantile_s(0.5), decisions.quantile_s(0.99)
    stage.show.good(
        f"one decision over {_NODES} nodes: p50 {p50_s * 1e3:.2f} ms, p99 {p99_s * 1e3:.2f} ms, "
        f"mean {decisions.mean_s * 1e3:.2f} ms ({decisions.decisions:.0f} decisions)"
    )
    stage.show.good(
        f"{decisions.scheduled / took_s:,.0f} pods per second from `kubectl apply` to a node, with API server, "
        f"controllers and this screen on the same machine; decisions alone would make "
        f"{1 / decisions.mean_s:,.0f} per second"
    )


STORY: Final = Story(
    "1,000 pods on 500 nodes",
    "Ten services of 100 pods: never two of a service on a node (required), all of a service in one zone if "
    "possible (preferred). Times come from the scheduler's /metrics, quantiles as histogram_quantile computes them.",
    _play,
)
