"""
The Prometheus series of scheduling; names, labels, buckets and help are kube-scheduler's.

Numbers that the queue and the state hold (queue depths, arrivals, cache sizes) are read at every scrape. Everything
else is reported through the methods of `Metrics`, which the loop passes on as callbacks. Dashboards and alerts made
for kube-scheduler work; our additions begin with `affinity_scheduler_`.

Source: pkg/scheduler/metrics/metrics.go (kubernetes 1.36); series that are not about scheduling are in `process`.
Differences: `event_handling_duration_seconds` has our stimuli as its events; see `instrument` for
`plugin_execution_duration_seconds`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from scheduler.daemon.metrics.instrument import CycleObserver
from scheduler.daemon.metrics.process import ControllerMetrics
from scheduler.daemon.metrics.series import MAX_SERIES, Family, Numbers, exponential_bounds
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.instructions import Attempted, DevicesAwaited, GroupAttempted
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.devices import Devices

SCHEDULE_ATTEMPTS: Final = Family(
    "scheduler_schedule_attempts_total",
    "[STABLE] Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be "
    "scheduled, while 'error' means an internal scheduler problem.",
    ("result", "profile"),
)
ATTEMPT_DURATION: Final = Family(
    "scheduler_scheduling_attempt_duration_seconds",
    "[STABLE] Scheduling attempt latency in seconds (scheduling algorithm + binding)",
    ("result", "profile"),
    exponential_bounds(0.001, 2, 15),
)
ALGORITHM_DURATION: Final = Family(
    "scheduler_scheduling_algorithm_duration_seconds",
    "[ALPHA] Scheduling algorithm latency in seconds",
    bounds=exponential_bounds(0.001, 2, 15),
)
DECISION_DURATION: Final = Family(
    "affinity_scheduler_decision_duration_seconds",
    "Scheduling algorithm latency in seconds, as scheduler_scheduling_algorithm_duration_seconds, whose buckets begin "
    "at 1 ms.",
    bounds=exponential_bounds(0.00002, 2, 16),
)
POD_ATTEMPTS: Final = Family(
    "scheduler_pod_scheduling_attempts",
    "[STABLE] Number of attempts to successfully schedule a pod.",
    bounds=exponential_bounds(1, 2, 5),
)
POD_SLI_DURATION: Final = Family(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "[BETA] E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might "
    "involve multiple scheduling attempts.",
    ("attempts",),
    exponential_bounds(0.01, 2, 20),
)
POD_AFTER_FLUSH: Final = Family(
    "scheduler_pod_scheduled_after_flush_total",
    "[ALPHA] Number of pods that were successfully scheduled after being flushed from unschedulablePods due to "
    "timeout. This metric helps detect potential queueing hint misconfigurations or event handling issues.",
)
PENDING_PODS: Final = Family(
    "scheduler_pending_pods",
    "[STABLE] Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means "
    "number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler "
    "attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never "
    "attempted to schedule because they are gated.",
    ("queue",),
)
QUEUE_INCOMING: Final = Family(
    "scheduler_queue_incoming_pods_total",
    "[STABLE] Number of pods added to scheduling queues by event and queue type.",
    ("queue", "event"),
)
UNSCHEDULABLE_PODS: Final = Family(
    "scheduler_unschedulable_pods",
    "[BETA] The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all "
    "plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.",
    ("plugin", "profile"),
)
EXTENSION_POINT_DURATION: Final = Family(
    "scheduler_framework_extension_point_duration_seconds",
    "[STABLE] Latency for running all plugins of a specific extension point.",
    ("extension_point", "status", "profile"),
    exponential_bounds(0.0001, 2, 12),
)
PLUGIN_DURATION: Final = Family(
    "scheduler_plugin_execution_duration_seconds",
    "[ALPHA] Duration for running a plugin at a specific extension point. Filter and Score are one call for all "
    "nodes here.",
    ("plugin", "extension_point", "status"),
    exponential_bounds(0.00001, 1.5, 20),
)
PLUGIN_EVALUATION: Final = Family(
    "scheduler_plugin_evaluation_total",
    "[BETA] Number of attempts to schedule pods by each plugin and the extension point (available only in "
    "PreFilter, Filter, PreScore, and Score).",
    ("plugin", "extension_point", "profile"),
)
EVENT_HANDLING_DURATION: Final = Family(
    "scheduler_event_handling_duration_seconds",
    "[ALPHA] Event handling latency in seconds.",
    ("event",),
    exponential_bounds(0.0001, 2, 12),
)
CACHE_SIZE: Final = Family(
    "scheduler_cache_size",
    "[ALPHA] Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
    ("type",),
)
CACHE_DIVERGENCES: Final = Family(
    "affinity_scheduler_cache_divergences_total",
    "Number of objects whose cached version differed from a list; each is a lost watch event.",
    ("kind",),
)
UNREADABLE_BINDS: Final = Family(
    "affinity_scheduler_unreadable_binds_total",
    "Number of binds whose answer was lost and whose pod may not be read, so that a list or the watch decided their "
    "outcome; the role lacks the verb get on pods.",
)
LOOP_LAG: Final = Family(
    "affinity_scheduler_loop_lag_seconds",
    "Lag of the event loop: the delay of a task that was due.",
    bounds=exponential_bounds(0.001, 2, 12),
)
KUBELET_REFUSALS: Final = Family(
    "affinity_scheduler_kubelet_refusals_total",
    "Number of pods bound by this scheduler that a kubelet rejected (OutOfcpu and similar reasons).",
)
LEFT_OUT: Final = Family(
    "affinity_scheduler_left_out_nodes",
    "Number of pairs of pod spec and node that are excluded now because the kubelet rejected such a pod.",
)
KEPT_BY_ANNOTATIONS: Final = Family(
    "affinity_scheduler_pods_kept_by_annotations",
    "Number of pending pods that would fit if no annotation declared affinity; autoscalers may add no node for them.",
)
NAMESPACES_OVER_SHARE: Final = Family(
    "affinity_scheduler_namespaces_over_share",
    "Number of namespaces whose pods go behind others of equal priority, since their cycles lately took more than "
    "their share of the time.",
)
RELAXED_RULES: Final = Family(
    "affinity_scheduler_relaxed_rules_total",
    "Number of required rules that counted as preferred when their pod was bound, since their fallback was due.",
    ("rule",),
)

PREEMPTION_ATTEMPTS: Final = Family(
    "scheduler_preemption_attempts_total",
    "[STABLE] Total preemption attempts in the cluster till now.",
)
PREEMPTION_VICTIMS: Final = Family(
    "scheduler_preemption_victims",
    "[STABLE] Number of selected preemption victims.",
    bounds=exponential_bounds(1, 2, 7),
)
GROUP_ATTEMPTS: Final = Family(
    "scheduler_podgroup_schedule_attempts_total",
    "[ALPHA] Number of attempts to schedule pod groups, by the result. 'unschedulable' means a pod group could not be "
    "scheduled, while 'error' means an internal scheduler problem.",
    ("result", "profile"),
)
GROUP_ALGORITHM_DURATION: Final = Family(
    "scheduler_podgroup_scheduling_algorithm_duration_seconds",
    "[ALPHA] Pod group scheduling algorithm latency in seconds",
    bounds=exponential_bounds(0.001, 2, 15),
)
GROUP_DECISIONS: Final = Family(
    "affinity_scheduler_podgroup_search_decisions",
    "Number of decisions on members that one attempt to place a pod group took.",
    bounds=exponential_bounds(1, 4, 8),
)
EVICTIONS_IN_VAIN: Final = Family(
    "affinity_scheduler_evictions_in_vain_total",
    "Number of pods evicted for a pod that did not run on their node, by the cause.",
    ("cause",),
)
CLAIM_CREATIONS: Final = Family(
    "scheduler_resourceclaim_creates_total",
    "[ALPHA] Number of ResourceClaims creation requests within scheduler",
    ("status",),
)
BINDING_CONDITIONS: Final = Family(
    "scheduler_dra_bindingconditions_allocations_total",
    "[ALPHA] Number of allocations using devices with BindingConditions, counted per driver per scheduling attempt",
    ("profile", "driver", "status"),
)
BINDING_CONDITIONS_WAIT: Final = Family(
    "scheduler_dra_bindingconditions_wait_duration_seconds",
    "[ALPHA] Time in seconds spent waiting for BindingConditions to be satisfied during PreBind.",
    ("profile", "driver", "status"),
    exponential_bounds(0.1, 2, 14),
)
DEVICES: Final = Family(
    "affinity_scheduler_devices",
    'Number of devices in ResourceSlices that no claim has (state="free"), and of devices that claims have or share '
    '(state="allocated"), by driver.',
    ("driver", "state"),
)
ALLOCATED_TWICE: Final = Family(
    "affinity_scheduler_claims_allocated_twice_total",
    "Number of ResourceClaims that were allocated with a device that another claim had.",
)
PLUGIN_FAILURES: Final = Family(
    "affinity_scheduler_plugin_failures_total",
    'Number of calls of a plugin of the user\'s that raised, returned something wrong (reason="error") or took too '
    'long (reason="overrun").',
    ("plugin", "profile", "reason"),
)

#: From this number on, attempts share one label value (schedule_one.go, getAttemptsLabel).
_MAX_ATTEMPTS: Final = 15


class Metrics(ControllerMetrics):
    """The series of one scheduler."""

    def __init__(self, *, version: str = "unknown") -> None:
        super().__init__(version=version)
        self._attempts = self._counter(SCHEDULE_ATTEMPTS)
        self._attempt_duration = self._histogram(ATTEMPT_DURATION)
        self._algorithm_duration = self._histogram(ALGORITHM_DURATION)
        self._decision_duration = self._histogram(DECISION_DURATION)
        self._pod_attempts = self._histogram(POD_ATTEMPTS).labels()
        self._sli_duration = self._histogram(POD_SLI_DURATION)
        self._after_flush = self._counter(POD_AFTER_FLUSH)
        self._point_duration = self._histogram(EXTENSION_POINT_DURATION)
        self._plugin_duration = self._histogram(PLUGIN_DURATION)
        self._event_handling = self._histogram(EVENT_HANDLING_DURATION)
        self._preemption_attempts = self._counter(PREEMPTION_ATTEMPTS)
        self._preemption_victims = self._histogram(PREEMPTION_VICTIMS).labels()
        self._group_attempts = self._counter(GROUP_ATTEMPTS)
        self._group_duration = self._histogram(GROUP_ALGORITHM_DURATION).labels()
        self._group_decisions = self._histogram(GROUP_DECISIONS).labels()
        self._divergences = self._counter(CACHE_DIVERGENCES)
        self.unreadable_binds = self._counter(UNREADABLE_BINDS)
        self.loop_lag = self._histogram(LOOP_LAG).labels()
        self._plugin_failures = self._counter(PLUGIN_FAILURES)
        self._relaxed_rules = self._counter(RELAXED_RULES)
        self.claim_creations = self._counter(CLAIM_CREATIONS)
        self._binding_conditions = self._counter(BINDING_CONDITIONS)
        self._binding_conditions_wait = self._histogram(BINDING_CONDITIONS_WAIT)

    def register_state(
        self,
        queue: PodQueue,
        state: ClusterState,
        evictions_in_vain: Mapping[str, int],
        *,
        n_kept_by_annotations: Callable[[], int] = lambda: 0,
    ) -> None:
        """Read the numbers of queue and cluster state at every scrape. Call once."""
        self._callback(PENDING_PODS, queue.depths)
        self._callback(QUEUE_INCOMING, lambda: queue.incoming)
        self._callback(UNSCHEDULABLE_PODS, lambda: queue.unschedulable_by_plugin)
        self._callback(CACHE_SIZE, lambda: _cache_sizes(state))
        self._callback(EVICTIONS_IN_VAIN, lambda: evictions_in_vain)
        self._callback(KEPT_BY_ANNOTATIONS, n_kept_by_annotations)
        self._callback(NAMESPACES_OVER_SHARE, lambda: queue.n_namespaces_deprioritized)
        refusals = state.kubelet_refusals
        self._callback(KUBELET_REFUSALS, lambda: refusals.n_refused)
        self._callback(ALLOCATED_TWICE, lambda: state.devices.n_allocated_twice)
        self._callback(DEVICES, lambda: _device_counts(state.devices))
        self._callback(LEFT_OUT, lambda: refusals.n_excluded)

    def cycle_observer(
        self,
        profiles: Mapping[str, Profile],
        *,
        seed: int,
        sampled: float = 0.1,
        now_s: Callable[[], float] = time.perf_counter,
    ) -> CycleObserver:
        """Return the observer of cycles, which times plugins in the fraction `sampled` of them. Call once."""
        observer = CycleObserver(
            profiles.values(),
            decisions=(self._algorithm_duration.labels(), self._decision_duration.labels()),
            points=self._point_duration,
            plugins=self._plugin_duration,
            sampled=sampled,
            seed=seed,
            count_failure=self._plugin_failures.add,
            now_s=now_s,
        )
        self._callback(PLUGIN_EVALUATION, observer.evaluations)
        return observer

    def on_attempt(self, attempt: Attempted, now_s: float) -> None:
        """Observe an attempt that ended at `now_s` of the machine's clock."""
        profile = attempt.pod.scheduler_name
        self._attempts.add(attempt.result, profile)
        self._attempt_duration.labels(attempt.result, profile).observe(now_s - attempt.started_s)
        if attempt.tried_preemption:
            self._preemption_attempts.add()
        if attempt.n_victims:
            self._preemption_victims.observe(attempt.n_victims)
        if attempt.result != "scheduled":
            return
        n = attempt.attempts
        self._pod_attempts.observe(n)
        label = str(n) if n < _MAX_ATTEMPTS else f"{_MAX_ATTEMPTS}+"
        self._sli_duration.labels(label).observe(now_s - attempt.first_active_s)
        if attempt.after_flush:
            self._after_flush.add()
        for rule in attempt.relaxed:
            self._relaxed_rules.add(rule)

    def on_group_attempt(self, attempt: GroupAttempted, now_s: float) -> None:
        """Observe an attempt to place a group that ended at `now_s` of the machine's clock."""
        self._group_attempts.add(attempt.result, attempt.profile)
        self._group_duration.observe(now_s - attempt.started_s)
        if attempt.n_decisions:
            self._group_decisions.observe(attempt.n_decisions)

    def on_devices_awaited(self, awaited: DevicesAwaited) -> None:
        """Observe the end of a wait for devices: its duration once for each of them, as upstream does."""
        profile, status = awaited.pod.scheduler_name, awaited.status
        for driver, has_conditions in awaited.devices:
            self._binding_conditions_wait.labels(profile, driver, status).observe(awaited.waited_s)
            if has_conditions:
                self._binding_conditions.add(profile, driver, status)

    def on_event_handled(self, event: str, seconds: float) -> None:
        """Observe the handling of one stimulus."""
        self._event_handling.labels(event).observe(seconds)

    def on_divergence(self, kind: str, n_objects: int) -> None:
        """Count objects of a kind that differed from the server's list because of lost events."""
        self._divergences.add(kind, n=n_objects)


def _cache_sizes(state: ClusterState) -> Numbers:
    return {"nodes": state.nodes.n_live, "pods": len(state.placed), "assumed_pods": state.n_assumed}


def _device_counts(devices: Devices) -> Numbers:
    """Return the numbers of free and allocated devices, of at most `MAX_SERIES` drivers."""
    numbers: dict[tuple[str, str], int] = {}
    for driver, n_free, n_allocated in islice(devices.n_by_driver(), MAX_SERIES):
        numbers[driver, "free"], numbers[driver, "allocated"] = n_free, n_allocated
    return numbers
