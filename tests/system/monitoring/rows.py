"""
Which faults an alert is tried with: each has the runbook's commands that show it, and the remedy that ends the alert.

`tests/system/monitoring/test_tried_runbooks.py` tries them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.cluster import NAME
from tests.system.monitoring import faults
from tests.system.monitoring.incident import SYSTEM, Act


@dataclass(frozen=True)
class Row:
    """
    A fault of an alert.

    Attributes:
        alert: its name without the prefix.
        shows: what a command of the runbook shows of this fault, as a regular expression; by words of the command.
        begin: what runs before the fault, while the alert is silent; None if the fault is there from the start.
        labels: of the alert's series that is about the fault.
        range_s: seconds in the place of the rule's minutes.
        is_slow: whether it is left to the nightly run, since it takes half a minute and more.
        names: what stands for names in the command, such as POD.
        note: what is not as in a cluster, and why.
    """

    alert: str
    fault: Act
    shows: Mapping[str, str]
    remedy: Act
    begin: Act | None = faults.schedule
    labels: Mapping[str, str] = field(default_factory=dict)
    range_s: float = 3.0
    is_slow: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def __str__(self) -> str:
        return f"{self.alert}: {self.fault.__name__.replace('_', ' ')}"


_KUBELET = "its pod's status is written by the test: the embedded cluster has no kubelet for it"

#: Of the page's data: a decision takes milliseconds, an attempt seconds.
_SLOW_BINDS = r'"decision":{"p50":0\.0[\s\S]*"seconds":[3-9]\.'

ROWS = (
    Row(
        "Down",
        faults.a_wrong_configuration,
        {"get pods": rf"{NAME}-0 +0/1 +\w+ +3 ", "logs --previous": "parallelism.*many"},
        faults.a_right_configuration,
        note=_KUBELET,
    ),
    Row(
        "NoLeader",
        faults.another_program_holds_the_lease,
        {"get lease": "holderIdentity: another-program", "auth can-i": "^yes"},
        faults.the_lease_is_released,
        begin=None,
    ),
    Row(
        "TwoLeaders",
        faults.two_namespaces_of_leases,
        {
            "get leases": rf"default +{NAME} [\s\S]*{SYSTEM} +{NAME} ",
            "bundle": f'"resourceNamespace": "{SYSTEM}"',
        },
        faults.one_is_stopped,
        begin=faults.elect,
        names={"pod/NAME": f"pod/{NAME}-0"},
    ),
    Row(
        "Restarting",
        faults.the_lease_is_lost_again_and_again,
        {
            "describe pods": r"Last State: +Terminated\s+Reason: +Error",
            "logs --previous": "was not renewed in time",
        },
        faults.the_lease_can_be_renewed,
        begin=None,
        range_s=45,
        is_slow=True,
        note=_KUBELET,
    ),
    Row(
        "Stuck",
        faults.nodes_cannot_be_listed,
        {
            "bundle": r"\[-\]sched-handler-sync[\s\S]*List and watch interrupted.*kind=.Node.*a fault was",
        },
        faults.no_more,
        begin=None,
    ),
    Row(
        "Errors",
        faults.binds_fail,
        {"logs": "Error scheduling pod; retrying.*arrives-0-0.*a fault was"},
        faults.no_more,
    ),
    Row("PendingPodsGrowing", faults.binds_are_slow_for_many_pods, {"ui": _SLOW_BINDS}, faults.no_more),
    Row(
        "UnschedulablePods",
        faults.a_label_that_no_node_has,
        {"get events": "pod/lost .*1 node.s. didn't match Pod's node affinity", "explain": "disk"},
        faults.a_node_gets_the_label,
        labels={"plugin": "NodeAffinity"},
        names={"POD": "lost"},
    ),
    Row(
        "Slow",
        faults.binds_take_seconds,
        {"ui": _SLOW_BINDS},
        faults.no_more,
        range_s=10,
        is_slow=True,
    ),
    Row(
        "PluginFails",
        faults.pods_of_a_team,
        {"get events": r"KeyError: 'tem' \(broken.py, line 10\)"},
        faults.a_corrected_rule,
        begin=faults.a_rule_with_a_bug,
    ),
    Row(
        "WatchRestarts",
        faults.connections_break,
        {"logs": 'List and watch interrupted.*kind="Node".*TransferEncodingError'},
        faults.no_more,
        labels={"kind": "Node"},
        range_s=8,
    ),
    Row(
        "MalformedObjects",
        faults.a_program_writes_a_wrong_quantity,
        {"logs": "Malformed object.*broken.*many"},
        faults.the_quantity_is_corrected,
        labels={"kind": "Node"},
    ),
    Row("EventsDropped", faults.no_right_to_create_events, {"auth can-i": "^no"}, faults.apply_again),
    Row(
        "ApiErrors",
        faults.binds_fail,
        {"logs": "Error scheduling pod; retrying.*a fault was"},
        faults.no_more,
        note="429 needs a real API server, which tests/proof/nights/test_throttled.py has: there its command is run",
    ),
    Row(
        "Forbidden",
        faults.no_right_to_write_conditions,
        {"auth can-i --list": r"\A(?![\s\S]*pods/status)[\s\S]*pods/binding"},
        faults.apply_again,
    ),
    Row(
        "PluginSlow",
        faults.a_plugin_has_a_defect,
        {
            "bundle": r'scheduler_plugin_execution_duration_seconds_bucket{extension_point="PreFilter",'
            r'plugin="InterPodAffinity",status="Success",le="0.0221\d+"} 0\n'
        },
        faults.a_version_without_it,
        range_s=24,
        is_slow=True,
        note="the defect is the test's own: a cluster that slows the plugin this much takes minutes to make",
    ),
    Row(
        "LoopLag",
        faults.the_cpu_is_throttled,
        {"top pods": rf"{NAME}-0 +\d{{1,2}}m"},
        faults.unthrottled,
        range_s=12,
        is_slow=True,
    ),
    Row(
        "EnforcementRefused",
        faults.a_node_gets_a_wrong_zone,
        {"enforce --once": r"default/picky-0 .*zone=a +default/web"},
        faults.the_zone_is_corrected,
        begin=faults.enforce,
    ),
    Row(
        "RulesStayBroken",
        faults.a_budget_forbids_the_eviction,
        {
            "enforce --once": r"default/picky-0 .*default/web",
            "logs": "Eviction not allowed now.*picky-0",
        },
        faults.the_budget_is_deleted,
        begin=faults.enforce_one,
    ),
    Row(
        "WebhookCertificateExpires",
        faults.the_webhook_may_not_write_its_secret,
        {"logs": "Failed to check the serving certificate.*secrets"},
        faults.apply_webhook_again,
        begin=None,
    ),
)
