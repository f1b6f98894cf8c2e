"""The pods of a run."""

from __future__ import annotations

import json
from typing import Any

from tests.reference.fallback import FALLBACK
from tests.support import build
from tests.support.build import Json

#: The schedulerName of the scheduler that binds without any check.
NAIVE = "naive-scheduler"
#: Seconds after which a patient pod may be relaxed.
PATIENCE_S = 4
_TEAM_X = build.selector("team=x")


def _away(key: str, *labels: str, everywhere: Json | None = None) -> Json:
    """Return the settings of a pod with anti-affinity, in its namespace or in selected ones."""
    term = build.term(key, build.selector(*labels), namespace_selector=everywhere)
    return {"affinity": build.affinity(anti_required=[term])}


def _near(key: str, *labels: str, everywhere: Json | None = None) -> Json:
    term = build.term(key, build.selector(*labels), namespace_selector=everywhere)
    return {"affinity": build.affinity(required=[term])}


def _at_most_two(key: str, *labels: str) -> Json:
    """Return the settings of a pod of which a domain takes two, by annotation: our own rules have to hold too."""
    term = {**build.term(key, build.selector(*labels)), "maxPodsPerDomain": 2}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"annotations": {"affinity-scheduler.io/affinity": json.dumps(affinity)}}


def _patient(key: str, *labels: str) -> Json:
    """Return the settings of a pod whose anti-affinity becomes a preference after `PATIENCE_S`."""
    entry = {"rule": "podAntiAffinity", "topologyKey": key, "afterSeconds": PATIENCE_S}
    return {**_away(key, *labels), "annotations": {FALLBACK: json.dumps([entry])}}


#: The `app` label, and arguments of `build.pod` with `cpu`, `host_ports` and `annotations`.
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("plain", {}),
    "small": ("plain", {"cpu": "500m"}),
    "big": ("big", {"cpu": "3"}),
    "alone": ("alone", _away(build.HOSTNAME, "app=alone")),
    "zonal": ("zonal", _away(build.ZONE, "app=zonal", everywhere=_TEAM_X)),
    "hermit": ("hermit", _away(build.HOSTNAME, "app in plain,web", everywhere={})),
    "web": ("web", _near(build.ZONE, "app=web")),
    "follower": ("follower", _near(build.HOSTNAME, "app=web")),
    "zone follower": ("follower", _near(build.ZONE, "app=web", everywhere=_TEAM_X)),
    "even zones": ("even", {"spread": [build.spread(build.ZONE, build.selector("app=even"))]}),
    "even nodes": ("even", {"spread": [build.spread(build.HOSTNAME, build.selector("app=even"))]}),
    "picky": ("picky", {"node_selector": {"disk": "ssd"}}),
    "tolerant": ("tolerant", {"tolerations": [build.toleration("busy")]}),
    "two a zone": ("pair", _at_most_two(build.ZONE, "app=pair")),
    "two a node": ("pair", _at_most_two(build.HOSTNAME, "app=pair")),
    "patient": ("patient", _patient(build.ZONE, "app=patient")),
    "port": ("port", {"host_ports": ("8080",)}),
}

#: The PriorityClasses of runs with preemption. Pods of the polite one never preempt.
PRIORITY_CLASSES = {"low": 10, "middle": 100, "polite": 500, "high": 1000}
POLITE = "polite"


def _ranked(priority: str, grace_s: int = 30, **settings: Any) -> Json:
    return {"priority": priority, "grace_s": grace_s, **settings}


_EVENLY: Json = {"spread": [build.spread(build.HOSTNAME, build.selector("app=service"))]}

#: As SHAPES, with a PriorityClass and the seconds that a pod takes to end.
RANKED_SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "quick batch": ("batch", _ranked("low", 0)),
    "batch": ("batch", _ranked("low")),
    "big batch": ("batch", _ranked("low", 0, cpu="3")),
    "port batch": ("batch", _ranked("low", host_ports=("8080",))),
    "service": ("service", _ranked("middle")),
    "lone service": ("service", _ranked("middle", **_away(build.HOSTNAME, "app=service"))),
    "even service": ("service", _ranked("middle", **_EVENLY)),
    "polite": ("polite", _ranked(POLITE, cpu="2")),
    "critical": ("critical", _ranked("high", cpu="2")),
    "lone critical": ("critical", _ranked("high", 0, **_away(build.HOSTNAME, "app in critical,service"))),
    "port critical": ("critical", _ranked("high", host_ports=("8080",))),
}  # fmt: skip
#: The apps whose pods have a PodDisruptionBudget.
PROTECTED = ("batch", "service")


def shaped_pod(key: str, shape: str, scheduler: str, *, gated: bool) -> Json:
    """Return the pod as a user creates it."""
    namespace, name = key.split("/")
    app, settings = SHAPES[shape] if shape in SHAPES else RANKED_SHAPES[shape]
    settings = dict(settings)
    cpu, host_ports = settings.pop("cpu", "1"), settings.pop("host_ports", ())
    annotations = settings.pop("annotations", {})
    containers = [build.container(requests={"cpu": cpu}, host_ports=host_ports)]
    spec: Json = {"schedulerName": scheduler}
    if priority := settings.pop("priority", ""):
        spec |= {"priorityClassName": priority, "terminationGracePeriodSeconds": settings.pop("grace_s")}
    if gated:
        spec["schedulingGates"] = [{"name": "wait"}]
    if scheduler == NAIVE:
        settings, annotations = {}, {}
    pod = build.pod(
        name, namespace=namespace, labels={"app": app}, containers=containers, spec=spec, **settings
    )
    del pod["metadata"]["uid"], pod["status"]
    pod["metadata"]["annotations"] = annotations
    return pod
