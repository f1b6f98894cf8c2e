"""Venues of runs: the API server, and how fast time passes there."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from scheduler.daemon.settings.resolved import LeaderElection
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.server import user_agent
from scheduler.sandbox.devcluster.kinds import (
    LEASE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    RESOURCE_CLAIM,
)
from scheduler.sandbox.devcluster.storage.store import ObjectStore
from tests.proof.chaos.instance import ELECTION, Instance
from tests.proof.chaos.journal import Journal
from tests.proof.chaos.stage import Embedded, Server

_BINDING = re.compile(r"/pods/[^/]+/binding$")
_STATUS = re.compile(r"/pods/[^/]+/status$")
_POD = re.compile(r"/pods/[^/]+$")
#: Paths of what is reserved for a pod: volumes, and claims of devices.
_RESERVED = re.compile(r"/(persistentvolumes|persistentvolumeclaims|resourceclaims)(/|$)")


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings of a run's cluster: changes that watches can resume from, seconds between bookmarks."""

    history: int = 10_000
    bookmarks_s: float = 60.0

    @staticmethod
    def drawn(chance: random.Random) -> Setting:
        """Draw a setting."""
        return Setting(chance.choice((10_000, 10_000, 8)), chance.choice((60.0, 5.0)))


@dataclass(frozen=True, slots=True)
class Pace:
    """
    The duration of the faults, and the time after which the final state must be reached.

    The longest waits that may be in progress when the faults end are a Lease of 15 s, a pause of a watch of 30 s, and
    backoffs of 10 s. The flush after 300 s is disabled.
    """

    trouble_s: float = 40.0
    settle_s: float = 90.0
    #: Single happenings begin this long after the state is right, and follow each other at this interval:
    #: longer than a backoff, and too short for anything else to place a pod that no event woke.
    last_at_s: float = 130.0
    last_s: float = 20.0
    n_last: int = 4
    election: LeaderElection = ELECTION


@dataclass(frozen=True, slots=True)
class Opened:
    """An open cluster: the port for instances, the holder of the Lease, and how instances are observed."""

    server: Server
    port: int
    holder: Callable[[], str]
    listen: Callable[[Sequence[Instance]], None]
    #: None if it is not embedded.
    cluster: DevCluster | None = None


class Venue(Protocol):
    """Makes a cluster for one run, whose writes are recorded in the journal."""

    @property
    def pace(self) -> Pace:
        """Return how long its runs take."""
        ...

    def opened(self, journal: Journal, setting: Setting) -> AbstractAsyncContextManager[Opened]:
        """Open the cluster for the duration of the run."""
        ...


@dataclass(frozen=True)
class EmbeddedVenue:
    """The embedded cluster, in the same event loop."""

    pace: Pace = Pace()
    server: type[Embedded] = Embedded
    #: Further ones of the cluster.
    options: Mapping[str, Any] = field(default_factory=dict)

    @asynccontextmanager
    async def opened(self, journal: Journal, setting: Setting) -> AsyncIterator[Opened]:
        async with DevCluster(
            bookmark_interval_s=setting.bookmarks_s,
            history_capacity=setting.history,
            now_s=journal.now_s,
            **self.options,
        ) as cluster:
            journal.follow(cluster.store)

            def listen(instances: Sequence[Instance]) -> None:
                pass_kill_points(cluster, instances, journal)

            holder = partial(lease_holder, cluster.store)
            yield Opened(self.server(cluster), cluster.port, holder, listen, cluster)


def lease_holder(store: ObjectStore) -> str:
    """Return the instance that holds the Lease, empty if none does."""
    lease = store.find(LEASE, ELECTION.resource_namespace, ELECTION.resource_name) or {}
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def pass_kill_points(cluster: DevCluster, instances: Sequence[Instance], journal: Journal) -> None:
    """Report the kill points that the server alone knows: a bind, deletion, reservation `arrived` or was `written`."""
    by_name = {one.name: one for one in instances}

    def reach(agent: str, point: str) -> None:
        instance = by_name.get(agent.rpartition("-")[0])
        if instance is not None and instance.identity == agent:
            instance.reach(point)

    def on_arrival(agent: str, method: str, path: str) -> None:
        if method == "POST" and _BINDING.search(path):
            reach(agent, "arrived")
        elif method in ("PATCH", "POST") and _RESERVED.search(path):
            reach(agent, "reservation arrived")
        elif method == "PATCH" and _STATUS.search(path):
            reach(agent, "status arrived")
        elif method == "DELETE" and _POD.search(path):
            reach(agent, "deletion arrived")

    def on_write(kind: object, _: object) -> None:
        last = journal.written[-1]
        if kind is POD and last.bound_node and last.by:
            reach(last.by, "written")
        elif (
            kind is POD and last.by and last.obj is not None and last.obj["metadata"].get("deletionTimestamp")
        ):
            reach(last.by, "deletion written")
        elif kind in (PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, RESOURCE_CLAIM):
            reach(user_agent.get(), "reservation written")

    cluster.arrivals.append(on_arrival)
    cluster.store.history.listeners.append(on_write)


EMBEDDED = EmbeddedVenue()
