"""
What random lives of clusters are about, drawn by chance: nodes, pods that ask for little, configurations.

Sizes lie where something is kept or given up: 32 domains are looked at one by one, a few sums are found again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

from tests.engine.plugins.lives import CONFIGURATIONS, MB, Applied
from tests.support.build import (
    HOSTNAME,
    ZONE,
    Json,
    affinity,
    configuration,
    container,
    namespace,
    node,
    node_term,
    owned_by,
    pod,
    selector,
    service,
    spread,
    term,
    toleration,
)

NAMESPACES = ("default", "blue", "green")
RACK = "rack"

#: Rules that a pod may ask for, in the words of `tests.support.build.affinity`, and how often each is.
_RULES = {
    "required": 1,
    "anti_required": 1,
    "preferred": 3,
    "anti_preferred": 2,
    "limit": 1,
    "hard spread": 4,
    "soft spread": 4,
}


class Cluster:
    """Nodes and namespaces as they are drawn, again and again."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.n_nodes = chance.choice([10, 20, 25, 33, 40, 40, 65, 100])
        self._n_zones = chance.choice([1, 2, 3, 3, 3, 3, 3, 5, 9, 31, 33, self.n_nodes])
        self._n_racks = chance.choice([2, 3, 8, 31, 33, self.n_nodes])
        self._lacking = {ZONE: chance.choice([0.0] * 5 + [0.3]), RACK: chance.choice([0.0, 0.0, 0.5])}
        self._room = chance.choice(["3", "5", "8", "20", "110", "110"])
        self._hostnames: list[str | None] = ["", "", "", "shared", None] if chance.random() < 0.25 else [""]
        self._taints = ["k=w:PreferNoSchedule", "l:PreferNoSchedule"] if chance.random() < 0.4 else []
        self._cordons = chance.choice([0, 0, 0.1])

    def beginning(self) -> Iterator[Applied]:
        for name in NAMESPACES:
            yield self.space(name)
        for index in range(self.n_nodes):
            yield self.node(index)
        if self._chance.random() < 0.5:
            yield self.service()

    def node(self, index: int) -> Applied:
        chance = self._chance
        values = {ZONE: f"z{index % self._n_zones}", RACK: f"r{index % self._n_racks}"}
        labels = {key: value for key, value in values.items() if chance.random() >= self._lacking[key]}
        if chance.random() < 0.3:
            labels["size"] = chance.choice(["2", "5"])
        taints = self._taints[: chance.randrange(3)] if chance.random() < 0.3 else []
        made = node(
            f"n{index}",
            labels=labels,
            hostname=chance.choice(self._hostnames),
            allocatable={"pods": self._room, "cpu": chance.choice(["4", "32"])},
            taints=["k=v:NoSchedule"] if chance.random() < 0.05 else taints,
            unschedulable=chance.random() < self._cordons,
            images={"web:1": 700 * MB} if chance.random() < 0.1 else {},
        )
        return Applied(made)

    def any_node(self) -> str:
        return f"n{self._chance.randrange(self.n_nodes)}"

    def space(self, name: str) -> Applied:
        return Applied(namespace(name, labels=self._chance.choice([{}, {"team": "a"}, {"team": "b"}])))

    def service(self) -> Applied:
        return Applied(service("svc", {"app": self._chance.choice("ab")}))


