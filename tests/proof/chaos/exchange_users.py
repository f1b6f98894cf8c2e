"""The users of a run that exchanges releases: pods with every feature that the newer release has."""

from __future__ import annotations

import asyncio
import random

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.gpu_driver import DRIVER, EXTENDED_RESOURCE
from scheduler.sandbox.devcluster.kinds import POD, RESOURCE_CLAIM, JsonObject
from tests.proof.chaos.claim_stage import SPACE
from tests.proof.chaos.happenings import AddNamespace, AddPod, AddPriorityClass, Happening, Remove
from tests.proof.chaos.instance import OURS
from tests.proof.chaos.journal import key_of
from tests.proof.chaos.shapes import POLITE, PRIORITY_CLASSES, RANKED_SHAPES, SHAPES
from tests.proof.chaos.stage import Stage
from tests.proof.chaos.volume_stage import VolumeStage
from tests.support.device_documents import using_claims

_NAMESPACES = ("red", "blue")
#: The mean pause, and the most pods there are.
_PAUSE_S, _MAX_PODS = 0.12, 50
#: Most pods with claims, for which there are devices.
_MAX_CLAIMS = 8
_N_SHAPES, _N_PATIENT = 10, 5
#: Pods that evict others for a host port may do so in vain, as in Kubernetes.
_SHAPES = [*SHAPES, *(shape for shape in RANKED_SHAPES if "port" not in shape)]


class Users:
    """Create and delete pods; those with claims are in a namespace of their own, and stay."""

    def __init__(
        self, cluster: DevCluster, stage: Stage, volumes: VolumeStage, chance: random.Random
    ) -> None:
        self._cluster, self._stage, self._volumes, self._chance = cluster, stage, volumes, chance
        self._n_pods = self._n_claims = 0
        #: Some, so that many pods have the same rules. Patient ones fill their zones, and may be relaxed.
        self._shapes = [*chance.sample(_SHAPES, _N_SHAPES), "patient", "patient"]

    async def begin(self) -> None:
        """Create namespaces and PriorityClasses, and more patient pods than there are zones."""
        for name in _NAMESPACES:
            await self._perform(AddNamespace(name, "x"))
        for name, value in PRIORITY_CLASSES.items():
            policy = "Never" if name == POLITE else "PreemptLowerPriority"
            await self._perform(AddPriorityClass(name, value, policy))
        await self._perform(*(AddPod(f"red/patient-{n}", "patient", OURS) for n in range(_N_PATIENT)))

    async def go_on(self) -> None:
        """Create and delete pods until cancelled."""
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / _PAUSE_S))
            pods = self._cluster.store.list(POD)[0]
            if len(pods) >= _MAX_PODS or (pods and self._chance.random() < 0.25):
                plain = [pod for pod in pods if not has_claims(pod)]
                if plain:
                    await self._perform(Remove("Pod", key_of(self._chance.choice(plain))))
                continue
            self._n_pods += 1
            self._create_with_claim(f"p{self._n_pods}")
            await self._create_plain(f"p{self._n_pods}")

    def _create_with_claim(self, name: str) -> None:
        """Create now and then a pod with a claim of a volume or of a device, or with an extended resource."""
        kind = self._chance.choice(["volume", "device", "resource"] + [""] * 12)
        if not kind or self._n_claims >= _MAX_CLAIMS:
            return
        self._n_claims += 1
        if kind == "volume":
            self._volumes.add_claim(f"claims-{name}")
            self._volumes.add_pod(f"claims-{name}", f"claims-{name}")
            return
        container: JsonObject = {"name": "c", "image": "c:1"}
        spec: JsonObject = {"schedulerName": OURS, "containers": [container]}
        if kind == "device":
            exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}
            devices = {"requests": [{"name": "r", "exactly": exactly}]}
            made = {"metadata": {"name": f"claims-{name}"}, "spec": {"devices": devices}}
            self._cluster.store.create(RESOURCE_CLAIM, SPACE, made)
            spec |= using_claims(f"claims-{name}")
        else:
            amounts = {EXTENDED_RESOURCE: "1"}
            container["resources"] = {"requests": amounts, "limits": amounts}
        self._cluster.store.create(POD, SPACE, {"metadata": {"name": f"claims-{name}"}, "spec": spec})

    async def _create_plain(self, name: str) -> None:
        namespace = self._chance.choice(_NAMESPACES)
        if self._chance.random() < 0.1:
            size = self._chance.choice((2, 3))
            members = [
                AddPod(f"{namespace}/{name}-{n}", "small", OURS, False, name, size) for n in range(size)
            ]
            await self._perform(*members)
        else:
            await self._perform(AddPod(f"{namespace}/{name}", self._chance.choice(self._shapes), OURS))

    async def _perform(self, *happenings: Happening) -> None:
        for happening in happenings:
            await self._stage.perform(happening)


def wants_resource(pod: JsonObject) -> bool:
    """Return whether the pod requests GPUs as an extended resource."""
    containers = pod["spec"]["containers"]
    return any(
        EXTENDED_RESOURCE in ((each.get("resources") or {}).get("requests") or {}) for each in containers
    )


def has_claims(pod: JsonObject) -> bool:
    """Return whether the pod has volumes or devices, or requests GPUs."""
    return bool(pod.get("spec")) and (
        bool(pod["spec"].get("resourceClaims")) or bool(pod["spec"].get("volumes")) or wants_resource(pod)
    )
