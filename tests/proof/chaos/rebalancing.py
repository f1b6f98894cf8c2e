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
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.loop.connection import Connection
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.port.status_server import ServingOptions
from scheduler.daemon.settings.loading import default_settings
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import POD, POD_DISRUPTION_BUDGET, JsonObject
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.tools.enforcer.limits import EvictionLimits, RebalanceLimits
from scheduler.tools.enforcer.loop import EnforcerDaemon, Options
from scheduler.tools.enforcer.metrics import EnforcementMetrics
from tests.proof.chaos.instance import OURS, Instance
from tests.proof.chaos.journal import Journal, Written, is_terminal, node_of
from tests.proof.chaos.stage import Embedded
from tests.proof.chaos.venue import Opened, Pace, Setting, pass_kill_points
from tests.proof.chaos.world import NAMESPACES, ZONES
from tests.support import build

AGENT = "enforcer"
#: The `app` label of the pods with a budget.
GUARDED = "plain"
LIMITS = RebalanceLimits(min_gain=10, hold_s=2.0, pause_s=3.0, cool_down_s=5.0)
#: Until when nodes change, and how often.
WEATHER_S = 300.0
_CHANGE_S = 15.0
#: How often the controller looks.
_LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that a life of the enforcer evicted, and whether its budget had been used up."""

    at_s: float
    by: str
    uid: str
    workload: tuple[str, str]
    node: str
    breaks_budget: bool


@dataclass
class RebalancedVenue:
    """The embedded cluster with the enforcer and the controller, which live as long as it is open."""

    seed: int
    #: Before the end there is time for every move that is left.
    pace: Pace = field(default_factory=lambda: Pace(last_at_s=WEATHER_S + 250.0, n_last=1))
    n_lives: int = 0
    #: Requests of the enforcer that change or delete a pod in another way than by an eviction.
    others: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def opened(self, journal: Journal, setting: Setting) -> AsyncIterator[Opened]:
        """Open the cluster for the duration of the run."""
        async with DevCluster(
            bookmark_interval_s=setting.bookmarks_s, history_capacity=setting.history
        ) as cluster:
            journal.follow(cluster.store)
            cluster.arrivals.append(self._on_arrival)
            server = Owning(cluster)
            tasks = [
                asyncio.create_task(self._live(cluster)),
                asyncio.create_task(control(cluster, journal, server)),
                asyncio.create_task(_weather(server, journal, random.Random(f"weather {self.seed}"))),
            ]

            def listen(instances: Sequence[Instance]) -> None:
                pass_kill_points(cluster, instances, journal)

            try:
                yield Opened(server, cluster.port, str, listen)
            finally:
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
                self.crashes += [repr(one) for one in ended if isinstance(one, Exception)]

    def _on_arrival(self, agent: str, method: str, path: str) -> None:
        if (
            agent.startswith(AGENT)
            and "/pods/" in path
            and method != "GET"
            and not path.endswith("/eviction")
        ):
            self.others.append(f"{method} {path}")

    async def _live(self, cluster: DevCluster) -> None:
        """Run lives of the enforcer, each of which loses evictions; until nodes stay as they are it dies soon."""
        chance = random.Random(f"lives {self.seed}")
        loop = asyncio.get_running_loop()
        calm_s = loop.time() + WEATHER_S
        while True:
            self.n_lives += 1
            lost = chance.choice((Effect.LOSE_ANSWER, Effect.RESPOND_AFTER, Effect.RESPOND, Effect.DROP))
            cluster.faults.add(Fault(action=lost, path="/eviction$", times=chance.choice((1, 2)), code=500))
            with suppress(TimeoutError):
                life_s = chance.choice((8.0, 30.0, 100.0))
                async with asyncio.timeout(life_s if loop.time() < calm_s else None):
                    await self._live_once(cluster.port)
            await asyncio.sleep(chance.choice((0.1, 2.0)))

    async def _live_once(self, port: int) -> None:
        logger = logging.Logger(AGENT)
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
        agent = f"{AGENT}-{self.n_lives}"
        async with KubeClient(credentials, user_agent=agent, now_s=now_s) as client:
            metrics = EnforcementMetrics(version="chaos")
            connection = Connection(client, Logger(logger))
            await EnforcerDaemon(options, metrics, connection, now_s=now_s).run()


class Owning(Embedded):
    """The embedded cluster, in which every pod has an owner and every guarded pod a budget."""

    def __init__(self, cluster: DevCluster) -> None:
        super().__init__(cluster)
        self._n_budgets = 0

    async def create(self, kind: str, obj: JsonObject) -> None:
        """Create the object, a pod with its owner, and a namespace with its budget."""
        if kind == "Pod":
            app = obj["metadata"]["labels"]["app"]
            obj["metadata"]["ownerReferences"] = [{**build.owned_by("ReplicaSet", app), "uid": app}]
        await super().create(kind, obj)
        if kind == "Namespace" and obj["metadata"]["name"] in NAMESPACES:
            budget = {
                "metadata": {"name": GUARDED},
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": GUARDED}}},
            }
            self._store.create(POD_DISRUPTION_BUDGET, obj["metadata"]["name"], budget)


async def _weather(server: Owning, journal: Journal, chance: random.Random) -> None:
    """Change a node now and then, which makes other places better."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + WEATHER_S
    while loop.time() < end_s:
        await asyncio.sleep(_CHANGE_S)
        name = chance.choice([node["metadata"]["name"] for node in server.objects("Node")])
        if chance.random() < 0.5:
            change, subresource = {"metadata": {"labels": {build.ZONE: chance.choice(ZONES)}}}, None
        else:
            change = {"status": {"allocatable": {"cpu": chance.choice(("4", "8", "16"))}}}
            subresource = "status"
        await server.patch("Node", name, change, subresource)
        journal.tell(f"weather: {name} {change}")


