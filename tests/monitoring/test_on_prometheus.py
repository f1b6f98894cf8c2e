"""A real Prometheus scrapes a real run: every panel has data, and every alert has a value to evaluate."""

import asyncio
import contextlib
import json
import math
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path, PurePath
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from scheduler.devcluster.http.faults import Action, Fault
from scheduler.devcluster.kinds import NODE, JsonObject
from tests.integration.conftest import embedded
from tests.monitoring.queries import ALERTS, RULES, Query, of_alerts, of_dashboard, without_thresholds
from tests.support import accounts, build
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon, running
from tests.support.manifest_files import MANIFESTS, documents
from tests.support.ports import free_port
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

#: Values of Grafana's variables; the interval is several scrapes long.
VARIABLES = {"$__rate_interval": "10s", "$job": "affinity-scheduler", "$instance": ".*"}
_ZONES = ("a", "b", "c")
#: At one a second. The loop's lag is measured every five seconds, and a rate needs two of them within its interval.
_N_SCRAPES = 12
#: A profile with plugins of one's own, which have series too.
_EXAMPLES = MANIFESTS / "examples" / "plugins"
_PLUGINS = ("--plugins", str(_EXAMPLES), "--config", str(_EXAMPLES / "configuration.yaml"))


#: Series of the enforcer and of the webhook, and of what does not happen in this run.
_OF_OTHERS = re.compile(r"-enforcer|-webhook|relaxed_rules|evictions_in_vain|divergences|plugin_failures")


class Prometheus:
    """A running server and its HTTP API."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}"

    async def is_ready(self) -> bool:
        """Return True once it is ready."""
        try:
            async with self._session.get(f"{self._url}/-/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def get(self, path: str, **parameters: str) -> Any:
        """Return the data of a successful response."""
        async with self._session.get(f"{self._url}/api/v1/{path}", params=parameters) as answer:
            body = await answer.json()
        assert body["status"] == "success", body
        return body["data"]

    async def numbers(self, expression: str) -> list[float]:
        """Return the current values of an expression, one per series, without NaN."""
        return [value for value in await self.all_numbers(expression) if not math.isnan(value)]

    async def all_numbers(self, expression: str, at_s: float | None = None) -> list[float]:
        """Return the values of an expression at a second since 1970, or now, one per series."""
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        when = {} if at_s is None else {"time": str(at_s)}
        found = (await self.get("query", query=expression, **when))["result"]
        return [float(series["value"][1]) for series in found]

    async def began_s(self) -> float:
        """Return the time of the first scrape, in seconds since 1970."""
        (first,) = await self.numbers("min(min_over_time(timestamp(up)[5m:1s]))")
        return first


@asynccontextmanager
async def scraping(folder: Path, daemon: Daemon) -> AsyncIterator[Prometheus]:
    """Run a Prometheus with our rules that scrapes the daemon every second, as the ServiceMonitor says."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed (Debian's package prometheus has it)")
    (folder / "rules.yaml").write_text(yaml.safe_dump(RULES["spec"]))
    own = free_port()
    (folder / "token").write_text(daemon.token)
    (endpoint,) = documents(MANIFESTS / "monitoring" / "service-monitor.yaml")[0]["spec"]["endpoints"]
    target = {
        "job_name": "affinity-scheduler",
        "static_configs": [{"targets": [f"127.0.0.1:{daemon.port}"]}],
        "scheme": endpoint["scheme"],
        "metrics_path": endpoint["path"],
        "authorization": {"credentials_file": str(folder / PurePath(endpoint["bearerTokenFile"]).name)},
        "tls_config": {"insecure_skip_verify": endpoint["tlsConfig"]["insecureSkipVerify"]},
    }
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [target],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            binary,
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{own}",
            stdout=log,
            stderr=log,
        )
    try:
        async with aiohttp.ClientSession() as session:
            prometheus = Prometheus(session, own)
            await until(prometheus.is_ready, what="Prometheus")
            yield prometheus
    finally:
        process.kill()
        await process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scraped(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prometheus]:
    """Run a scheduler for 15 s with scheduled and failing pods and every kind of trouble."""
    folder = tmp_path_factory.mktemp("scraped")
    async with (
        embedded(folder, bookmark_interval_s=0.5) as cluster,
        running(Path(cluster.kubeconfig), "--seed", "1", "--bind-address", "0.0.0.0", *_PLUGINS) as daemon,
        AsyncExitStack() as stack,
    ):
        assert cluster.devcluster is not None
        daemon.token = accounts.new_account(cluster.devcluster, "prometheus", accounts.METRICS_READER)
        prometheus = await stack.enter_async_context(scraping(folder, daemon))
        await cluster.api.enter_namespace()
        for number in range(12):
            labels = {build.ZONE: _ZONES[number % len(_ZONES)]}
            await cluster.add_node(f"n-{number}", labels=labels)
        await _trouble(cluster, daemon)
        coming = asyncio.create_task(_pods_come(cluster), name="pods come")
        await until(
            lambda: prometheus.numbers("count_over_time(up[1m])"),
            lambda found: found and found[0] >= _N_SCRAPES,
            timeout_s=2 * _N_SCRAPES,
            what="so many scrapes",
        )
        yield prometheus
        coming.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await coming


