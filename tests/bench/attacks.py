"""What a user with rights in one namespace does to slow a scheduler down; each attack is a row of the hostile bench."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from scheduler.engine.model.annotations import AFFINITY
from scheduler.engine.model.limits import MAX_NODE_REQUIREMENTS, MAX_OPEN_TERMS, MAX_RESOURCES, MAX_TERMS
from tests.proof.hostile.claims import hostile_claims
from tests.support import build
from tests.support.build import HOSTNAME, ZONE, Json
from tests.support.device_documents import resource_claim, using_claims

#: The namespace of the attacker.
HOSTILE: Final = "hostile"
#: The label of half of the good pods.
VICTIM: Final = "app=shop"
_CRITICAL: Final = "system-node-critical"

#: What is done for as long as the good pods arrive, beside creating pods.
Habit = Literal[
    "", "flap pod labels", "flap namespace labels", "flap node labels", "send tokens", "raise generations"
]


@dataclass(frozen=True, slots=True)
class Attack:
    """
    `n_pods` pods, created at `pods_per_s`, and a habit. `pod` returns the keywords of `build.pod` by number, `devices`
    what the claim of a pod asks for; `pods_per_claim` pods share one.

    The rate leaves the API server room: it is the scheduler that is measured.
    """

    name: str
    n_pods: int = 0
    pod: Callable[[int], Json] = lambda _: {}
    pods_per_s: float = 30.0
    habit: Habit = ""
    devices: Callable[[int], Json] | None = None
    pods_per_claim: int = 1

    def claim(self, number: int) -> Json | None:
        """Return the claim that is created before the pod of this number; None if there is none."""
        if self.devices is None or number % self.pods_per_claim:
            return None
        metadata = {"name": self._claim_name(number), "namespace": HOSTILE}
        return {"kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": self.devices(number)}}

    def _claim_name(self, number: int) -> str:
        return f"{HOSTILE}-{number // self.pods_per_claim}"

    def document(self, number: int, scheduler: str) -> Json:
        """Return the pod of this number."""
        keywords = {**self.pod(number)}
        annotations = keywords.pop("annotations", {})
        spec = {"schedulerName": scheduler, **keywords.pop("spec", {})}
        if self.devices is not None:
            spec |= using_claims(self._claim_name(number))
        keywords.setdefault("containers", [build.container(requests={"cpu": "1m"})])
        document = build.pod(f"{HOSTILE}-{number}", namespace=HOSTILE, spec=spec, **keywords)
        document["metadata"]["annotations"] = annotations
        return document


def _open(number: int, n: int) -> list[Json]:
    """Return selectors of which each matches every pod, and no two are equal."""
    return [build.selector(f"!zz{number}-{one}") for one in range(n)]


def _victims(number: int, n: int) -> list[Json]:
    """Return selectors of which each matches every victim, and no two are equal."""
    return [build.selector(VICTIM, f"!zz{number}-{one}") for one in range(n)]


def _everywhere(selectors: Sequence[Json], key: str = ZONE) -> list[Json]:
    return [build.term(key, one, namespace_selector={}) for one in selectors]


def _weighted(terms: Sequence[Json]) -> list[tuple[int, Json]]:
    return [(1, term) for term in terms]


def _open_preferences(number: int) -> Json:
    return {"affinity": build.affinity(preferred=_weighted(_everywhere(_open(number, MAX_OPEN_TERMS))))}


def _required_terms(number: int) -> Json:
    return {"affinity": build.affinity(required=_everywhere(_victims(number, MAX_TERMS)))}


def _preferences(number: int) -> Json:
    terms = _everywhere(_victims(number, MAX_TERMS), HOSTNAME)
    return {"affinity": build.affinity(anti_preferred=_weighted(terms))}


def _large_annotation(number: int) -> Json:
    names = [f"{'n' * 50}-{number}-{one}" for one in range(3800)]
    term = build.term(ZONE, build.selector(f"app=x{number}"), namespaces=names)
    asked = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"annotations": {AFFINITY: json.dumps(asked)}}


def _flapping(number: int) -> Json:
    """Return a pod of critical priority that fits nowhere and is retried after every change of its labels."""
    affinity = build.affinity(
        required=_everywhere([build.selector("app=nobody")]),
        preferred=_weighted(_everywhere(_open(number, MAX_OPEN_TERMS))),
    )
    return {"affinity": affinity, "spec": {"priorityClassName": _CRITICAL}}


def _many_reasons(number: int) -> Json:
    asked = {f"r{one}.example/x{number % 50}": "1" for one in range(MAX_RESOURCES - 2)}
    made = build.container(requests={"cpu": "1m", **asked})
    made["resources"]["limits"] = asked
    return {"containers": [made]}


def _node_requirements(number: int) -> Json:
    terms = [
        build.node_term(*(f"!zz{number}-{term}-{one}" for one in range(31)))
        for term in range(MAX_NODE_REQUIREMENTS // 32)
    ]
    return {"affinity": build.affinity(node_required=terms)}


def _named_namespaces(number: int) -> Json:
    names = [f"{number}-{one}" for one in range(50_000)]
    return {"affinity": build.affinity(anti_required=[build.term(ZONE, {}, namespaces=names)])}


def _namespace_labels(number: int) -> Json:
    terms = [
        build.term(
            ZONE, build.selector(VICTIM), namespace_selector=build.selector(f"flapping notin {number},{one}")
        )
        for one in range(MAX_TERMS)
    ]
    return {"affinity": build.affinity(preferred=_weighted(terms))}


def _topology_keys(number: int) -> Json:
    terms = [
        build.term(f"zz{number}-{one}", one_selector, namespace_selector={})
        for one, one_selector in enumerate(_victims(number, MAX_TERMS))
    ]
    return {"affinity": build.affinity(anti_required=terms)}


ONE_DEVICE: Final = resource_claim("any")["spec"]["devices"]

ATTACKS: Final = (
    Attack("open-preferences", 1500, _open_preferences),
    Attack("required-terms", 1800, _required_terms),
    Attack("large-annotations", 1000, _large_annotation, pods_per_s=20),
    Attack("preferred-terms", 300, _preferences),
    Attack("flapping-labels", 50, _flapping, habit="flap pod labels"),
    Attack("many-reasons", 8750, _many_reasons, pods_per_s=100),
    Attack("node-requirements", 200, _node_requirements, pods_per_s=20),
    Attack("random-tokens", habit="send tokens"),
    Attack("named-namespaces", 40, _named_namespaces, pods_per_s=4),
    Attack("flapping-namespace", 300, _namespace_labels, habit="flap namespace labels"),
    Attack("topology-keys", 500, _topology_keys),
    Attack("flapping-nodes", 1500, _open_preferences, habit="flap node labels"),
    Attack("endless-search", 300, devices=lambda number: hostile_claims(number)["a search for ever"]),
    Attack("comprehensions", 300, devices=lambda number: hostile_claims(number)["nested comprehensions"]),
    Attack("generations", 300, devices=lambda _: ONE_DEVICE, habit="raise generations"),
    Attack("one-claim", 256, devices=lambda _: ONE_DEVICE, pods_per_claim=256),
)
ATTACK_BY_NAME: Final = {attack.name: attack for attack in ATTACKS}
