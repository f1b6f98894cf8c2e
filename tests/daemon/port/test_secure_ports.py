"""The port of every command when it is reachable from outside; each command is a process with its own account."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.cli import run, serving_flags
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.port.status_server import ServingOptions, open_auth
from scheduler.errors import SettingsError
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import SERVICE_ACCOUNT
from tests.support import accounts
from tests.support import daemon as scheduling
from tests.support.cluster import kubeconfig_text
from tests.support.daemon import refused
from tests.support.manifest_files import MANIFESTS, documents
from tests.support.ports import free_port
from tests.support.waiting import until

LOG = Logger(logging.getLogger("port"))
OUTSIDE = ("--bind-address", "0.0.0.0")
#: The command of each component, and a series of its own.
COMMANDS = {
    "scheduler": ("run", "scheduler_pending_pods"),
    "enforcer": ("enforce", "affinity_scheduler_enforced_pods"),
    "webhook": ("webhook", "affinity_scheduler_webhook_requests_total"),
}


@pytest.mark.parametrize("component", COMMANDS)
async def test_every_command_answers_each_account_as_its_role_allows(tmp_path: Path, component: str) -> None:
    """With its own metrics. Only the scheduler explains. No token and no key is in the log."""
    command, series = COMMANDS[component]
    explains = component == "scheduler"
    flags = (f"--webhook-port={free_port()}",) if component == "webhook" else ()
    async with DevCluster(nodes=1) as cluster:
        if component == "webhook":
            for each in documents(MANIFESTS / "webhook" / "webhooks.yaml"):
                for hook in each["webhooks"]:
                    del hook["matchConditions"]  # which nothing evaluates there
                accounts.create(cluster, each)
        kubeconfig = accounts.account_kubeconfig(cluster, component, tmp_path)
        tokens = {
            "prometheus": accounts.new_account(cluster, "prometheus", accounts.METRICS_READER),
            "stranger": accounts.new_account(cluster, "stranger"),
            "gone": accounts.new_account(cluster, "gone", accounts.METRICS_READER),
            "person": accounts.new_account(cluster, "person", accounts.EXPLAIN_READER),
            "nobody": "nobody-knows-it",
            "": "",
        }
        cluster.store.delete(SERVICE_ACCOUNT, "default", "gone")
        async with scheduling.started(kubeconfig, *flags, *OUTSIDE, command=command) as daemon:
            await until(daemon.is_ready, what="readiness")
            for who, path, status in (
                ("prometheus", "/configz", 403),
                ("prometheus", "/livez/ping", 403),
                ("stranger", "/metrics", 403),
                ("", "/metrics", 403),
                ("gone", "/metrics", 401),
                ("nobody", "/metrics", 401),
                ("nobody", "/healthz", 200),
                ("", "/readyz?verbose", 200),
                ("person", "/debug/explain", 200 if explains else 404),
                ("prometheus", "/debug/explain", 403 if explains else 404),
                ("", "/debug/explain", 403 if explains else 404),
            ):
                daemon.token = tokens[who]
                assert (await daemon.get(path))[0] == status, (who, path)
            daemon.token = tokens["prometheus"]
            status, text = await daemon.get("/metrics")
            assert (status, series in text) == (200, True)
        for secret in (*filter(None, tokens.values()), "PRIVATE", "Bearer"):
            assert secret not in daemon.log()


async def test_loopback_is_plain_http_and_asks_for_no_review(tmp_path: Path) -> None:
    async with DevCluster(nodes=1) as cluster:
        asked: list[str] = []
        cluster.arrivals.append(lambda _agent, _method, path: asked.append(path))
        kubeconfig = accounts.account_kubeconfig(cluster, "scheduler", tmp_path)
        async with scheduling.running(kubeconfig) as daemon:
            assert (await daemon.get("/metrics"))[0] == 200
        assert not [path for path in asked if "review" in path]


@pytest.mark.parametrize(
    ("broken", "allowed", "statuses"),
    [
        pytest.param("authorization", "/healthz", {"/metrics": 500}, id="rights cannot be asked"),
        pytest.param(
            "authentication", "/healthz,/metrics", {"/metrics": 200, "/configz": 401}, id="nor who asks"
        ),
    ],
)
async def test_kube_schedulers_flags_serve_https_on_loopback(
    tmp_path: Path, broken: str, allowed: str, statuses: dict[str, int]
) -> None:
    """Each kubeconfig is asked for its own reviews. Source: test/integration/serving/serving_test.go."""
    async with DevCluster(nodes=1) as cluster:
        kubeconfig = accounts.account_kubeconfig(cluster, "scheduler", tmp_path)
        wrong = tmp_path / "wrong"
        wrong.write_text(kubeconfig_text(cluster.url, token="wrong"))
        flags = [
            f"--{name}-kubeconfig={wrong if name == broken else kubeconfig}"
            for name in ("authentication", "authorization")
        ]
        arguments = (*flags, f"--authorization-always-allow-paths={allowed}")
        async with scheduling.started(kubeconfig, *arguments) as daemon:
            daemon.is_secure = True
            await until(lambda: daemon.get("/healthz"), _is_ok, what="life")
            daemon.token = accounts.new_account(cluster, "prometheus", accounts.METRICS_READER)
            for path, status in statuses.items():
                assert (await daemon.get(path))[0] == status
            assert await daemon.stop() == 0


def _is_ok(answer: tuple[int, str]) -> bool:
    return answer == (200, "ok")


async def test_a_certificate_that_is_missing_ends_the_start(tmp_path: Path) -> None:
    async with DevCluster(nodes=1) as cluster:
        kubeconfig = accounts.account_kubeconfig(cluster, "scheduler", tmp_path)
        files = ("--tls-cert-file=/absent", "--tls-private-key-file=/absent")
        line = await refused("run", "--kubeconfig", str(kubeconfig), *OUTSIDE, *files)
    assert line.startswith("--tls-cert-file: /absent: found No such file or directory")


CONTRADICTORY = (
    ("--tls-cert-file=x", "--tls-private-key-file=x", "--insecure-http"),
    ("--authorization-always-allow-paths=/a*b",),
)


@pytest.mark.parametrize("arguments", CONTRADICTORY)
def test_contradictory_flags_are_one_line(arguments: tuple[str, ...], snapshot: SnapshotAssertion) -> None:
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    with pytest.raises(SettingsError) as caught:
        serving_flags.listening(parser.parse_args(arguments))
    assert str(caught.value) == snapshot


async def test_a_kubeconfig_for_reviews_that_is_missing_is_one_line() -> None:
    options = ServingOptions("0.0.0.0", 1, authentication_kubeconfig="/absent")
    with pytest.raises(SettingsError, match=r"^/absent: found no such file"):
        async with open_auth(options, None, {}, log=LOG, on_request=lambda *_: None):
            pass
