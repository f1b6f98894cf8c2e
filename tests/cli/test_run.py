"""`run` understands every flag of kube-scheduler 1.36, or refuses it by name; the page says what to use instead."""

from __future__ import annotations

import argparse
import re
import ssl
from pathlib import Path
from typing import Final

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.cli import kube_scheduler_flags, run, serving_flags
from scheduler.daemon.port.delegated_auth import ALWAYS_ALLOWED
from scheduler.daemon.port.status_server import ServingOptions
from scheduler.engine.model.annotations import DECISION_ANNOTATION
from scheduler.engine.model.semantics import Gate, Version, semantics_of
from scheduler.errors import SettingsError
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import POD
from tests.support import build
from tests.support.accounts import account_kubeconfig
from tests.support.daemon import running
from tests.support.waiting import until_written

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = "scheduler/cli/README.md"
#: `kube-scheduler --help` of 1.36.2, but for -h and --version.
_HELP: Final = """
    allow-metric-labels allow-metric-labels-manifest authentication-kubeconfig authentication-skip-lookup
    authentication-token-webhook-cache-ttl authentication-tolerate-lookup-failure authorization-always-allow-paths
    authorization-kubeconfig authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl
    bind-address cert-dir client-ca-file config contention-profiling disable-http2-serving disabled-metrics
    emulated-version feature-gates http2-max-streams-per-connection kube-api-burst kube-api-content-type kube-api-qps
    kubeconfig leader-elect leader-elect-lease-duration leader-elect-renew-deadline leader-elect-resource-lock
    leader-elect-resource-name leader-elect-resource-namespace leader-elect-retry-period log-flush-frequency
    log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size log-text-split-stream logging-format
    master min-compatibility-version permit-address-sharing permit-port-sharing
    pod-max-in-unschedulable-pods-duration profiling requestheader-allowed-names requestheader-client-ca-file
    requestheader-extra-headers-prefix requestheader-group-headers requestheader-uid-headers
    requestheader-username-headers secure-port show-hidden-metrics-for-version tls-cert-file tls-cipher-suites
    tls-curve-preferences tls-min-version tls-private-key-file tls-sni-cert-key unsupported-kube-api-over-localhost
    v vmodule write-config-to
"""
FLAGS: Final = _HELP.split()
VALUES: Final = {
    "kube-api-burst": "7",
    "kube-api-qps": "7",
    "logging-format": "json",
    "secure-port": "7",
    "tls-min-version": "VersionTLS13",
    "v": "7",
    "authentication-skip-lookup": "true",
    "authentication-tolerate-lookup-failure": "true",
    "contention-profiling": "true",
    "disable-http2-serving": "true",
    "leader-elect": "true",
    "permit-address-sharing": "true",
    "profiling": "true",
}


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    run.add_arguments(parser)
    return parser.parse_args(arguments)


def serving(*arguments: str) -> ServingOptions:
    return serving_flags.listening(parsed(*arguments))


@pytest.mark.parametrize("name", FLAGS)
def test_each_flag_is_understood_or_refused_by_name(name: str) -> None:
    """In both ways to write its value; a refusal names the page that says what to use."""
    value = VALUES.get(name, "x")
    for arguments in ((f"--{name}={value}",), (f"--{name}", value)):
        try:
            args = parsed(*arguments)
        except SettingsError as refused:
            assert refused.source == f"--{name}"
            assert f"{PAGE}#flags-of-kube-scheduler" in refused.expected
        else:
            values = kube_scheduler_flags.flag_values(args)
            assert values["log-format" if name == "logging-format" else name] == value


def test_the_page_has_every_refused_flag() -> None:
    section = (ROOT / PAGE).read_text().partition("### Flags of kube-scheduler\n")[2].partition("\n###")[0]
    refused = "".join(line.rpartition("|")[0].rpartition("|")[0] for line in section.splitlines())
    assert set(re.findall(r"`--([a-z-]+)`", refused)) == set(kube_scheduler_flags._REFUSED)


@pytest.mark.parametrize("name", [name for name, value in VALUES.items() if value == "true"])
def test_a_boolean_flag_has_gos_spellings(name: str) -> None:
    for text, value in (("", "true"), ("=false", "false"), ("=T", "true"), ("=0", "false")):
        assert kube_scheduler_flags.flag_values(parsed(f"--{name}{text}"))[name] == value


