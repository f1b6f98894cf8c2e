"""Each alert's runbook names commands, metrics and panels that exist; five are tried beside their fault."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from scheduler.cli.main import _parse, main
from scheduler.devcluster.cluster import DevCluster
from scheduler.devcluster.http.faults import Action, Fault
from scheduler.devcluster.kinds import NODE, POD, kind_of
from scheduler.model.annotations import AFFINITY
from scheduler.settings.loading import default_settings
from tests.monitoring.queries import ALERTS, panels, selections
from tests.monitoring.runbooks import commands, rule_of
from tests.monitoring.test_expressions import EXPORTED
from tests.support import accounts, build
from tests.support.cluster import kubeconfig_text
from tests.support.daemon import Daemon, running
from tests.support.kubectl import Kubectl
from tests.support.manifest_files import MANIFESTS, resources
from tests.support.port_forwarding import port_forwarding
from tests.support.waiting import until
from tests.testing.test_failing_rule import CONFIG, RULE

EACH_ALERT = pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
#: Of kubectl's verbs, those that change nothing, and their flags that a runbook may have.
_FLAGS = {
    "get": {"-A", "-l", "-o", "-n", "--field-selector", "--raw"},
    "logs": {"-l", "-n", "--previous", "--tail"},
    "describe": {"-l", "-n"},
    "auth": {"--as", "--list", "-n"},
    "top": {"-l", "-n"},
}
#: Kinds that a runbook reads, as kubectl's verbs take them.
_KINDS = {"pods": "v1/Pod", "events": "v1/Event", "lease": "coordination.k8s.io/v1/Lease"}
_KINDS["leases"] = _KINDS["lease"]
_HAS_VALUE = {"-n", "-l", "-o", "--field-selector", "--raw"}


@EACH_ALERT
def test_a_runbook_has_a_command(rule):
    assert commands(rule)


@EACH_ALERT
def test_the_commands_of_this_program_are_accepted(rule):
    """With all flags; a refused one ends the program."""
    for words in commands(rule):
        if words[:2] == ["kubectl", "affinity"]:
            words = ["affinity-scheduler", *words[2:]]
        if words[0] == "affinity-scheduler":
            _parse(words[1:])


@EACH_ALERT
def test_the_commands_of_kubectl_have_verbs_flags_and_kinds_that_exist(rule):
    """And name objects of the manifests."""
    for words in commands(rule):
        if words[0] == "kubectl" and words[1] != "affinity":
            _check_kubectl(words[1:])


def _check_kubectl(words: list[str]) -> None:
    flags, arguments = {}, []
    rest = iter(words)
    for word in rest:
        name, _, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if not word.startswith("-"):
            arguments.append(word)
        else:
            flags[name] = next(rest) if name in _HAS_VALUE and not value else value
    verb, *named = arguments
    assert set(flags) <= _FLAGS[verb]
    if verb == "get" and "--raw" not in flags:
        group, _, kind = _KINDS[named[0]].rpartition("/")
        assert kind_of(group, kind) is not None
    if verb == "auth":
        assert named[0] == "can-i"
        assert flags["--as"] == accounts.COMPONENTS["scheduler"].user
    if "-l" in flags:
        components = {path: resources(MANIFESTS / path) for path in ("base", "enforcer", "webhook")}
        label, _, value = flags["-l"].partition("=")
        (deployment,) = (
            each
            for objects in components.values()
            for each in objects
            if each["kind"] == "Deployment" and each["spec"]["selector"]["matchLabels"].get(label) == value
        )
        namespace = flags.get("-n", "-A" if "-A" in flags else "")
        assert namespace in (deployment["metadata"].get("namespace") or "kube-system", "-A")
    if named[:1] == ["lease"]:
        assert named[1] == default_settings().leader_election.resource_name


@EACH_ALERT
def test_metrics_paths_and_panels_of_a_runbook_exist(rule):
    """Also where they have no quotes."""
    text = rule["annotations"]["runbook"]
    for name in re.findall(r"\b(?:affinity_scheduler|scheduler|rest_client|leader_election)_\w+", text):
        assert name in EXPORTED
    for alert in re.findall(r"\bAffinityScheduler\w+", text):
        assert rule_of(alert.removeprefix("AffinityScheduler"))
    served = {"/configz", "/readyz", "/metrics", "/statusz", "/flagz"}
    paths = re.findall(r"(?<=[\s`])/(?!debug/api_priority)[a-z][\w/]*", text)
    assert set(paths) <= served
    titles = {panel["title"] for panel in panels()}
    for title in re.findall(r"\bpanels? (What moves pods|[A-Z]\w+(?: (?:and|by|[a-z]\w+))*)", text):
        assert any(title.startswith(known) for known in titles), title


def test_a_wrong_runbook_would_be_seen():
    """The checks above refuse commands that do not exist."""
    for words in (["bundel"], ["bundle", "--out", "FILE"], ["enforce", "--twice"]):
        with pytest.raises(SystemExit):
            _parse(words)
    for words in (["get", "podz"], ["logs", "--nothing"], ["delete", "pods"], ["top", "pods", "-l", "a=b"]):
        with pytest.raises((AssertionError, KeyError, ValueError)):
            _check_kubectl(words)


@dataclass
class Running:
    """A cluster with a scheduler that has a broken rule, and kubectl for it."""

    cluster: DevCluster
    daemon: Daemon
    kubectl: Kubectl

    async def condition(self, alert: str, before: str = "") -> dict[tuple[str, ...], float]:
        """Return the values of the alert's series in a scrape, less those of an earlier one, by labels."""
        selected = selections(rule_of(alert)["expr"])[0]
        values: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for text, sign in (((await self.daemon.get("/metrics"))[1], 1), (before, -1)):
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name == selected.metric:
                        values[tuple(sample.labels.values())] += sign * sample.value
        return values

    def add_pod(self, name: str, **settings: Any) -> None:
        """Create a pod for the scheduler."""
        pod = build.pod(name, spec={"schedulerName": "affinity-scheduler"}, **settings)
        del pod["metadata"]["uid"]
        self.cluster.store.create(POD, "default", pod)

    def annotate_node(self, key: str, value: str, field: str = "annotations") -> None:
        """Write a label or an annotation of the first node."""
        node = self.cluster.store.get(NODE, "", "node-0001")
        kept = {**(node["metadata"].get(field) or {}), key: value}
        self.cluster.store.rewrite(NODE, {**node, "metadata": {**node["metadata"], field: kept}})

    def tried(self, alert: str, number: int = 0) -> str:
        """Run a command of the runbook, word by word, and return its output."""
        return self.kubectl(*commands(rule_of(alert))[number][1:])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def night(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """Yield them; the scheduler's log is behind a pod of its own, as in a cluster."""
    folder = tmp_path_factory.mktemp("night")
    (folder / "broken.py").write_text(RULE)
    (folder / "config.yaml").write_text(CONFIG)
    async with DevCluster(nodes=1) as cluster:
        kubeconfig = accounts.account_kubeconfig(cluster, "scheduler", folder)
        metadata = {
            "name": "affinity-scheduler-0",
            "labels": {"app.kubernetes.io/name": "affinity-scheduler"},
        }
        spec = {"containers": [{"name": "scheduler", "image": "i"}], "nodeName": "node-0001"}
        cluster.store.create(POD, "kube-system", {"metadata": metadata, "spec": spec})
        flags = ("--plugins", str(folder / "broken.py"), "--config", str(folder / "config.yaml"))
        async with (
            running(kubeconfig, "--leader-elect", "false", *flags) as daemon,
            port_forwarding(cluster.url, daemon.port, daemon.log) as front,
        ):
            (folder / "front").write_text(kubeconfig_text(front))
            yield Running(cluster, daemon, Kubectl(folder / "front"))


@pytest.mark.asyncio(loop_scope="module")
async def test_watch_restarts(night: Running) -> None:
    """Fault: connections that break. The log has the error."""
    before = (await night.daemon.get("/metrics"))[1]
    night.cluster.faults.add(Fault(Action.CUT_STREAM, kind="nodes", times=7))
    writes = iter(range(100_000))

    async def restarts() -> float:
        night.annotate_node("n", str(next(writes)))
        return max((await night.condition("WatchRestarts", before)).values(), default=0.0)

    assert rule_of("WatchRestarts")["expr"].endswith(" > 5")
    await until(restarts, lambda number: number > 5, what="more than five restarts of one kind")
    night.cluster.faults.clear()
    shown = await asyncio.to_thread(night.tried, "WatchRestarts")
    (line, *_) = (line for line in shown.splitlines() if "List and watch interrupted" in line)
    assert 'kind="Node"' in line
    assert "TransferEncodingError" in line


@pytest.mark.asyncio(loop_scope="module")
async def test_unschedulable_pods(night: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fault: a label that no node has. The events name it, `explain` says what helps, and that ends it."""
    night.add_pod("lost", node_selector={"disk": "ssd"})

    async def refused() -> float:
        return sum(
            value
            for labels, value in (await night.condition("UnschedulablePods")).items()
            if "NodeAffinity" in labels
        )

    await until(refused, what="a pod that the alert counts")
    shown = await until(
        lambda: asyncio.to_thread(night.tried, "UnschedulablePods"),
        lambda text: "pod/lost" in text,
        what="the event",
    )
    assert "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector" in shown
    words = commands(rule_of("UnschedulablePods"))[1]
    assert words == ["kubectl", "affinity", "explain", "POD"]
    night.cluster.write_kubeconfig(tmp_path / "kubeconfig")
    explain = ("explain", "lost", "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert await asyncio.to_thread(main, list(explain)) == 1
    assert "disk" in capsys.readouterr().out
    night.annotate_node("disk", "ssd", "labels")
    await until(refused, lambda number: number == 0, what="the end of the alert's condition")


@pytest.mark.asyncio(loop_scope="module")
async def test_plugin_shut_off(night: Running) -> None:
    """Fault: a rule with a bug. The event and the log line name its line."""
    for number in range(12):
        night.add_pod(f"team-{number}", labels={"team": "blue"})

    async def is_off() -> float:
        return max((await night.condition("PluginShutOff")).values(), default=0.0)

    await until(is_off, lambda value: value == 1, what="the rule is shut off")
    shown = await until(
        lambda: asyncio.to_thread(night.tried, "PluginShutOff"),
        lambda text: "PluginShutOff" in text,
        what="the event",
    )
    assert "KeyError: 'tem' (broken.py, line 10)" in shown
    (line,) = night.daemon.logged("Plugin shut off")
    assert "KeyError: 'tem' (broken.py, line 10)" in line


def _refuse_binds(night: Running) -> None:
    night.cluster.faults.add(Fault(Action.RESPOND, method="POST", path="/binding$", code=500, times=1000))
    night.add_pod("unbound")


def _allow_binds(night: Running) -> None:
    night.cluster.faults.clear()


def _break_node(night: Running) -> None:
    broken = build.node("broken", allocatable={"cpu": "many"})
    broken["metadata"]["uid"] = "uid-broken"
    night.cluster.store.inject(NODE, broken)


def _delete_node(night: Running) -> None:
    night.cluster.store.delete(NODE, "", "broken")


def _break_annotation(night: Running) -> None:
    night.add_pod("unreadable", annotations={AFFINITY: "no JSON"})


def _delete_pod(night: Running) -> None:
    night.cluster.store.delete(POD, "default", "unreadable")


#: An alert; its fault; the labels of the series that it is about; words of the line that shows the cause; the remedy.
_LOGGED = (
    ("Errors", _refuse_binds, "error", ("Error scheduling pod; retrying", "unbound"), _allow_binds),
    ("MalformedObjects", _break_node, "Node", ("Malformed object", "broken", "many"), _delete_node),
    ("MalformedObjects", _break_annotation, "Pod", ("Malformed object", "unreadable"), _delete_pod),
)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("alert", "fault", "label", "words", "remedy"), _LOGGED, ids=lambda value: str(value)[:20]
)
async def test_a_log_line_shows_the_cause_and_its_remedy_ends_it(
    night: Running,
    alert: str,
    fault: Callable[[Running], None],
    label: str,
    words: tuple[str, ...],
    remedy: Callable[[Running], None],
) -> None:
    """The counter of the alert grows, its command shows the line, and after the remedy the counter stands still."""

    async def counted() -> float:
        return sum(value for labels, value in (await night.condition(alert)).items() if label in labels)

    before = await counted()
    fault(night)
    await until(counted, lambda number: number > before, what="the alert's counter")
    shown = await until(
        lambda: asyncio.to_thread(night.tried, alert),
        lambda text: any(all(word in line for word in words) for line in text.splitlines()),
        what="the line",
    )
    assert shown
    remedy(night)
    night.add_pod(f"after-{label.lower()}")
    await until(lambda: _is_bound(night, f"after-{label.lower()}"), what="a bind after the remedy")
    if alert == "Errors":
        await until(lambda: _is_bound(night, "unbound"), what="the bind of the pod that waited")
    ended = await counted()
    night.annotate_node("again", label)
    night.add_pod(f"later-{label.lower()}")
    await until(lambda: _is_bound(night, f"later-{label.lower()}"), what="another bind")
    assert await counted() == ended


async def _is_bound(night: Running, name: str) -> bool:
    return bool(night.cluster.store.get(POD, "default", name)["spec"].get("nodeName"))
