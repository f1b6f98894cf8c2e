"""Clusters whose pods have claims, of devices or of volumes: what users, drivers and other schedulers do to them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from scheduler.sandbox.devcluster.admission.device_claims import DELETE_PROTECTION
from scheduler.sandbox.devcluster.bootstrap import DEFAULT_CLASS
from scheduler.sandbox.devcluster.controllers.volumes import PROVISION_AFTER_S, PROVISION_FAILURE
from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.claims import Device, devices_of, results_of
from tests.proof.chaos.groups import member_labels
from tests.proof.chaos.happenings import AddPriorityClass, BindByStranger, Change, Create, Remove, WorldEvent
from tests.proof.chaos.instance import OURS
from tests.proof.chaos.journal import key_of, node_of
from tests.proof.chaos.shapes import NAIVE, PRIORITY_CLASSES
from tests.proof.chaos.world import Actions, World
from tests.support import build, device_documents, storage_objects
from tests.support.device_documents import DRIVER

SPACE = "default"
#: As the embedded cluster creates them.
NODES = ("node-0001", "node-0002", "node-0003")
EXTENDED = "example.com/gpu"
#: Devices by template of a claim.
TEMPLATES = {"one": 1, "two": 2}
#: Claims that pods share.
SHARED = ("s0", "s1", "s2")
DEVICES_PER_NODE, _ENOUGH_DEVICES = 3, 40
#: The condition of a device that needs to be prepared.
_READY = "ready"
LOCAL = "local"
_MAX_PODS = 24
#: Any: nobody compares it.
_SOME_TIME = "2026-01-01T00:00:00Z"


def made(kind: str, obj: JsonObject) -> Create:
    """Return the creation of an object as a builder returns it."""
    obj["metadata"].pop("uid", None)
    obj.pop("status", None)
    return Create(kind, obj)


def claiming_pod(
    name: str,
    *,
    volumes: Sequence[str] = (),
    template: str = "",
    shared: str = "",
    extended: int = 0,
    resource: str = EXTENDED,
    cpu: str = "",
    scheduler: str = OURS,
    group: str = "",
    priority: str = "",
) -> Create:
    """
    Return the creation of a pod with these claims of volumes, of devices from a template and shared, and of extended
    resources. `group`: that of two pods.
    """
    claims = {"own": ("resourceClaimTemplateName", template), "shared": ("resourceClaimName", shared)}
    limits = {resource: str(extended)} if extended else {}
    container = build.container()
    container["resources"] = {"requests": limits | ({"cpu": cpu} if cpu else {}), "limits": limits}
    spec: dict[str, Any] = {
        "schedulerName": scheduler,
        "resourceClaims": [{"name": own, field: found} for own, (field, found) in claims.items() if found],
        "volumes": [
            {"name": f"v{number}", "persistentVolumeClaim": {"claimName": one}}
            for number, one in enumerate(volumes)
        ],
        "priorityClassName": priority,
    }
    wanted = {field: value for field, value in spec.items() if value}
    return made("Pod", build.pod(name, labels=member_labels(group, 2), containers=[container], spec=wanted))


class ClaimWorld(World):
    """A small cluster whose nodes stay as they are, until the faults are over and all pods fit."""

    mends = 1.0
    mixture = (0.3, 1, 1, 3)
    _n_plain = 0

    def found(self) -> list[WorldEvent]:
        names = PRIORITY_CLASSES if self._is_ranked else {}
        return [AddPriorityClass(name, value) for name, value in names.items()]

    def mend(self) -> list[WorldEvent]:
        """Return what gives every node room for all pods."""
        room = {"status": {"allocatable": {"cpu": "1000"}, "capacity": {"cpu": "1000"}}}
        return [Change("Node", node, room, "status") for node in NODES]

    def _create_plain_pod(self) -> list[WorldEvent]:
        """Create one without claims, which by its name is first at a restart."""
        self._n_plain += 1
        return [claiming_pod(f"a{self._n_plain}", **self._drawn_pod())]

    def _drawn_pod(self) -> dict[str, Any]:
        """Return the room, the scheduler and the priority of a pod."""
        chance = self._chance
        return {
            "cpu": chance.choice(("500m", "1", "2")),
            "scheduler": chance.choice([name for name in self._schedulers if name != NAIVE]),
            "priority": chance.choice((*PRIORITY_CLASSES, "")) if self._is_ranked else "",
        }


class DeviceWorld(ClaimWorld):
    """Devices on every node; claims that pods share, from templates, and for extended resources."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._generations = itertools.count(2)
        #: Whether devices are ready only some time after they are allocated.
        self._needs_preparing = self._chance.random() < 0.5
        self._taken: set[Device] = set()

    def _frequencies(self) -> Actions:
        return (
            (30, self._create_pod), (14, self._delete_pod), (6, self._finish_pod), (8, self._change_shared),
            (4, self._delete_claim), (5, self._touch_claim), (4, self._renew_slice), (12, self._prepare_some),
            (8, self._create_plain_pod),
        )  # fmt: skip

    def found(self) -> list[WorldEvent]:
        return [
            *super().found(),
            device_class(),
            *templates(),
            *(self._slice(node) for node in NODES),
        ]

    def mend(self) -> list[WorldEvent]:
        """Return what gives all pods room and devices, wherever one of their claims is allocated already."""
        self._needs_preparing = False
        renewed: list[WorldEvent] = []
        for node in NODES:
            renewed += [Remove("ResourceSlice", f"slice-{node}"), self._slice(node, _ENOUGH_DEVICES)]
        return [*super().mend(), *renewed]

    def calm(self) -> list[WorldEvent]:
        """Return the preparation of all devices."""
        return [*super().calm(), *map(prepared, self._unprepared())]

    def draw_stranger(self) -> list[WorldEvent]:
        """
        Return what a scheduler does that does not look again.

        It allocates what was free a moment ago: for pods of its own, and now and then for a claim of ours.
        """
        claims = self._objects("ResourceClaim")
        now = {device for claim in claims for device in devices_of(claim)}
        taken, self._taken = self._chance.choice((self._taken, self._taken, now)), now
        if not (waiting := [claim for claim in claims if not devices_of(claim)]):
            return []
        claim, node = self._chance.choice(waiting), self._chance.choice(NODES)
        owners = {each["uid"] for each in claim["metadata"].get("ownerReferences") or ()}
        pod = self._some("Pod", lambda one: one["metadata"]["uid"] in owners)
        is_own = pod is not None and pod["spec"]["schedulerName"] == NAIVE
        asked = claim["spec"]["devices"]["requests"][0]
        free = [(DRIVER, node, f"gpu-{each}") for each in range(DEVICES_PER_NODE)]
        found = [device for device in free if device not in taken][: asked["exactly"]["count"]]
        if len(found) < asked["exactly"]["count"] or (not is_own and self._chance.random() < 0.7):
            return []
        results = [
            {"request": asked["name"], "driver": driver, "pool": pool, "device": device}
            for driver, pool, device in found
        ]
        selects = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        allocation = {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [selects]},
            "allocationTimestamp": _SOME_TIME,
        }
        protected = Change("ResourceClaim", key_of(claim), {"metadata": {"finalizers": [DELETE_PROTECTION]}})
        if pod is None or not is_own:
            return [
                protected,
                Change("ResourceClaim", key_of(claim), {"status": {"allocation": allocation}}, "status"),
            ]
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        status = {"status": {"allocation": allocation, "reservedFor": [user]}}
        return [
            protected,
            Change("ResourceClaim", key_of(claim), status, "status"),
            BindByStranger(key_of(pod), node),
        ]

    def _slice(self, node: str, n_devices: int = DEVICES_PER_NODE) -> Create:
        return device_slice(node, n_devices, needs_preparing=self._needs_preparing)

    def _create_pod(self) -> list[WorldEvent]:
        if len(self._objects("Pod")) > _MAX_PODS:
            return self._delete_pod()
        chance, created = self._chance, list[WorldEvent]()
        for _ in range(chance.choice((1, 1, 2, 4))):
            self._n_pods += 1
            name, what = f"p{self._n_pods}", chance.random()
            template = chance.choice(("one", "one", "one", "two"))
            if chance.choice(self._schedulers) == NAIVE:
                created.append(claiming_pod(name, template=template, cpu="500m", scheduler=NAIVE))
                continue
            pod = claiming_pod(
                name,
                template=template if what < 0.6 else "",
                shared=chance.choice(SHARED) if 0.5 < what < 0.8 else "",
                extended=chance.choice((1, 1, 2)) if what > 0.8 or what < 0.1 else 0,
                **self._drawn_pod(),
            )
            created.append(pod)
        return created

    def _prepare_some(self) -> list[WorldEvent]:
        claims = self._unprepared()
        return [prepared(claim) for claim in self._chance.sample(claims, len(claims) // 2)]

    def _unprepared(self) -> list[JsonObject]:
        """Return the claims that have devices and wait for them."""
        return [
            claim
            for claim in self._objects("ResourceClaim")
            if any(each.get("bindingConditions") for each in results_of(claim))
            and not claim["status"].get("devices")
        ]

    def _change_shared(self) -> list[WorldEvent]:
        name = self._chance.choice(SHARED)
        if key_of(shared_claim(name).obj) not in map(key_of, self._objects("ResourceClaim")):
            return [shared_claim(name, self._chance.choice((1, 1, 2)))]
        return [Remove("ResourceClaim", f"{SPACE}/{name}")] if self._chance.random() < 0.4 else []

    def _delete_claim(self) -> list[WorldEvent]:
        claim = self._some("ResourceClaim")
        return [Remove("ResourceClaim", key_of(claim))] if claim else []

    def _touch_claim(self) -> list[WorldEvent]:
        claim = self._some("ResourceClaim")
        labels = {"metadata": {"labels": {"touched": str(self._chance.random())}}}
        return [Change("ResourceClaim", key_of(claim), labels)] if claim else []

    def _renew_slice(self) -> list[WorldEvent]:
        """Raise the generation of a pool, or let it be gone for a moment."""
        node = self._chance.choice(NODES)
        if f"slice-{node}" not in map(key_of, self._objects("ResourceSlice")):
            return [self._slice(node)]
        if self._chance.random() < 0.5:
            return [Remove("ResourceSlice", f"slice-{node}")]
        return [
            Change(
                "ResourceSlice", f"slice-{node}", {"spec": {"pool": {"generation": next(self._generations)}}}
            )
        ]


def device_class() -> Create:
    return made("DeviceClass", device_documents.device_class(extended_resource=EXTENDED))


def templates() -> list[Create]:
    """Return the creation of templates of claims, for one device and for two."""
    specs = {name: device_documents.resource_claim("any", count)["spec"] for name, count in TEMPLATES.items()}
    return [
        Create(
            "ResourceClaimTemplate", {"metadata": {"name": name, "namespace": SPACE}, "spec": {"spec": spec}}
        )
        for name, spec in specs.items()
    ]


def device_slice(node: str, n_devices: int = DEVICES_PER_NODE, *, needs_preparing: bool = False) -> Create:
    """Return the publication of a node's devices, for each of which a pod may have to wait until it is `prepared`."""
    conditions = {"bindingConditions": [_READY]} if needs_preparing else {}
    return made("ResourceSlice", device_documents.device_slice(node, n_devices, **conditions))


def shared_claim(name: str, count: int = 1) -> Create:
    """Return the creation of a claim for pods to share."""
    return made("ResourceClaim", device_documents.resource_claim(name, count))


def prepared(claim: JsonObject) -> Change:
    """Return that the driver says that the claim's devices are ready."""
    ready = {
        "type": _READY,
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": _SOME_TIME,
    }
    devices = [
        {"driver": driver, "pool": pool, "device": device, "conditions": [ready]}
        for driver, pool, device in devices_of(claim)
    ]
    return Change("ResourceClaim", key_of(claim), {"status": {"devices": devices}}, "status")


class VolumeWorld(ClaimWorld):
    """Claims of local volumes, and of ones that a provisioner makes, which may fail or be slow."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._n_volumes = 0
        self._has_groups = self._chance.random() < 0.3

    def _frequencies(self) -> Actions:
        return (
            (35, self._create_pod), (7, self._change_provisioner), (16, self._create_plain_pod), (8, self._remove),
        )  # fmt: skip

    def found(self) -> list[WorldEvent]:
        return [*super().found(), local_class()]

    def mend(self) -> list[WorldEvent]:
        """Return what gives all pods room, and volumes, also for claims whose own is gone or out of reach."""
        return [*super().mend(), provisioner(), *(local_volume(f"spare-{number}") for number in range(40))]

    def _create_pod(self) -> list[WorldEvent]:
        if len(self._objects("Pod")) > _MAX_PODS:
            return self._delete_pod()
        chance, created = self._chance, list[WorldEvent]()
        self._n_pods += 1
        claims = [f"c{self._n_pods}-{number}" for number in range(chance.choice((1, 1, 2)))]
        for name in claims:
            storage_class = chance.choice((LOCAL, DEFAULT_CLASS, DEFAULT_CLASS))
            created.append(volume_claim(name, storage_class))
            if storage_class == LOCAL:
                self._n_volumes += 1
                node = chance.choice(("", *NODES[:2]))
                created.append(local_volume(f"v{self._n_volumes}", node if len(claims) == 1 else ""))
        group = f"g{self._n_pods // 2}" if self._has_groups and len(claims) == 1 else ""
        return [*created, claiming_pod(f"p{self._n_pods}", volumes=claims, group=group, **self._drawn_pod())]

    def _change_provisioner(self) -> list[WorldEvent]:
        after_s = self._chance.choice((0.0, 1.0, 5.0, 15.0))
        return [provisioner(fails=self._chance.random() < 0.3, after_s=after_s)]

    def _remove(self) -> list[WorldEvent]:
        kind = self._chance.choice(("Pod", "Pod", "PersistentVolumeClaim", "PersistentVolume"))
        may_go = self._some(
            kind, lambda one: kind != "Pod" or not node_of(one) or one["metadata"]["name"].startswith("a")
        )
        return [Remove(kind, key_of(may_go))] if may_go else []


def local_class() -> Create:
    """Return the creation of the class whose volumes are made by hand."""
    return made("StorageClass", storage_objects.storage_class(LOCAL, "kubernetes.io/no-provisioner"))


def volume_claim(name: str, storage_class: str = DEFAULT_CLASS) -> Create:
    return made("PersistentVolumeClaim", storage_objects.claim(name, storage_class))


def local_volume(name: str, node: str = "") -> Create:
    """Return the creation of a volume that the node reaches; all nodes without one."""
    terms = [build.node_term(f"{build.HOSTNAME} in {node}")] if node else None
    return made("PersistentVolume", storage_objects.volume(name, LOCAL, capacity="2Gi", terms=terms))


def provisioner(*, fails: bool = False, after_s: float = 0.0) -> Change:
    """Return that the default class fails, or is slow."""
    annotations = {
        PROVISION_FAILURE: "the shelf is on fire" if fails else None,
        PROVISION_AFTER_S: str(after_s) if after_s else None,
    }
    return Change("StorageClass", DEFAULT_CLASS, {"metadata": {"annotations": annotations}})