class Templates:
    """What pods in a row ask for: of few topology keys, and about each other where apps are few or rules `stray`."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.apps = "abcdefghi"[: chance.choice([1, 2, 4, 9])]
        #: How likely it is that a rule is about any other app.
        self._strays = chance.choice([0, 0, 0.1, 0.5])
        self._keys = chance.choice(
            [
                [ZONE],
                [ZONE],
                [ZONE, HOSTNAME],
                [ZONE, HOSTNAME],
                [ZONE, HOSTNAME, RACK],
                [HOSTNAME],
                [RACK, ZONE],
            ]
        )

    def draw(self) -> Json:
        """Return a pod template, mostly with one or two rules: with many rules hardly any situation repeats."""
        chance = self._chance
        app = chance.choice(self.apps)
        rules = set(chance.choices([*_RULES], [*_RULES.values()], k=chance.choice([0, 1, 1, 2, 2, 3, 8])))
        own = container(
            image="web:1",
            requests=chance.choice([{}, {"cpu": "100m"}, {"cpu": "1", "memory": "64Mi"}]),
            host_ports=["80"] if chance.random() < 0.05 else [],
        )
        made = pod(
            "template",
            namespace=chance.choice(["default", "default", "default", "default", "blue", "green"]),
            labels={"app": app, **({"v": chance.choice("12")} if chance.random() < 0.3 else {})},
            affinity=affinity(**self._between_pods(app, rules), **self._to_nodes()),
            spread=self._spread(app, rules),
            tolerations=[toleration("k")] if chance.random() < 0.2 else [],
            containers=[own],
            owner=owned_by("ReplicaSet", "rs") if chance.random() < 0.2 else None,
        )
        if "limit" in rules:
            limit = {**self._term(app), "maxPodsPerDomain": chance.choice([1, 2, 3, 5])}
            far = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [limit]}}
            made["metadata"]["annotations"] = {"affinity-scheduler.io/affinity": json.dumps(far)}
        return made

    def _between_pods(self, app: str, rules: set[str]) -> Json:
        """Return arguments of `affinity`, where a preference may occur twice, or as affinity and anti-affinity."""
        chance = self._chance
        asked: Json = {}
        for side in ("required", "anti_required"):
            if side in rules:
                asked[side] = [self._term(app) for _ in range(chance.choice([1, 1, 2]))]
        for side in ("preferred", "anti_preferred"):
            if side in rules:
                weights = [chance.choice([1, 5, 50, 100]) for _ in range(chance.choice([1, 2, 3]))]
                asked[side] = [(weight, self._term(app)) for weight in weights] * chance.choice([1, 1, 2])
        if "preferred" in asked and chance.random() < 0.15:
            asked["anti_preferred"] = asked["preferred"][:1]
        return asked

    def _to_nodes(self) -> Json:
        chance = self._chance
        asked: Json = {}
        if chance.random() < 0.15:
            liked = chance.choice(["size in 2", "!rack", f"{ZONE} in z0,z1", "size gt 3"])
            asked["node_preferred"] = [(chance.choice([1, 5]), node_term(liked))]
        if chance.random() < 0.1:
            asked["node_required"] = [node_term(chance.choice(["size", f"{ZONE} notin z0", "rack"]))]
        return asked

    def _term(self, app: str) -> Json:
        chance = self._chance
        return term(
            chance.choice(self._keys),
            self._selector(app),
            namespaces=chance.choice([["default"], ["blue", "green"]]) if chance.random() < 0.15 else [],
            namespace_selector=chance.choice([selector(), selector("team=a"), selector("team notin a")])
            if chance.random() < 0.1
            else None,
        )

    def _selector(self, app: str) -> Json | None:
        if self._chance.random() >= self._strays:
            return selector(f"app={app}")
        one = selector(f"app={self._chance.choice(self.apps)}")
        others = (("app in a,b",), ("app",), (), ("app", "!v"), ("v notin 1",))
        return self._chance.choice([one, one, one, None, *(selector(*texts) for texts in others)])

    def _spread(self, app: str, rules: set[str]) -> list[Json]:
        """Return constraints; the API server accepts no two of one topology key that are both hard or both soft."""
        chance = self._chance
        asked: list[Json] = []
        for rule in ("hard spread", "soft spread"):
            if rule not in rules:
                continue
            keys = chance.sample(self._keys, min(len(self._keys), chance.choice([1, 1, 2])))
            asked += [self._spread_by(key, app, soft=rule == "soft spread") for key in keys]
        return asked

    def _spread_by(self, key: str, app: str, *, soft: bool) -> Json:
        chance = self._chance
        return spread(
            key,
            self._selector(app),
            max_skew=chance.choice([1, 1, 2, 5]),
            soft=soft,
            min_domains=chance.choice([1, 2, 4, 40]) if not soft and chance.random() < 0.2 else None,
            affinity_policy=chance.choice([None, None, "Ignore", "Honor"]),
            taints_policy=chance.choice([None, None, "Ignore", "Honor"]),
            match_label_keys=["v"] if chance.random() < 0.2 else [],
        )


def pod_of(template: Json, name: str, node: str | None = None) -> Json:
    """Return a pod like the template, on the node if there is one."""
    metadata = {**template["metadata"], "name": name, "uid": name}
    spec = {**template["spec"], **({"nodeName": node} if node else {})}
    return {**template, "metadata": metadata, "spec": spec}


_DEFAULT_SPREADS = (
    [(1, ZONE, "ScheduleAnyway"), (1, HOSTNAME, "DoNotSchedule")],
    [(3, HOSTNAME, "ScheduleAnyway"), (5, ZONE, "ScheduleAnyway")],
    [(2, RACK, "ScheduleAnyway"), (2, ZONE, "DoNotSchedule")],
)
_SCORERS = (
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeResourcesFit",
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
)


def drawn_configuration(chance: Random) -> Json | None:
    """Return a configuration, None for the default; weights may be large, and negative ones invert a preference."""
    if chance.random() < 0.3:
        return chance.choice(CONFIGURATIONS)
    args: Json = {}
    if chance.random() < 0.2:
        args["InterPodAffinity"] = {
            "hardPodAffinityWeight": chance.choice([0, 1, 40, 100]),
            "ignorePreferredTermsOfExistingPods": chance.random() < 0.2,
            "exemptNamespaces": chance.choice([[], ["blue"]]),
        }
    if chance.random() < 0.3:
        fields = ("maxSkew", "topologyKey", "whenUnsatisfiable")
        constraints = [dict(zip(fields, one, strict=True)) for one in chance.choice(_DEFAULT_SPREADS)]
        args["PodTopologySpread"] = {"defaultingType": "List", "defaultConstraints": constraints}
    if chance.random() < 0.2:
        resources = [{"name": name, "weight": 1} for name in ("cpu", "memory")]
        args["NodeResourcesFit"] = {"scoringStrategy": {"type": "MostAllocated", "resources": resources}}
    made = configuration(args)
    if chance.random() < 0.4:
        weights = [1, 2, 5, 10, 100, 4000, -1, -3]
        enabled = [
            {"name": name, "weight": chance.choice(weights)}
            for name in chance.sample(_SCORERS, chance.randint(1, 4))
        ]
        made["profiles"][0]["plugins"] = {"score": {"enabled": enabled}}
    return made