async def _pods_come(cluster: Cluster) -> None:
    """Create twenty pods a second, with affinity and spread; every tenth fits no node."""
    apart = build.affinity(anti_preferred=[(1, build.term(build.HOSTNAME, build.selector("app=web")))])
    even = [build.spread(build.ZONE, build.selector("app=web"))]
    nowhere = build.affinity(required=[build.term(build.ZONE, build.selector("app=nobody"))])
    number = 0
    while True:
        number += 1
        if number % 40 == 1:
            group = {
                "affinity-scheduler.io/pod-group": f"g-{number}",
                "affinity-scheduler.io/pod-group-min-count": "1",
            }
            await cluster.add_pod(f"member-{number}", labels=group)
        elif number % 10:
            await cluster.add_pod(f"web-{number}", labels={"app": "web"}, affinity=apart, spread=even)
        else:
            await cluster.add_pod(f"lost-{number}", affinity=nowhere)
        await asyncio.sleep(0.05)


async def _trouble(cluster: Cluster, daemon: Daemon) -> None:
    """Cause each kind of trouble once: refused and failed requests, a broken watch, a malformed object."""
    devcluster = cluster.devcluster
    assert devcluster is not None
    devcluster.faults.add(Fault(Action.RESPOND, method="POST", path="/binding$", code=403))
    await cluster.add_pod("refused")
    await until(lambda: daemon.metric("scheduler_schedule_attempts_total", result="error"))
    devcluster.faults.add(Fault(Action.RESPOND, method="POST", path="/binding$", code=503))
    devcluster.faults.add(Fault(Action.CUT_STREAM, kind="nodes"))
    broken: JsonObject = build.node("broken", allocatable={"cpu": "many"})
    devcluster.store.inject(NODE, broken)
    await until(lambda: daemon.metric("affinity_scheduler_malformed_objects_total"))
    await until(lambda: daemon.metric("affinity_scheduler_watch_restarts_total"))


@pytest.mark.parametrize(
    "query",
    [query for query in of_dashboard() if not _OF_OTHERS.search(query.expression)],
    ids=lambda query: query.where,
)
async def test_a_panel_has_data(scraped: Prometheus, query: Query):
    """Only the scheduler's panels, since only it runs here, and only what happens in a scheduler without faults."""
    assert await scraped.numbers(query.expression)


@pytest.mark.parametrize("query", of_dashboard(), ids=lambda query: query.where)
async def test_a_panel_has_no_nan_before_anything_happened(scraped: Prometheus, query: Query):
    """At a time before the first scrape that has a rate, and now."""
    for at_s in (await scraped.began_s() + 3, None):
        assert not any(map(math.isnan, await scraped.all_numbers(query.expression, at_s))), at_s


@pytest.mark.parametrize(
    "query",
    [query for query in of_alerts() if 'job="affinity-scheduler"' in query.expression],
    ids=lambda query: query.where,
)
async def test_an_alert_has_a_value_to_evaluate(scraped: Prometheus, query: Query):
    """Only the scheduler's alerts, since only it runs here."""
    for part in without_thresholds(query.expression):
        assert await scraped.numbers(part), part


async def test_prometheus_evaluates_every_rule_without_an_error(scraped: Prometheus):
    rules = [rule for group in (await scraped.get("rules"))["groups"] for rule in group["rules"]]
    assert [rule["name"] for rule in rules] == [rule["alert"] for rule in ALERTS]
    assert {rule["health"] for rule in rules} == {"ok"}, json.dumps(rules)


async def test_no_sample_is_missing_or_repeated(scraped: Prometheus):
    """Prometheus drops a sample whose series is in a scrape twice."""
    assert await scraped.numbers("min_over_time(up[10s])") == [1.0]
    scraped_, kept = "scrape_samples_scraped", "scrape_samples_post_metric_relabeling"
    assert await scraped.numbers(f"{scraped_} - {kept}") == [0.0]
