"""
An enforcer that rebalances beside the scheduler of a run, and a controller that replaces what it evicts.

Every pod is owned by a ReplicaSet named after its `app` label, and a budget keeps all but one of each namespace's
`GUARDED` pods. The enforcer dies again and again while there are faults, and forgets with each life where pods left.
"""

from __future__ import annotations

import asyncio
import io
import logging
import random
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.loop.connection import Connection
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.port.status_server import ServingOptions
from scheduler.daemon.settings.loading import default_settings
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.tools.enforcer.limits import EvictionLimits, RebalanceLimits
from scheduler.tools.enforcer.loop import EnforcerDaemon, Options
from scheduler.tools.enforcer.metrics import EnforcementMetrics
from tests.proof.chaos.instance import OURS
from tests.proof.chaos.journal import Journal, Written, is_terminal, key_of, node_of
from tests.proof.chaos.stage import Embedded
from tests.proof.chaos.verdicts import Verdict, Wrong
from tests.proof.chaos.world import NAMESPACES, ZONES
from tests.support import build

_AGENT = "enforcer"
#: The `app` label of the pods with a budget.
GUARDED = "plain"
LIMITS = RebalanceLimits(min_gain=10, hold_s=2.0, pause_s=3.0, cool_down_s=5.0)
#: Until when nodes change, and how often.
_WEATHER_S = 300.0
_CHANGE_S = 15.0
#: The last events come when there was time for every move that is left, and the moves have ended so long before.
LAST_AT_S = _WEATHER_S + 250.0
_QUIET_S = 100.0
#: How often the controller looks.
_LOOK_S = 0.25


class Owning(Embedded):
    """The embedded cluster, in which every pod has an owner and every guarded pod a budget."""

    async def create(self, kind: str, obj: JsonObject) -> None:
        """Create the object, a pod with its owner, and a namespace with its budget."""
        if kind == "Pod":
            app = obj["metadata"]["labels"]["app"]
            obj["metadata"]["ownerReferences"] = [{**build.owned_by("ReplicaSet", app), "uid": app}]
        await super().create(kind, obj)
        if kind == "Namespace" and obj["metadata"]["name"] in NAMESPACES:
            guards = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": GUARDED}}}
            metadata = {"name": GUARDED, "namespace": obj["metadata"]["name"]}
            await super().create("PodDisruptionBudget", {"metadata": metadata, "spec": guards})


def beside(
    server: Embedded, cluster: DevCluster, journal: Journal, seed: int
) -> list[Coroutine[Any, Any, None]]:
    """Return what goes on beside the scheduler until it is cancelled."""
    return [
        _enforce(cluster, journal, random.Random(f"lives {seed}")),
        _control(server, journal),
        _weather(server, journal, random.Random(f"weather {seed}")),
    ]


async def _enforce(cluster: DevCluster, journal: Journal, chance: random.Random) -> None:
    """Run lives of the enforcer, each of which loses evictions; until nodes stay as they are it dies soon."""
    loop, number = asyncio.get_running_loop(), 0
    calm_s = loop.time() + _WEATHER_S
    while True:
        number += 1
        lost = chance.choice((Effect.LOSE_ANSWER, Effect.RESPOND_AFTER, Effect.RESPOND, Effect.DROP))
        cluster.faults.add(Fault(action=lost, path="/eviction$", times=chance.choice((1, 2)), code=500))
        journal.tell(f"{_AGENT}-{number} is born")
        with suppress(TimeoutError):
            life_s = chance.choice((8.0, 30.0, 100.0))
            async with asyncio.timeout(life_s if loop.time() < calm_s else None):
                await _live(cluster.port, f"{_AGENT}-{number}")
        await asyncio.sleep(chance.choice((0.1, 2.0)))


async def _live(port: int, agent: str) -> None:
    logger = logging.Logger(agent)
    logger.addHandler(logging.StreamHandler(io.StringIO()))
    settings = default_settings()
    profile = replace(settings.profiles[0], scheduler_name=OURS)
    options = Options(
        settings=replace(settings, profiles=(profile,)),
        election=None,
        limits=EvictionLimits(),
        protected=frozenset(),
        rebalance=LIMITS,
        dry_run=False,
        master=None,
        serving=ServingOptions("127.0.0.1", 0),
        verbosity=0,
        log_format="text",
    )
    credentials = await load_credentials(
        kubeconfig=None, master=f"http://127.0.0.1:{port}", environ={"HOME": "/nonexistent"}
    )
    now_s = asyncio.get_running_loop().time
    async with KubeClient(credentials, user_agent=agent, now_s=now_s) as client:
        connection = Connection(client, Logger(logger))
        await EnforcerDaemon(options, EnforcementMetrics(version="chaos"), connection, now_s=now_s).run()


