"""A configuration after defaulting, merging and validation: what the rest of the program is built from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.settings.feature_gates import DEFAULT_FEATURE_GATES


@dataclass(frozen=True, slots=True)
class LeaderElection:
    """
    Whether and how instances elect the one that schedules; the rest matters only if `leader_elect`.

    Upstream's Lease is `kube-scheduler`: beside a kube-scheduler that would make a standby for ever.
    """

    leader_elect: bool = True
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0
    resource_lock: str = "leases"
    resource_name: str = "affinity-scheduler"
    resource_namespace: str = "kube-system"


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """How the API server is reached; `kubeconfig` '' means in-cluster, a negative `qps` means unlimited."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 50.0
    burst: int = 100


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """
    One scheduler name and what runs for its pods. Only plugins that are built are named, except in `not_built`.

    `plugins_by_point`: every extension point of `plugin_table.POINTS`, plugins in the order they run.
    `weight_by_plugin`: exactly the plugins of the score point, each at least 1 unless the file says less than 0.
    `args_by_plugin`: every plugin that takes arguments, enabled or not.
    `not_built`: plugins that kube-scheduler would run here by default and this scheduler lacks, in order.
    """

    scheduler_name: str
    plugins_by_point: Mapping[str, tuple[str, ...]]
    weight_by_plugin: Mapping[str, int]
    args_by_plugin: Mapping[str, object]
    #: None: the configuration's percentage counts.
    percentage_of_nodes_to_score: int | None = None
    not_built: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """
    A whole configuration, complete and valid. `profiles` is never empty and its scheduler names are unique.

    `notes`: what the file says without any effect here, one line each with its path.
    """

    profiles: tuple[ProfileSettings, ...]
    parallelism: int = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    #: 0: every feasible node is scored, where kube-scheduler would adapt to the cluster's size.
    percentage_of_nodes_to_score: int = 0
    pod_initial_backoff_s: int = 1
    pod_max_backoff_s: int = 10
    delay_cache_until_active: bool = False
    feature_gates: Mapping[str, bool] = field(default_factory=lambda: DEFAULT_FEATURE_GATES)
    notes: tuple[str, ...] = field(default=(), compare=False)
