"""The enforcer as a process on the embedded cluster: evictions, events, metrics and restarts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.build import ZONE, Json, selector, term
from tests.support.daemon import Daemon
from tests.support.enforcer_driver import REQUIRED, rules
from tests.support.enforcer_process import Shop, enforcing, output, shop, started
from tests.support.waiting import until

WEB, DB = {"app": "web"}, {"app": "db"}
APART = rules(far=[term(ZONE, selector("app=web"))])
NEAR_DB = rules(near=[term(ZONE, selector("app=db"))])


pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Shop]:
    async with shop(tmp_path) as made:
        yield made


async def test_changed_labels_of_pod_node_and_namespace_cause_evictions_with_an_event(
    cluster: Shop,
) -> None:
    """The declaring pod is evicted. An event on it names the rule, the domain and the other pod."""
    blue = term(ZONE, selector("app=web"), namespace_selector=selector("team=blue"))
    await cluster.label("/api/v1/namespaces/shop", **{"affinity-scheduler.io/annotation-reach": "cluster"})
    await cluster.pod("by-pod", "a1", APART)
    await cluster.pod("web", "a2", labels=DB)
    await cluster.pod("by-node", "b1", rules(far=[term(ZONE, selector("app=cache"))]))
    await cluster.pod("cache", "a1", labels={"app": "cache"})
    await cluster.pod("by-namespace", "a1", rules(far=[blue]), labels={"app": "quiet"})
    async with enforcing(cluster.kubeconfig) as daemon:
        await cluster.label(f"{cluster.path('pods')}/web", app="web")
        await cluster.left("web", "by-node", "cache", "by-namespace")
        (evicted,) = [one for one in await told(cluster, "by-pod") if one["action"] == "Evicting"]
        assert evicted["note"] == (
            f"Evicted: required anti-affinity: no other pod with app=web in namespace shop in the same {ZONE} "
            f"was broken in {ZONE}=a, beside shop/web"
        )
        assert evicted["related"]["name"] == "web"
        assert evicted["type"] == "Warning"
        await cluster.label_node("b1", "a")
        await cluster.left("web", "cache", "by-namespace")
        await cluster.label("/api/v1/namespaces/shop", team="blue")
        await cluster.left("web", "cache")
        evictions = "affinity_scheduler_enforcement_evictions_total"
        assert await daemon.metric(evictions, rule="anti-affinity", result="evicted") == 3
        assert await daemon.metric("affinity_scheduler_violations_total", enforced="true") == 3
        assert await daemon.metric("leader_election_master_status") == 1


async def logged(daemon: Daemon, *words: str) -> None:
    """Wait for a log line with all of the words."""

    async def lines() -> list[str]:
        return daemon.logged(*words)

    await until(lines, what=f"a line with {words}")


async def told(cluster: Shop, name: str, n_events: int = 2) -> list[Json]:
    """Wait for this many events about the pod, and return them."""
    return await until(lambda: cluster.events(name), lambda events: len(events) >= n_events, what="events")


async def test_a_disruption_budget_blocks_an_eviction_until_it_allows_it(cluster: Shop) -> None:
    await cluster.pod("picky", "a1", APART, labels={"app": "picky"})
    await until(lambda: cluster.ready("picky"), what="readiness")
    budget: Json = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": selector("app=picky")},
    }
    path = cluster.path("poddisruptionbudgets", group="apis/policy/v1")
    (await cluster.api.post(path, budget)).ok  # noqa: B018
    evictions = "affinity_scheduler_enforcement_evictions_total"
    async with enforcing(cluster.kubeconfig) as daemon:
        await cluster.pod("web", "a2", labels=WEB)
        await until(lambda: daemon.metric(evictions, result="blocked"), what="a refusal")
        waiting = "affinity_scheduler_enforcement_waiting"
        await until(lambda: daemon.metric(waiting, reason="budget"), what="the gauge")
        assert await cluster.names() == {"picky", "web"}
        (await cluster.api.delete(f"{path}/keep")).ok  # noqa: B018
        await cluster.left("web")
        assert await daemon.metric(evictions, result="evicted") == 1


async def test_the_grace_period_continues_after_a_restart(cluster: Shop) -> None:
    await cluster.pod("db", "a1", labels=DB)
    await cluster.pod("p", "a2", NEAR_DB, grace="5")
    record = "/api/v1/namespaces/kube-system/configmaps/affinity-scheduler-enforcer"

    async def recorded() -> dict[str, float]:
        answer = await cluster.api.get(record)
        if answer.code == 404:
            return {}
        found: dict[str, float] = json.loads(answer.body["data"]["lost-since.json"])["lostSince"]
        return found

    async with enforcing(cluster.kubeconfig) as daemon:
        await cluster.delete("db")
        waiting = "affinity_scheduler_enforcement_waiting"
        await until(lambda: daemon.metric(waiting, reason="grace"), what="the wait")
    assert len(await recorded()) == 1
    async with enforcing(cluster.kubeconfig) as daemon:
        assert await cluster.names() == {"p"}
        await cluster.left()
        await logged(daemon, '"Evicted"', "shop/p")
        await until(recorded, lambda found: not found, what="an empty record")


async def test_after_a_lost_response_the_enforcer_reads_the_pod(cluster: Shop) -> None:
    await cluster.pod("picky", "a1", APART)
    await cluster.pod("web", "a2", labels=WEB)
    fault = {"action": "lose-answer", "verb": "create", "path": "/eviction$", "times": 1}
    faults = await cluster.api.post("/devcluster/faults", [fault])
    assert faults.code < 300, faults.body
    async with enforcing(cluster.kubeconfig) as daemon:
        await cluster.left("web")
        evictions = "affinity_scheduler_enforcement_evictions_total"
        await until(lambda: daemon.metric(evictions, result="evicted"), what="the count")
        assert await daemon.metric(evictions) == 1


async def test_no_pod_is_evicted_before_all_caches_are_synced(cluster: Shop) -> None:
    """Without the namespaces the rule would look broken."""
    not_red = term(ZONE, selector("app=web"), namespace_selector=selector("!team"))
    await cluster.pod("picky", "a1", rules(far=[not_red]))
    await cluster.pod("web", "a2", labels=WEB)
    await cluster.pod("other", "b1", APART)
    await cluster.pod("web-b", "b2", labels=WEB)
    fault = {"action": "respond", "code": 503, "kind": "namespaces", "times": 1000}
    (await cluster.api.post("/devcluster/faults", [fault])).ok  # noqa: B018
    async with started(cluster.kubeconfig) as daemon:
        restarts = "affinity_scheduler_watch_restarts_total"
        await until(lambda: daemon.metric(restarts, kind="Namespace"), lambda n: n >= 2, what="attempts")
        assert (await daemon.get("/readyz"))[0] == 500
        assert await cluster.names() == {"picky", "web", "other", "web-b"}
        (await cluster.api.delete("/devcluster/faults")).ok  # noqa: B018
        await cluster.left("picky", "web", "web-b")
        assert await daemon.stop() == 0


async def test_of_two_instances_one_acts_and_the_other_takes_over(cluster: Shop) -> None:
    master = "leader_election_master_status"
    async with started(cluster.kubeconfig) as first:
        await until(lambda: first.metric(master), what="the first one leads")
        async with enforcing(cluster.kubeconfig) as second:
            await cluster.pod("picky", "a1", APART)
            await cluster.pod("web", "a2", labels=WEB)
            await cluster.left("web")
            await logged(first, '"Evicted"')
            assert await second.metric(master) == 0
            assert await first.stop() == 0
            await cluster.pod("next", "a1", APART)
            await cluster.left("web")
            await logged(second, '"Evicted"', "shop/next")


async def test_a_rule_that_is_not_enforced_is_only_reported(cluster: Shop) -> None:
    """As after a race with another scheduler: Kubernetes itself never checks again."""
    ordinary = rules(far=[term(ZONE, selector("app=web"))], which=REQUIRED)
    await cluster.pod("first", "a1", ordinary, labels=WEB)
    async with enforcing(cluster.kubeconfig) as daemon:
        await cluster.pod("second", "a2", labels=WEB)
        (event,) = await until(lambda: cluster.events("first", "AffinityRuleBroken"), what="the event")
        assert "does not hold (it is not enforced, so no pod is evicted)" in event["note"]
        assert "beside shop/second; a pod was placed here" in event["note"]
        assert await daemon.metric("affinity_scheduler_broken_rules", rule="anti-affinity") == 1
        assert await cluster.names() == {"first", "second"}


async def test_a_dry_run_logs_evictions_and_writes_nothing(cluster: Shop) -> None:
    await cluster.pod("picky", "a1", APART)
    await cluster.pod("web", "a2", labels=WEB)

    async with enforcing(cluster.kubeconfig, "--dry-run") as daemon:
        await logged(daemon, "Would evict", "shop/picky")
        assert await daemon.metric("affinity_scheduler_enforced_rules_broken", rule="anti-affinity") == 1
    assert await cluster.names() == {"picky", "web"}
    assert await cluster.events("picky") == []
    leases = await cluster.api.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")
    assert leases.ok["items"] == []


async def test_once_prints_a_table_and_sets_the_exit_code(cluster: Shop) -> None:
    arguments = ("enforce", "--once", "--kubeconfig", str(cluster.kubeconfig))
    assert await output(*arguments) == (0, "Every required rule of every running pod holds.\n", "")
    await cluster.pod("picky", "a1", APART)
    await cluster.pod("web", "a2", labels=WEB)
    code, text, errors = await output(*arguments)
    assert (code, errors) == (1, "")
    head, line = text.splitlines()
    assert head.split() == ["POD", "ENFORCED", "RULE", "WHERE", "BESIDE", "WOULD", "EVICT"]
    assert line.startswith("shop/picky  yes")
    assert line.split()[-3:] == [f"{ZONE}=a", "shop/web", "shop/picky"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--max-share", "ten"], "--max-share: found ten, expected a percentage from 0% to 100%"),
        (["--grace", "soon"], "--grace: found soon, expected a duration such as 60s"),
        (["--max-evictions-per-node", "0"], "--max-evictions-per-node: found 0, expected 1 or more"),
        (["--rebalance", "--rebalance-gain", "0"], "--rebalance-gain: found 0, expected 1 or more"),
        (
            ["--rebalance", "--rebalance-for-groups", "21"],
            "--rebalance-for-groups: found 21, expected 0 to 20",
        ),
        (
            ["--rebalance", "--rebalance-hold", "soon"],
            "--rebalance-hold: found soon, expected a duration such as 60s",
        ),
        (["--rebalance", "--once"], "--rebalance: found --once as well, expected one of them"),
        (
            ["--rebalance-gain", "50"],
            "--rebalance: found only flags that say how, expected --rebalance as well",
        ),
        (["--deletion-costs", "--once"], "--deletion-costs: found --once as well, expected one of them"),
        (["--max-cost-writes-per-minute", "0"], "--max-cost-writes-per-minute: found 0, expected 1 or more"),
        (
            ["--max-cost-writes-per-minute", "5"],
            "--deletion-costs: found only a flag that says how, expected --deletion-costs as well",
        ),
        (["--port", "70000"], "--port: found 70000, expected a port from 0 to 65535"),
    ],
)
async def test_bad_input_is_one_line(arguments: list[str], line: str) -> None:
    assert await output("enforce", *arguments) == (2, "", f"{line}\n")


async def test_impossible_lease_durations_are_one_line(tmp_path: Path) -> None:
    """The scheduler may run without leader election, but the enforcer uses the durations for its own."""
    durations = "{leaderElect: false, leaseDuration: 15s, renewDeadline: 2s, retryPeriod: 2s}"
    file = tmp_path / "scheduler.yaml"
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    file.write_text(f"{head}leaderElection: {durations}\n")
    line = "leaderElection: renewDeadline: found 2s, expected more than 1.2 times the retryPeriod of 2s\n"
    assert await output("enforce", "--config", str(file)) == (2, "", line)