async def control(cluster: DevCluster, journal: Journal, server: Owning) -> None:
    """Start bound pods, end and replace evicted ones, and count for budgets, until cancelled."""
    replaced: set[str] = set()
    while True:
        await asyncio.sleep(_LOOK_S)
        for pod in server.objects("Pod"):
            meta = pod["metadata"]
            if meta["uid"] not in replaced and _is_evicted(pod):
                replaced.add(meta["uid"])
                with suppress(StatusError):
                    cluster.store.delete(POD, meta["namespace"], meta["name"], grace_period_s=0)
                with suppress(StatusError):
                    await server.create("Pod", _replacement(pod, len(replaced)))
                journal.tell(f"replaced {meta['name']}")
            elif node_of(pod) and (pod.get("status") or {}).get("phase", "Pending") == "Pending":
                running = {
                    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                }
                cluster.store.patch(POD, meta["namespace"], meta["name"], running, subresource="status")
        for budget in cluster.store.list(POD_DISRUPTION_BUDGET)[0]:
            _count(cluster, budget, server.objects("Pod"))


def _is_evicted(pod: JsonObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    evicted = any(one["type"] == "DisruptionTarget" for one in conditions)
    return evicted and bool(pod["metadata"].get("deletionTimestamp"))


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


def _count(cluster: DevCluster, budget: JsonObject, pods: list[JsonObject]) -> None:
    meta = budget["metadata"]
    mine = [one for one in pods if _is_guarded(one, meta["namespace"])]
    n_healthy = sum(map(_is_healthy, mine))
    counted = {
        "observedGeneration": meta.get("generation", 1),
        "currentHealthy": n_healthy,
        "desiredHealthy": max(0, len(mine) - 1),
        "disruptionsAllowed": max(0, n_healthy - max(0, len(mine) - 1)),
        "disruptedPods": None,
    }
    if any((budget.get("status") or {}).get(name) != value for name, value in counted.items()):
        change = {"status": counted}
        cluster.store.patch(
            POD_DISRUPTION_BUDGET, meta["namespace"], meta["name"], change, subresource="status"
        )


def _is_guarded(pod: JsonObject, namespace: str) -> bool:
    meta = pod["metadata"]
    return meta["namespace"] == namespace and meta["labels"].get("app") == GUARDED and not is_terminal(pod)


def _is_healthy(pod: JsonObject) -> bool:
    return bool(node_of(pod)) and not pod["metadata"].get("deletionTimestamp")


def evictions(journal: Journal) -> Iterator[Eviction]:
    """Yield every pod that the enforcer evicted, in order."""
    pods: dict[str, JsonObject] = {}
    for one in journal.written:
        if one.kind != "Pod":
            continue
        if _begins_end(one) and one.by.startswith(AGENT):
            pod = one.before
            assert pod is not None
            meta = pod["metadata"]
            namespace, app = meta["namespace"], meta["ownerReferences"][0]["name"]
            mine = [each for each in pods.values() if _is_guarded(each, namespace)]
            n_unhealthy = sum(not _is_healthy(each) for each in mine)
            yield Eviction(
                one.at_s,
                one.by,
                meta["uid"],
                (namespace, app),
                node_of(pod),
                breaks_budget=_is_guarded(pod, namespace) and n_unhealthy > 0,
            )
        if one.obj is None:
            pods.pop(one.key, None)
        else:
            pods[one.key] = one.obj


def _begins_end(written: Written) -> bool:
    before = written.before
    if before is None or before["metadata"].get("deletionTimestamp"):
        return False
    return written.obj is None or bool(written.obj["metadata"].get("deletionTimestamp"))


def most_per_place(found: list[Eviction]) -> int:
    """Return how often one life of the enforcer evicted pods of one workload from one node, at most."""
    return max(Counter((one.by, one.workload, one.node) for one in found).values(), default=0)