async def _weather(server: Embedded, journal: Journal, chance: random.Random) -> None:
    """Change a node now and then, which makes other places better."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _WEATHER_S
    while loop.time() < end_s:
        await asyncio.sleep(_CHANGE_S)
        name = chance.choice([node["metadata"]["name"] for node in server.objects("Node")])
        change: JsonObject
        if chance.random() < 0.5:
            change, subresource = {"metadata": {"labels": {build.ZONE: chance.choice(ZONES)}}}, None
        else:
            change = {"status": {"allocatable": {"cpu": chance.choice(("4", "8", "16"))}}}
            subresource = "status"
        await server.patch("Node", name, change, subresource)
        journal.tell(f"weather: {name} {change}")


async def _control(server: Embedded, journal: Journal) -> None:
    """Start bound pods, end and replace evicted ones, and count for budgets, until cancelled."""
    replaced: set[str] = set()
    while True:
        await asyncio.sleep(_LOOK_S)
        for pod in server.objects("Pod"):
            uid = pod["metadata"]["uid"]
            if uid not in replaced and _is_evicted(pod) and pod["metadata"].get("deletionTimestamp"):
                replaced.add(uid)
                with suppress(StatusError):
                    await server.delete("Pod", key_of(pod), 0)
                with suppress(StatusError):
                    await server.create("Pod", _replacement(pod, len(replaced)))
                journal.tell(f"replaced {key_of(pod)}")
            elif node_of(pod) and (pod.get("status") or {}).get("phase", "Pending") == "Pending":
                running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                await server.patch("Pod", key_of(pod), {"status": running}, "status")
        for budget in server.objects("PodDisruptionBudget"):
            counted = _counted(budget, server.objects("Pod"))
            if any((budget.get("status") or {}).get(name) != value for name, value in counted.items()):
                await server.patch("PodDisruptionBudget", key_of(budget), {"status": counted}, "status")


def _is_evicted(pod: JsonObject) -> bool:
    """Return whether an eviction has begun; the condition is written first."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "DisruptionTarget" for one in conditions)


def _replacement(pod: JsonObject, number: int) -> JsonObject:
    """Return the pod as its controller creates it anew."""
    meta = pod["metadata"]
    own = {
        name: value
        for name, value in meta.get("annotations", {}).items()
        if name.endswith(("/fallback", "/affinity"))
    }
    metadata = {
        "name": f"{meta['name'].partition('-')[0]}-{number}",
        "namespace": meta["namespace"],
        "labels": meta["labels"],
        "annotations": own,
    }
    spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
    return {"metadata": metadata, "spec": spec}


def _counted(budget: JsonObject, pods: list[JsonObject]) -> JsonObject:
    """Return what the budget's status has to say."""
    meta = budget["metadata"]
    mine = [one for one in pods if _is_guarded(one, meta["namespace"])]
    n_healthy, n_desired = sum(map(_is_healthy, mine)), max(0, len(mine) - 1)
    return {
        "observedGeneration": meta.get("generation", 1),
        "currentHealthy": n_healthy,
        "desiredHealthy": n_desired,
        "disruptionsAllowed": max(0, n_healthy - n_desired),
        "disruptedPods": None,
    }


def _is_guarded(pod: JsonObject, namespace: str) -> bool:
    meta = pod["metadata"]
    return meta["namespace"] == namespace and meta["labels"].get("app") == GUARDED and not is_terminal(pod)


def _is_healthy(pod: JsonObject) -> bool:
    return bool(node_of(pod)) and not pod["metadata"].get("deletionTimestamp")


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that a life of the enforcer evicted, and whether its budget had been used up."""

    at_s: float
    by: str
    key: str
    #: The namespace, the owner and the node of the pod.
    place: tuple[str, str, str]
    breaks_budget: bool


def moves(journal: Journal) -> Iterator[Move]:
    """Yield every pod that the enforcer evicted, in order."""
    pods: dict[str, JsonObject] = {}
    for one in journal.written:
        if one.kind != "Pod":
            continue
        if one.by.startswith(_AGENT) and (pod := one.before) is not None and _begins_end(one):
            namespace, app = pod["metadata"]["namespace"], pod["metadata"]["ownerReferences"][0]["name"]
            is_used_up = any(_is_guarded(each, namespace) and not _is_healthy(each) for each in pods.values())
            breaks_budget = _is_guarded(pod, namespace) and is_used_up
            yield Move(one.at_s, one.by, one.key, (namespace, app, node_of(pod)), breaks_budget)
        pods.pop(one.key, None)
        if one.obj is not None:
            pods[one.key] = one.obj


def moves_kept(journal: Journal) -> Iterator[Wrong]:
    """
    Yield what the enforcer ought not to have done.

    It evicts through the Eviction API alone, one pod per pause, none whose budget is used up, and in one life none from
    where its like has left; the moves end once nodes stay as they are.
    """
    for one in journal.written:
        if one.kind == "Pod" and one.by.startswith(_AGENT) and not (one.obj is None or _is_evicted(one.obj)):
            yield Wrong(Verdict.MOVE, f"{one.by} wrote {one.key}, and evicts nobody by that", one.at_s)
    found = list(moves(journal))
    for place, times in Counter((one.by, one.place) for one in found).items():
        if times > 1:
            yield Wrong(Verdict.MOVE, f"{times} pods had to leave {place}")
    last_at_s = next((at_s for at_s, kind, _ in journal.history if kind == "BEGIN"), 0.0) + LAST_AT_S
    for move in found:
        if move.breaks_budget:
            yield Wrong(Verdict.MOVE, f"{move.by} evicted {move.key}, whose budget was used up", move.at_s)
        if last_at_s - _QUIET_S <= move.at_s < last_at_s:
            yield Wrong(
                Verdict.MOVE, f"{move.by} evicted {move.key}, long after nodes had changed", move.at_s
            )
    for first, then in pairwise(found):
        if then.at_s - first.at_s < (LIMITS.pause_s if first.by == then.by else LIMITS.hold_s):
            yield Wrong(Verdict.MOVE, f"{then.by} evicted {then.key} too soon after {first.key}", then.at_s)


def _begins_end(written: Written) -> bool:
    before = written.before
    if before is None or before["metadata"].get("deletionTimestamp"):
        return False
    return written.obj is None or bool(written.obj["metadata"].get("deletionTimestamp"))
