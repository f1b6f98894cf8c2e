"""Each alert fires in its case, alone, and not in similar ones, by Prometheus' promtool, which accepts our files."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.system.monitoring.plain_rules import FILE, plain_rules
from tests.system.monitoring.queries import ALERTS

#: Minutes of every case; the alerts are evaluated in the last one.
_MINUTES = 90

UP = "up"
LEADS = 'leader_election_master_status{name="l"}'
STARTED = "process_start_time_seconds"
PLACED = 'scheduler_schedule_attempts_total{result="scheduled",profile="p"}'
FAILED = 'scheduler_schedule_attempts_total{result="error",profile="p"}'
ACTIVE = 'scheduler_pending_pods{queue="active"}'
BACKOFF = 'scheduler_pending_pods{queue="backoff"}'
REFUSED = 'scheduler_unschedulable_pods{plugin="NodeAffinity",profile="p"}'
GATED = 'scheduler_unschedulable_pods{plugin="SchedulingGates",profile="p"}'
SLI_FAST = 'scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="0.02"}'
SLI_5S = 'scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="5.12"}'
SLI_10S = 'scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="10.24"}'
SLI_ALL = 'scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="+Inf"}'
_PLUGIN = 'plugin="InterPodAffinity",extension_point="Filter",status="Success"'
PLUGIN_22MS = f'scheduler_plugin_execution_duration_seconds_bucket{{{_PLUGIN},le="0.0221684"}}'
PLUGIN_ALL = f'scheduler_plugin_execution_duration_seconds_bucket{{{_PLUGIN},le="+Inf"}}'
_POINT = 'extension_point="Filter",status="Success",profile="p"'
POINT_51MS = f'scheduler_framework_extension_point_duration_seconds_bucket{{{_POINT},le="0.0512"}}'
POINT_102MS = f'scheduler_framework_extension_point_duration_seconds_bucket{{{_POINT},le="0.1024"}}'
POINT_205MS = f'scheduler_framework_extension_point_duration_seconds_bucket{{{_POINT},le="0.2048"}}'
POINT_ALL = f'scheduler_framework_extension_point_duration_seconds_bucket{{{_POINT},le="+Inf"}}'
FAILING = 'affinity_scheduler_plugin_failures_total{plugin="Mine",profile="p",reason="error"}'
RESTARTS = 'affinity_scheduler_watch_restarts_total{kind="Pod"}'
MALFORMED = 'affinity_scheduler_objects_malformed{kind="Node"}'
DROPPED = "affinity_scheduler_events_dropped_total"
OK = 'rest_client_requests_total{code="200",method="GET",host="h"}'
THROTTLED = 'rest_client_requests_total{code="429",method="POST",host="h"}'
UNANSWERED = 'rest_client_requests_total{code="<error>",method="POST",host="h"}'
FORBIDDEN = 'rest_client_requests_total{code="403",method="PATCH",host="h"}'
LAG_2MS = 'affinity_scheduler_loop_lag_seconds_bucket{le="0.002"}'
LAG_256MS = 'affinity_scheduler_loop_lag_seconds_bucket{le="0.256"}'
LAG_1S = 'affinity_scheduler_loop_lag_seconds_bucket{le="1.024"}'
LAG_ALL = 'affinity_scheduler_loop_lag_seconds_bucket{le="+Inf"}'
SHARE = 'affinity_scheduler_enforcement_waiting{reason="share"}'
GRACE = 'affinity_scheduler_enforcement_waiting{reason="grace"}'
BROKEN = 'affinity_scheduler_enforced_rules_broken{rule="affinity"}'
EXPIRY = "affinity_scheduler_webhook_certificate_expiry_timestamp_seconds"

#: Prefixes of series that are not the scheduler's, and the command that exports them.
_OTHERS = {"enforce": "-enforcer", "webhook": "-webhook"}

#: Normal operation: 10 pods a second, 1 % of the binds refused, a watch restart now and then; and a standby, to
#: which every pod is active.
WELL = {
    UP: "1x90",
    LEADS: "1x90",
    f"STANDBY {LEADS}": "0x90",
    f"STANDBY {ACTIVE}": "0+10x90",
    STARTED: "1000x90",
    PLACED: "0+600x90",
    FAILED: "0+6x90",
    ACTIVE: "20 40 0 30x87",
    BACKOFF: "5x90",
    REFUSED: "0x90",
    SLI_FAST: "0+590x90",
    SLI_5S: "0+600x90",
    SLI_10S: "0+600x90",
    SLI_ALL: "0+600x90",
    PLUGIN_22MS: "0+60x90",
    PLUGIN_ALL: "0+60x90",
    POINT_51MS: "0+600x90",
    POINT_102MS: "0+600x90",
    POINT_205MS: "0+600x90",
    POINT_ALL: "0+600x90",
    FAILING: "0x90",
    RESTARTS: "0x30 1x59",
    DROPPED: "0x90",
    OK: "0+1200x90",
    THROTTLED: "0+12x90",
    LAG_2MS: "0+12x90",
    LAG_256MS: "0+12x90",
    LAG_1S: "0+12x90",
    LAG_ALL: "0+12x90",
    SHARE: "0x90",
    GRACE: "0x30 3x59",
    BROKEN: "0x30 3x20 0x39",
    EXPIRY: "2592000x90",
}

FIRES = [
    pytest.param("Down", {UP: "1x50 0x39"}, id="Down: the target does not answer"),
    pytest.param("Down", {UP: "1x50 _x39"}, id="Down: there is no target"),
    pytest.param("NoLeader", {LEADS: "1x50 0x39"}, id="NoLeader: two standbys"),
    pytest.param(
        "TwoLeaders", {f"STANDBY {LEADS}": "0x50 1x39", f"STANDBY {ACTIVE}": "0x90"}, id="TwoLeaders"
    ),
    pytest.param("Restarting", {STARTED: "1000x70 2000x5 3000x5 4000x9"}, id="Restarting: three starts"),
    pytest.param("Stuck", {PLACED: "0+600x70 42000x19", FAILED: "0x90"}, id="Stuck: active pods, no attempt"),
    pytest.param("Stuck", {PLACED: "_x90", FAILED: "_x90"}, id="Stuck: never an attempt since the start"),
    pytest.param("Errors", {FAILED: "0+60x90"}, id="Errors: one attempt of eleven"),
    pytest.param("PendingPodsGrowing", {ACTIVE: "0+10x90"}, id="PendingPodsGrowing: ten more a minute"),
    pytest.param("PendingPodsGrowing", {BACKOFF: "0+10x90"}, id="PendingPodsGrowing: in backoff"),
    pytest.param("UnschedulablePods", {REFUSED: "0x50 3x39"}, id="UnschedulablePods: for 39 minutes"),
    pytest.param("Slow", {SLI_FAST: "0+580x90", SLI_5S: "0+585x90"}, id="Slow: 2.5 % over five seconds"),
    pytest.param(
        "PluginSlow",
        {PLUGIN_22MS: "0+20x90", POINT_51MS: "0+200x90", POINT_102MS: "0+300x90"},
        id="PluginSlow: half of all filters over 100 ms, most of them this plugin's",
    ),
    pytest.param("PluginFails", {FAILING: "0x80 1+1x9"}, id="PluginFails: one call a minute"),
    pytest.param("WatchRestarts", {RESTARTS: "0+1x90"}, id="WatchRestarts: one a minute"),
    pytest.param("MalformedObjects", {MALFORMED: "_x80 1x9"}, id="MalformedObjects: at the start"),
    pytest.param("MalformedObjects", {MALFORMED: "0x9 1x80"}, id="MalformedObjects: for an hour"),
    pytest.param("EventsDropped", {DROPPED: "0+1x90"}, id="EventsDropped: one a minute"),
    pytest.param("ApiErrors", {THROTTLED: "0+120x90"}, id="ApiErrors: 9 % throttled"),
    pytest.param("ApiErrors", {UNANSWERED: "0+120x90"}, id="ApiErrors: 9 % without an answer"),
    pytest.param("Forbidden", {FORBIDDEN: "0+1x90"}, id="Forbidden: one a minute"),
    pytest.param("LoopLag", {LAG_2MS: "0+6x90", LAG_256MS: "0+6x90"}, id="LoopLag: half of all tasks late"),
    pytest.param("EnforcementRefused", {SHARE: "0x70 40x19"}, id="EnforcementRefused: for 19 minutes"),
    pytest.param("RulesStayBroken", {BROKEN: "0x50 1x39"}, id="RulesStayBroken: for 39 minutes"),
    pytest.param(
        "WebhookCertificateExpires", {EXPIRY: "1000000x90"}, id="WebhookCertificateExpires: in eleven days"
    ),
    pytest.param("WebhookCertificateExpires", {EXPIRY: "0x90"}, id="WebhookCertificateExpires: none served"),
]

SILENT = [
    pytest.param({}, id="normal operation"),
    pytest.param({UP: "1x87 0x2"}, id="Down: for two minutes"),
    pytest.param({LEADS: "1x88 0x1"}, id="NoLeader: for a minute"),
    pytest.param(
        {LEADS: "_x90", f"STANDBY {LEADS}": "_x90", f"STANDBY {ACTIVE}": "_x90"}, id="NoLeader: no election"
    ),
    pytest.param(
        {LEADS: "1x50 0x39", f"STANDBY {LEADS}": "0x50 1x39", f"STANDBY {ACTIVE}": "0x90"},
        id="TwoLeaders: a take-over",
    ),
    pytest.param({STARTED: "1000x70 2000x5 3000x14"}, id="Restarting: two starts"),
    pytest.param({STARTED: "1000x20 2000x5 3000x5 4000x59"}, id="Restarting: an hour ago"),
    pytest.param({PLACED: "0+600x70 42000x19", FAILED: "0x90", ACTIVE: "0x90"}, id="Stuck: nothing to do"),
    pytest.param({FAILED: "0+20x90"}, id="Errors: one attempt of 31"),
    pytest.param({ACTIVE: "5000-10x90"}, id="PendingPodsGrowing: many, but fewer and fewer"),
    pytest.param({ACTIVE: "0+1x90"}, id="PendingPodsGrowing: few"),
    pytest.param({REFUSED: "0x70 3x19"}, id="UnschedulablePods: for 19 minutes"),
    pytest.param({GATED: "3x90"}, id="UnschedulablePods: with gates"),
    pytest.param({SLI_5S: "0+596x90"}, id="Slow: 0.7 % over five seconds"),
    pytest.param(
        {each.replace('"1"', '"2"'): "0+600x90" for each in (SLI_10S, SLI_ALL)},
        id="Slow: pods that had to wait for room",
    ),
    pytest.param({PLUGIN_22MS: "0+20x90"}, id="PluginSlow: over 22 ms, but the whole filter within 51"),
    pytest.param(
        {POINT_51MS: "0+200x90", POINT_102MS: "0+300x90"}, id="PluginSlow: a slow filter, but other plugins"
    ),
    pytest.param({FAILING: "0+1x70 70x19"}, id="PluginFails: before it was corrected"),
    pytest.param({FAILING: "0x85 4x4"}, id="PluginFails: four calls"),
    pytest.param({RESTARTS: "0x85 1+1x4"}, id="WatchRestarts: four"),
    pytest.param({MALFORMED: "1x80 0x9"}, id="MalformedObjects: corrected"),
    pytest.param({DROPPED: "0x40 7x49"}, id="EventsDropped: long ago"),
    pytest.param({THROTTLED: "0+60x90"}, id="ApiErrors: just under 5 %"),
    pytest.param({FORBIDDEN: "7x90"}, id="Forbidden: long ago"),
    pytest.param({LAG_2MS: "0x90"}, id="LoopLag: all tasks by a quarter of a second"),
    pytest.param({SHARE: "0x87 40x2"}, id="EnforcementRefused: for two minutes"),
    pytest.param({BROKEN: "0x70 1x19"}, id="RulesStayBroken: for 19 minutes"),
    pytest.param({EXPIRY: "1300000x90"}, id="WebhookCertificateExpires: in fifteen days"),
    pytest.param(
        {SHARE: "_x90", GRACE: "_x90", BROKEN: "_x90", EXPIRY: "_x90"},
        id="WebhookCertificateExpires: neither enforcer nor webhook",
    ),
]


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian's package prometheus has it)")
    return found


def test_the_rules_file_has_the_alerts_of_the_operator_s_object() -> None:
    assert FILE.read_text() == plain_rules(), "run python -m tests.system.monitoring.plain_rules"


def test_the_configuration_scrapes_the_job_that_the_alerts_select() -> None:
    configuration = yaml.safe_load((FILE.parent / "prometheus.yml").read_text())
    assert configuration["rule_files"] == [FILE.name]
    assert [job["job_name"] for job in configuration["scrape_configs"]] == ["affinity-scheduler"]


def test_promtool_accepts_both(promtool: str) -> None:
    command = [promtool, "check", "config", "prometheus.yml"]
    done = subprocess.run(command, cwd=FILE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(ALERTS)} rules found" in done.stdout


def test_every_alert_is_tested_both_ways():
    names = {rule["alert"].removeprefix("AffinityScheduler") for rule in ALERTS}
    assert {str(case.values[0]) for case in FIRES} == names
    assert {str(case.id).split(":")[0] for case in SILENT} == names | {"normal operation"}


def test_each_alert_fires_in_its_cases_alone_and_not_in_others(promtool: str, tmp_path: Path):
    stories = [_story(case.id, case.values[1], f"AffinityScheduler{case.values[0]}") for case in FIRES]
    stories += [_story(case.id, case.values[0]) for case in SILENT]
    path = tmp_path / "stories.yaml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": stories})
    )
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _story(name: object, series: Any, *alerts: str) -> dict[str, object]:
    """Return normal operation with `series` replaced, at whose end exactly these alerts fire."""
    return {
        "interval": "1m",
        "input_series": [
            {"series": _of_target(each), "values": values} for each, values in {**WELL, **series}.items()
        ],
        "promql_expr_test": [
            {
                # A failure shows the expression, and so the case.
                "expr": f'group by (alertname) (ALERTS{{alertstate="firing"}}) # {name}',
                "eval_time": f"{_MINUTES - 1}m",
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts],
            }
        ],
    }


def _of_target(series: str) -> str:
    """Return the series as scraped from the leader, or from the standby."""
    instance = "standby" if series.startswith("STANDBY ") else "leader"
    name, _, labels = series.removeprefix("STANDBY ").rstrip("}").partition("{")
    suffix = next((of for part, of in _OTHERS.items() if name.startswith(f"affinity_scheduler_{part}")), "")
    target = f'job="affinity-scheduler{suffix}",instance="{instance}"'
    return f"{name}{{{target},{labels}}}" if labels else f"{name}{{{target}}}"
