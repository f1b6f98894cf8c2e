"""The users of a run that exchanges releases: pods with every feature that the newer release has."""

from __future__ import annotations

import asyncio
import random

from scheduler.sandbox.devcluster.gpu_driver import DRIVER, EXTENDED_RESOURCE
from tests.proof.chaos.claim_worlds import SPACE, claiming_pod, volume_claim
from tests.proof.chaos.happenings import AddNamespace, AddPod, AddPriorityClass, Create, Remove
from tests.proof.chaos.instance import OURS
from tests.proof.chaos.journal import has_claims, key_of
from tests.proof.chaos.shapes import POLITE, PRIORITY_CLASSES, RANKED_SHAPES, SHAPES
from tests.proof.chaos.stage import Server, Stage

_NAMESPACES = ("red", "blue")
#: The mean pause, and the most pods there are.
_PAUSE_S, _MAX_PODS = 0.12, 50
_CLAIMS = ("volume", "device", "resource")
#: Most pods with claims, for which there are devices.
_MAX_CLAIMS = 8
_N_SHAPES, _N_PATIENT = 10, 5
#: Pods that evict others for a host port may do so in vain, as in Kubernetes.
_SHAPES = [*SHAPES, *(shape for shape in RANKED_SHAPES if "port" not in shape)]


class Users:
    """Create and delete pods; those with claims are in a namespace of their own, and stay."""

    def __init__(self, server: Server, stage: Stage, chance: random.Random) -> None:
        self._server, self._stage, self._chance = server, stage, chance
        self._n_pods = self._n_claims = 0
        #: Some, so that many pods have the same rules. Patient ones fill their zones, and may be relaxed.
        self._shapes = [*chance.sample(_SHAPES, _N_SHAPES), "patient", "patient"]

    async def begin(self) -> None:
        """Create namespaces and PriorityClasses, more patient pods than there are zones, and pods with claims."""
        for name in _NAMESPACES:
            await self._stage.perform(AddNamespace(name, "x"))
        for name, value in PRIORITY_CLASSES.items():
            policy = "Never" if name == POLITE else "PreemptLowerPriority"
            await self._stage.perform(AddPriorityClass(name, value, policy))
        await self._stage.perform(*(AddPod(f"red/patient-{n}", "patient", OURS) for n in range(_N_PATIENT)))
        for kind in _CLAIMS:
            await self._create_with_claim(f"claims-{kind}", kind)

    async def go_on(self) -> None:
        """Create and delete pods until cancelled."""
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / _PAUSE_S))
            pods = self._server.objects("Pod")
            if len(pods) >= _MAX_PODS or (pods and self._chance.random() < 0.25):
                plain = [pod for pod in pods if not has_claims(pod)]
                if plain:
                    await self._stage.perform(Remove("Pod", key_of(self._chance.choice(plain))))
                continue
            self._n_pods += 1
            kind = self._chance.choice(_CLAIMS + ("",) * 12)
            if kind and self._n_claims < _MAX_CLAIMS:
                await self._create_with_claim(f"claims-p{self._n_pods}", kind)
            await self._create_plain(f"p{self._n_pods}")

    async def _create_with_claim(self, name: str, kind: str) -> None:
        """Create a pod with a claim of a volume or of a device, or with an extended resource."""
        self._n_claims += 1
        if kind == "volume":
            await self._stage.perform(volume_claim(name), claiming_pod(name, volumes=[name]))
        elif kind == "device":
            exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}
            devices = {"requests": [{"name": "r", "exactly": exactly}]}
            claim = {"metadata": {"name": name, "namespace": SPACE}, "spec": {"devices": devices}}
            await self._stage.perform(Create("ResourceClaim", claim), claiming_pod(name, shared=name))
        else:
            await self._stage.perform(claiming_pod(name, extended=1, resource=EXTENDED_RESOURCE))

    async def _create_plain(self, name: str) -> None:
        namespace = self._chance.choice(_NAMESPACES)
        if self._chance.random() < 0.1:
            size = self._chance.choice((2, 3))
            members = [
                AddPod(f"{namespace}/{name}-{n}", "small", OURS, False, name, size) for n in range(size)
            ]
            await self._stage.perform(*members)
        else:
            await self._stage.perform(AddPod(f"{namespace}/{name}", self._chance.choice(self._shapes), OURS))
