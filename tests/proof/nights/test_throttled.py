"""Priority and fairness rejects requests of the scheduler (429 with Retry-After) while others are served."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.proof.nights.servers import Night, night
from tests.support.build import Json
from tests.support.daemon import started
from tests.support.kubectl import Kubectl
from tests.support.waiting import until
from tests.system.monitoring.runbooks import command_with

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio]

_GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
_N_PODS = 20


def _rule(verbs: list[str], resources: list[str]) -> Json:
    return {
        "subjects": [{"kind": "User", "user": {"name": "system:kube-scheduler"}}],
        "resourceRules": [
            {
                "verbs": verbs,
                "apiGroups": ["*"],
                "resources": resources,
                "clusterScope": True,
                "namespaces": ["*"],
            }
        ],
    }


async def _throttle(of: Night, verbs: list[str], resources: list[str]) -> None:
    """Give these requests of the scheduler a level with the one seat that every level has, and no queue."""
    level = {
        "metadata": {"name": "night"},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 0,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Reject"},
            },
        },
    }
    schema = {
        "metadata": {"name": "night"},
        "spec": {
            "priorityLevelConfiguration": {"name": "night"},
            "matchingPrecedence": 2,
            "rules": [_rule(verbs, resources)],
        },
    }
    (await of.cluster.api.post(f"{_GROUP}/prioritylevelconfigurations", level)).ok  # noqa: B018
    (await of.cluster.api.post(f"{_GROUP}/flowschemas", schema)).ok  # noqa: B018


async def _relent(of: Night) -> None:
    """Take the level away."""
    for plural in ("flowschemas", "prioritylevelconfigurations"):
        (await of.cluster.api.delete(f"{_GROUP}/{plural}/night")).ok  # noqa: B018


async def test_binds_that_are_throttled_are_sent_again_when_asked(tmp_path: Path) -> None:
    """Of twenty at once most are rejected, some of them again; all are made, and the port stays ready."""
    async with night(tmp_path) as server:
        await server.cluster.add_node("n", allocatable={"pods": "100"})
        async with started(server.kubeconfig_of_scheduler(), "--leader-elect=false") as daemon:
            await until(daemon.is_ready)
            await _throttle(server, ["create"], ["pods/binding"])
            began_s = time.monotonic()
            for number in range(_N_PODS):
                await server.cluster.add_pod(f"p{number}")
            await server.cluster.all_bound(_N_PODS)
            n_rejected = await daemon.metric("rest_client_requests_total", code="429", method="POST")
            # Retry-After is a second.
            assert 0 < n_rejected <= _N_PODS * (time.monotonic() - began_s + 1)
            assert await daemon.metric("scheduler_schedule_attempts_total", result="error") == 0
            words = command_with("ApiErrors", "dump_priority_levels")
            levels = await asyncio.to_thread(Kubectl(server.kubeconfig), *words[1:])
            (level,) = (line.split(",") for line in levels.splitlines() if line.startswith("night,"))
            assert len(level) > 3, "the level of the requests, with its load"
            assert (await daemon.get("/readyz"))[0] == 200
            assert not daemon.logged("Traceback"), daemon.log()


async def test_a_scheduler_that_is_throttled_at_its_start_begins_once_it_is_served(tmp_path: Path) -> None:
    """It lists late, is not ready until then, and does not end."""
    async with night(tmp_path) as server:
        await server.cluster.add_node("n")
        await server.cluster.add_pod("p")
        kubeconfig = server.kubeconfig_of_scheduler()
        await _throttle(server, ["list", "watch"], ["*"])
        async with started(kubeconfig, "--leader-elect=false") as daemon:
            await until(lambda: daemon.metric("rest_client_requests_total", code="429", method="GET"))
            assert (await daemon.get("/readyz"))[0] == 500
            assert daemon.logged("429"), daemon.log()
            await _relent(server)
            await server.cluster.node_of("p")
            assert await daemon.is_ready()
            assert not daemon.logged("Traceback"), daemon.log()
