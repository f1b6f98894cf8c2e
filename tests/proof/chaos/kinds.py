"""The kinds of runs, and the schedulers that take part in them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from scheduler.sandbox.devcluster.cluster import DevCluster
from tests.proof.chaos import rebalancing
from tests.proof.chaos.claim_worlds import NODES, DeviceWorld, VolumeWorld
from tests.proof.chaos.claims import n_collisions
from tests.proof.chaos.faulting import Targets
from tests.proof.chaos.group_world import GROUP_SHAPES, GroupWorld
from tests.proof.chaos.groups import group_of
from tests.proof.chaos.instance import OURS
from tests.proof.chaos.journal import Journal
from tests.proof.chaos.nominations import nomination_of
from tests.proof.chaos.stage import Embedded
from tests.proof.chaos.venue import EMBEDDED, EmbeddedVenue, Pace, Venue
from tests.proof.chaos.world import World
from tests.reference.fallback import marked

THEIRS = "theirs"


class Shape(Enum):
    """
    The schedulers: one; two that share a Lease; two with different names, or these and one that does not look again.

    Ranked ones have pods with priorities, and evict.
    """

    ALONE = "alone"
    ELECTED = "elected"
    RIVALS = "rivals"
    RANKED = "ranked"
    RANKED_ELECTED = "ranked-elected"
    CARELESS = "careless"

    @property
    def is_ranked(self) -> bool:
        """Whether pods have priorities."""
        return self in (Shape.RANKED, Shape.RANKED_ELECTED)

    @property
    def is_elected(self) -> bool:
        """Whether the instances share a Lease."""
        return self in (Shape.ELECTED, Shape.RANKED_ELECTED)

    @property
    def scheduler_of(self) -> Mapping[str, str]:
        """Return the schedulerName of each instance."""
        if self is Shape.ALONE:
            return {"one": OURS}
        return {"first": OURS, "second": OURS} if self.is_elected else {"left": OURS, "right": THEIRS}


@dataclass(frozen=True)
class Kind:
    """
    A kind of runs.

    Attributes:
        name: its flag.
        says: what is special about its pods.
        shapes: those that it has runs of.
        naive: those of them with a third scheduler, which binds without any check.
        pods: the shapes of its pods; none stands for all.
        targets: what faults are about, if pods have claims.
        beside: returns what goes on beside the schedulers.
        may_collide: whether a device may be allocated that another claim has: by others, or since an answer is lost.
        shows: what happens in its runs, and how often it did in one; without that they prove little.
    """

    name: str
    says: str
    shapes: tuple[Shape, ...]
    naive: tuple[Shape, ...] = ()
    world: type[World] = World
    pods: tuple[str, ...] = ()
    venue: Venue = EMBEDDED
    targets: Targets | None = None
    beside: Callable[[Embedded, DevCluster, Journal, int], list[Coroutine[Any, Any, None]]] = lambda *_: []
    may_collide: bool = False
    shows: Mapping[str, Callable[[Journal], int]] = field(default_factory=dict)


def _n_groups(journal: Journal) -> int:
    return len({group_of(one.obj) for one in journal.written if one.bound_node and one.obj} - {""})


def _n_relaxed(journal: Journal) -> int:
    pods = [one.obj for one in journal.written if one.kind == "Pod" and one.obj is not None]
    return len({pod["metadata"]["uid"] for pod in pods if marked(pod)})


def _n_nominated(journal: Journal) -> int:
    """Return how often a pod was nominated that waits between Reserve and Bind."""
    pods = [(one.obj, one.before) for one in journal.written if one.kind == "Pod"]
    return sum(
        bool(obj and before and nomination_of(obj) and not nomination_of(before)) for obj, before in pods
    )


_ALL = (Shape.ALONE, Shape.ELECTED, Shape.RIVALS, Shape.RANKED, Shape.RANKED_ELECTED)
_WITH_NAIVE = (Shape.RIVALS, Shape.RANKED)
#: Longer than a Lease, a backoff and a wait for what a lost answer has written; controllers wait by the run's clock.
_WITH_CLAIMS = EmbeddedVenue(
    Pace(settle_s=200.0, n_last=0), options={"nodes": len(NODES), "zones": len(NODES), "controllers": True}
)

PLAIN = Kind("plain", "pods have no claims, and none is in a group", _ALL, _WITH_NAIVE)
GROUPS = Kind(
    "groups",
    "most pods are members of groups",
    _ALL,
    _WITH_NAIVE,
    world=GroupWorld,
    pods=GROUP_SHAPES,
    shows={"groups placed": _n_groups},
)
FALLBACKS = Kind(
    "fallbacks",
    "many pods have rules that may be relaxed",
    _ALL[:3],
    _WITH_NAIVE,
    pods=("patient", "patient", "plain", "zonal"),
    shows={"pods relaxed": _n_relaxed},
)
DEVICES = Kind(
    "devices",
    "pods have claims of devices, which other schedulers allocate too",
    (*_ALL, Shape.CARELESS),
    (Shape.CARELESS,),
    world=DeviceWorld,
    venue=_WITH_CLAIMS,
    targets=Targets(
        (*["resourceclaims.resource.k8s.io"] * 2, "resourceslices.resource.k8s.io", "pods"),
        r"/resourceclaims(/|$)",
        ("patch", "patch", "patch", "create", "get", "delete"),
        (409, 429, 500, 503),
    ),
    may_collide=True,
    shows={"claims allocated with a device that another had": n_collisions},
)
VOLUMES = Kind(
    "volumes",
    "pods have claims of volumes, whose provisioners fail and stall",
    (Shape.ALONE, Shape.ELECTED, Shape.RANKED_ELECTED),
    world=VolumeWorld,
    venue=_WITH_CLAIMS,
    targets=Targets(
        ("persistentvolumes", "persistentvolumeclaims", "pods"),
        r"/persistentvolume(claim)?s/[^/]+$",
        ("patch", "patch", "get"),
        (503,),
    ),
    shows={"nominations": _n_nominated},
)
REBALANCING = Kind(
    "rebalancing",
    "an enforcer moves pods to better nodes",
    (Shape.ALONE,),
    pods=("patient", "patient", "plain", "plain", "zonal", "even zones"),
    venue=EmbeddedVenue(Pace(last_at_s=rebalancing.LAST_AT_S, n_last=1), server=rebalancing.Owning),
    beside=rebalancing.beside,
    shows={"moves": lambda journal: len([*rebalancing.moves(journal)])},
)
KINDS: Mapping[str, Kind] = MappingProxyType(
    {kind.name: kind for kind in (PLAIN, GROUPS, FALLBACKS, DEVICES, VOLUMES, REBALANCING)}
)
