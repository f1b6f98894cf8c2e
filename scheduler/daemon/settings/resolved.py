"""A configuration after defaulting, merging and validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from scheduler.daemon.settings.feature_gates import RequestedSemantics
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics, Version
from scheduler.engine.model.wire import Duration, Int32, Int64, Wire

_MAX_FLOAT32: Final = 3.4028234663852886e38

if TYPE_CHECKING:
    # Commands read the defaults below for their help: numpy, which a plugin needs, takes a tenth of a second.
    from scheduler.engine.framework.out_of_tree import OutOfTreePlugin


class LeaderElection(Wire, frozen=True):
    """
    Leader election; the other fields matter only with `leader_elect`.

    `resource_name` differs from upstream's `kube-scheduler`: with that Lease, this scheduler would be a standby of
    kube-scheduler for ever.
    """

    leader_elect: bool = True
    lease_duration_s: Duration = msgspec.field(name="leaseDuration", default=15.0)
    renew_deadline_s: Duration = msgspec.field(name="renewDeadline", default=10.0)
    retry_period_s: Duration = msgspec.field(name="retryPeriod", default=2.0)
    resource_lock: str = "leases"
    resource_name: str = "affinity-scheduler"
    resource_namespace: str = "kube-system"


class ClientConnection(Wire, frozen=True):
    """The connection to the API server; `kubeconfig` '' means in-cluster, a negative `qps` unlimited."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: Annotated[float, msgspec.Meta(ge=-_MAX_FLOAT32, le=_MAX_FLOAT32)] = 50.0
    burst: Int32 = 100


class Configuration(Wire, frozen=True):
    """The fields of a file that are not of one profile."""

    parallelism: Int32 = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    #: None where the file does not say it: `enable_profiling` counts.
    enable_contention_profiling: bool | None = None
    #: 0 to score every feasible node; kube-scheduler would adapt to the cluster's size.
    percentage_of_nodes_to_score: Int32 = 0
    pod_initial_backoff_s: Int64 = msgspec.field(name="podInitialBackoffSeconds", default=1)
    pod_max_backoff_s: Int64 = msgspec.field(name="podMaxBackoffSeconds", default=10)
    delay_cache_until_active: bool = False


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """
    One scheduler name and the plugins that run for its pods.

    `plugins_by_point`: every extension point of `plugin_table.POINTS`, plugins in running order.
    `weight_by_plugin`: the plugins of the score point, each at least 1 unless the file sets a negative weight.
    `args_by_plugin`: every plugin that takes arguments, enabled or not; of out_of_tree only those that the file names.
    """

    scheduler_name: str
    plugins_by_point: Mapping[str, tuple[str, ...]]
    weight_by_plugin: Mapping[str, int]
    args_by_plugin: Mapping[str, object]
    #: None to use the configuration's percentage.
    percentage_of_nodes_to_score: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """
    A whole configuration, complete and valid. `profiles` is never empty and its scheduler names are unique.

    `semantics`: what `requested` means, of which `at` makes another.
    `notes`: fields of the file without effect here, one line each with its path.
    `out_of_tree`: the plugins of the user's that a profile runs, by name.
    """

    profiles: tuple[ProfileSettings, ...]
    configuration: Configuration
    semantics: Semantics = DEFAULT_SEMANTICS
    requested: RequestedSemantics = field(default_factory=RequestedSemantics, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    out_of_tree: Mapping[str, OutOfTreePlugin] = field(default_factory=dict, compare=False)

    @property
    def node_annotations(self) -> frozenset[str]:
        """The keys of the node annotations that a plugin reads."""
        return frozenset(key for plugin in self.out_of_tree.values() for key in plugin.node_annotations)

    def changed(self, **fields: Any) -> Settings:  # noqa: ANN401 - of any type
        """Return the settings with other values of these fields of the configuration."""
        return replace(self, configuration=msgspec.structs.replace(self.configuration, **fields))

    def at(self, server: Version | None) -> Settings:
        """Return the settings beside an API server of this version; see `RequestedSemantics.at`."""
        return replace(self, semantics=self.requested.at(server))
