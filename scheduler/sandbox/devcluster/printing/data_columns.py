"""
The columns of jobs, daemons, and the kinds that are plain data.

Source: pkg/printers/internalversion/printers.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scheduler.sandbox.devcluster.label_selectors import selector_text
from scheduler.sandbox.devcluster.printing.ages import age, human_duration
from scheduler.sandbox.devcluster.printing.columns import (
    AGE,
    CONTAINERS,
    NAME,
    SELECTOR,
    Cell,
    Column,
    Object,
    at,
    field,
    labels_text,
    of_containers,
    size,
)
from scheduler.sandbox.devcluster.timestamps import epoch_s

_ENDED: Final = ("Complete", "Failed")
_NOT_RUNNING: Final = ("Suspended", "SuccessCriteriaMet", "FailureTarget")


def _job_status(job: Object, _: float) -> Cell:
    met = {one.get("type") for one in at(job, "status.conditions", ()) if one.get("status") == "True"}
    if ended := next((name for name in _ENDED if name in met), ""):
        return ended
    if at(job, "metadata.deletionTimestamp"):
        return "Terminating"
    return next((name for name in _NOT_RUNNING if name in met), "Running")


def _job_completions(job: Object, _: float) -> Cell:
    succeeded, wanted = at(job, "status.succeeded", 0), at(job, "spec.completions")
    parallelism = at(job, "spec.parallelism", 0)
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(job: Object, now_s: float) -> Cell:
    began_s, ended_s = (epoch_s(at(job, f"status.{name}")) for name in ("startTime", "completionTime"))
    return "" if began_s is None else human_duration((now_s if ended_s is None else ended_s) - began_s)


def _last_schedule(cron_job: Object, now_s: float) -> Cell:
    last = at(cron_job, "status.lastScheduleTime")
    return age(last, now_s) if last else "<none>"


def _target(autoscaler: Object, _: float) -> Cell:
    """Return each metric's target; nothing here measures what pods use."""
    texts = []
    for metric in at(autoscaler, "spec.metrics", ()):
        resource = metric.get("resource") or metric.get("containerResource") or {}
        target: dict[str, Any] = resource.get("target") or {}
        share = target.get("averageUtilization")
        wanted = f"{share}%" if share is not None else target.get("averageValue", "<auto>")
        texts.append(f"{resource['name']}: <unknown>/{wanted}" if resource else "<unknown>")
    return ", ".join(texts) or "<none>"


def _hosts(ingress: Object, _: float) -> Cell:
    hosts = [rule["host"] for rule in at(ingress, "spec.rules", ()) if rule.get("host")]
    more = f" + {len(hosts) - 3} more..." if len(hosts) > 3 else ""
    return (",".join(hosts[:3]) + more) or "*"


DATA: Final[Mapping[str, tuple[Column, ...]]] = {
    "DaemonSet": (
        NAME,
        Column("Desired", field("status.desiredNumberScheduled", 0), "integer"),
        Column("Current", field("status.currentNumberScheduled", 0), "integer"),
        Column("Ready", field("status.numberReady", 0), "integer"),
        Column("Up-to-date", field("status.updatedNumberScheduled", 0), "integer"),
        Column("Available", field("status.numberAvailable", 0), "integer"),
        Column("Node Selector", labels_text("spec.template.spec.nodeSelector")),
        AGE,
        *CONTAINERS,
        SELECTOR,
    ),
    "Job": (
        NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        AGE,
        *CONTAINERS,
        SELECTOR,
    ),
    "CronJob": (
        NAME,
        Column("Schedule", field("spec.schedule")),
        Column("Timezone", field("spec.timeZone", "<none>")),
        Column("Suspend", lambda job, _: str(bool(at(job, "spec.suspend"))), "boolean"),
        Column("Active", size("status.active"), "integer"),
        Column("Last Schedule", _last_schedule),
        AGE,
        Column("Containers", of_containers("name", "spec.jobTemplate.spec.template"), wide=True),
        Column("Images", of_containers("image", "spec.jobTemplate.spec.template"), wide=True),
        Column(
            "Selector",
            lambda job, _: selector_text(at(job, "spec.jobTemplate.spec.selector")) or "<none>",
            wide=True,
        ),
    ),
    "HorizontalPodAutoscaler": (
        NAME,
        Column("Reference", lambda one, _: "/".join(
            str(at(one, f"spec.scaleTargetRef.{name}", "")) for name in ("kind", "name")
        )),
        Column("Targets", _target),
        Column("MinPods", lambda one, _: str(at(one, "spec.minReplicas", "<unset>"))),
        Column("MaxPods", lambda one, _: str(at(one, "spec.maxReplicas", 0))),
        Column("Replicas", lambda one, _: str(at(one, "status.currentReplicas", 0))),
        AGE,
    ),
    "NetworkPolicy": (
        NAME,
        Column("Pod-Selector", lambda one, _: selector_text(at(one, "spec.podSelector")) or "<none>"),
        AGE,
    ),
    "Ingress": (
        NAME,
        Column("Class", field("spec.ingressClassName", "<none>")),
        Column("Hosts", _hosts),
        Column("Address", lambda one, _: ",".join(
            address.get("ip") or address.get("hostname", "")
            for address in at(one, "status.loadBalancer.ingress", ())
        )),
        Column("Ports", lambda one, _: "80, 443" if at(one, "spec.tls") else "80"),
        AGE,
    ),
}  # fmt: skip