def test_a_switch_is_shown_as_go_shows_it() -> None:
    shown = [kube_scheduler_flags.flag_values(parsed(*given)) for given in ((), ("--insecure-http",))]
    assert [values["insecure-http"] for values in shown] == ["false", "true"]


def test_flags_without_effect_are_noted() -> None:
    assert kube_scheduler_flags.notes(parsed("--profiling=false", "--v=3")) == (
        "--profiling has no effect: /debug/pprof is not served",
    )


PORTS = {
    "a laptop": ((), False),
    "another port": (("--port=1",), False),
    "kube-scheduler's port": (("--secure-port=10259",), True),
    "kubeadm's manifest": (("--authentication-kubeconfig=f",), True),
    "half of it": (("--authorization-kubeconfig=f",), True),
    "no port": (("--secure-port=0",), False),
    "not loopback": (("--bind-address=0.0.0.0",), True),
}


@pytest.mark.parametrize(("arguments", "is_secure"), PORTS.values(), ids=PORTS)
def test_flags_of_kube_schedulers_port_ask_for_https_on_loopback(
    arguments: tuple[str, ...], is_secure: bool
) -> None:
    assert serving(*arguments).is_secure is is_secure


def test_the_paths_that_need_no_authorization_are_those_of_the_port() -> None:
    assert serving().always_allowed == ALWAYS_ALLOWED


def test_tls_flags_restrict_the_context() -> None:
    limits = serving(
        "--tls-min-version=VersionTLS13",
        "--tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    ).tls
    assert limits.min_version is ssl.TLSVersion.TLSv1_3
    assert limits.cipher_suites == ("ECDHE-RSA-AES128-GCM-SHA256",)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--port=1", "--secure-port=2"),
        ("--secure-port=70000",),
        ("--secure-port=1", "--insecure-http"),
        ("--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA",),
        ("--leader-elect-lease-duration=5s",),
        ("--leader-elect-retry-period=soon",),
        ("--leader-elect-resource-lock=endpoints",),
        ("--kube-api-burst=-1",),
    ],
    ids=" ".join,
)
def test_values_that_cannot_work_or_contradict_each_other(
    arguments: tuple[str, ...], snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(SettingsError) as refused:
        serving(*arguments)
        run.settings_of(parsed(*arguments))
    assert str(refused.value) == snapshot


def test_election_and_rate_limit_override_the_defaults() -> None:
    settings = run.settings_of(
        parsed(
            *("--leader-elect=false", "--leader-elect-resource-name=a"),
            "--leader-elect-resource-namespace=b",
            *("--leader-elect-lease-duration=1m", "--leader-elect-renew-deadline=40s"),
            *("--leader-elect-retry-period=1s", "--kube-api-qps=20", "--kube-api-burst=30"),
            "--feature-gates=kube:PodLevelResources=false",
            "--emulated-version=kube=1.35",
        )
    )
    election = settings.configuration.leader_election
    assert (election.leader_elect, election.resource_name, election.resource_namespace) == (False, "a", "b")
    assert (election.lease_duration_s, election.renew_deadline_s, election.retry_period_s) == (60, 40, 1)
    client = settings.configuration.client_connection
    assert (client.qps, client.burst) == (20, 30)
    assert settings.semantics == semantics_of(Version(1, 35), {Gate.POD_LEVEL_RESOURCES: False})


async def test_bound_pods_have_no_decision_annotation_if_it_is_off(tmp_path: Path) -> None:
    pod = build.pod("p", spec={"schedulerName": "affinity-scheduler"})
    async with DevCluster(nodes=3) as cluster:
        async with running(
            account_kubeconfig(cluster, "scheduler", tmp_path), "--decision-annotations", "false"
        ):
            cluster.store.create(POD, "default", pod)
            await until_written(
                cluster.store, lambda: cluster.store.get(POD, "default", "p")["spec"].get("nodeName")
            )
        stored = cluster.store.get(POD, "default", "p")
    assert DECISION_ANNOTATION not in (stored["metadata"].get("annotations") or {})
