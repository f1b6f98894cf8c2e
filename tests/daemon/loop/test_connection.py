"""The first requests of a daemon: a lasting refusal is logged, repeated, and then ends the start; the version."""

import io
from dataclasses import replace

import pytest
from aiohttp import web

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.loop.connection import Connection, check_answer, with_semantics
from scheduler.daemon.metrics.logs import configure
from scheduler.daemon.metrics.process import ControllerMetrics
from scheduler.daemon.settings.feature_gates import RequestedSemantics
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Version, semantics_of
from scheduler.errors import SettingsError
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.support.scripted_server import anonymous, answering

NO_FLAGS = RequestedSemantics()


async def answered(*codes: int) -> tuple[list[float], str]:
    """Let the server answer with these codes, then well. Return the pauses between requests, and the log."""
    pauses: list[float] = []
    written = io.StringIO()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async with DevCluster() as server, KubeClient(anonymous(server.url)) as client:
        for code in codes:
            server.faults.add(Fault(action=Effect.RESPOND, kind="pods", code=code))
        log = configure(verbosity=0, form="text", stream=written)
        await check_answer(client, server.url, waits=True, log=log, sleep=sleep)
    return pauses, written.getvalue()


FORBIDS = "The API server forbids the list of pods; trying again"
LATE = "The API server does not answer yet; trying again"


@pytest.mark.parametrize(("codes", "told"), [([403] * 3, [FORBIDS]), ([403, 503], [FORBIDS, LATE])])
async def test_roles_that_come_late_are_waited_for(codes: list[int], told: list[str]) -> None:
    """Also where the server ends meanwhile."""
    pauses, log = await answered(*codes)
    assert pauses == [2.0] * codes.count(403)
    assert [text in line for text, line in zip(told, log.splitlines(), strict=True)] == [True] * len(told)


async def test_a_right_that_stays_missing_ends_the_start_after_a_minute() -> None:
    with pytest.raises(SettingsError, match=r": 403 Forbidden: .*; a role with this right is missing"):
        await answered(*[403] * 31)


async def test_a_credential_that_turns_out_wrong_ends_the_start() -> None:
    with pytest.raises(SettingsError, match=": 401 Unauthorized"):
        await answered(403, 401)


VERSIONS = {
    "known": ({"major": "1", "minor": "34"}, 0, "1.34"),
    "of a provider": ({"major": "1", "minor": "35+"}, 0, "1.35"),
    "emulated there": (
        {"major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "34"},
        0,
        "1.34",
    ),
    "newer": ({"major": "1", "minor": "39"}, 1, "1.37"),
    "older": ({"major": "1", "minor": "33"}, 1, "1.34"),
}


@pytest.mark.parametrize(("body", "unknown", "emulated"), VERSIONS.values(), ids=VERSIONS)
async def test_the_version_of_the_server_is_emulated(
    body: dict[str, str], unknown: int, emulated: str
) -> None:
    """One line, and a number for an alert, if it is not known; `/metrics` has the version and its gates."""
    connection, metrics, log = await versioned(web.json_response(body))
    assert connection.semantics is not None
    assert str(connection.semantics.version) == emulated
    assert log.count("The version of the API server is not known here") == unknown
    assert f"affinity_scheduler_unknown_server_version {unknown}\n" in metrics
    assert f'version_info{{binary="1",component="kube",emulation="{emulated}",min_compat="1.3' in metrics
    stage = "ALPHA" if emulated == "1.34" else "BETA"
    assert f'kubernetes_feature_enabled{{name="NominatedNodeNameForExpectation",stage="{stage}"}} ' in metrics


@pytest.mark.parametrize(("minor", "dropped"), [("33", ["spec.resources of pods"]), ("34", []), ("37", [])])
async def test_each_field_that_the_server_drops_and_its_emulated_version_reads_has_a_line(
    minor: str, dropped: list[str]
) -> None:
    _, _, log = await versioned(web.json_response({"major": "1", "minor": minor}))
    lines = [line for line in log.splitlines() if "Field that the API server drops" in line]
    assert [field for line in lines for field in dropped if field in line and "1.34" in line] == dropped
    assert len(lines) == len(dropped)


@pytest.mark.parametrize("answer", [web.Response(status=403), web.json_response({"minor": "x"})])
async def test_a_server_that_does_not_say_its_version_is_taken_for_the_default_one(
    answer: web.Response,
) -> None:
    connection, _, log = await versioned(answer)
    assert connection.semantics == DEFAULT_SEMANTICS
    (line,) = log.splitlines()
    assert "The API server does not say its version" in line


async def test_a_server_that_does_not_answer_yet_has_no_version() -> None:
    """The caller asks again."""
    connection, metrics, log = await versioned(web.Response(status=503))
    assert (connection.semantics, log) == (None, "")
    assert "emulation=" not in metrics


async def test_a_flag_names_the_version_without_a_request() -> None:
    requested = RequestedSemantics(Version(1, 34))
    connection, _, log = await versioned(web.Response(status=500), requested)
    assert connection.semantics == semantics_of(Version(1, 34))
    assert not log
    gates = RequestedSemantics(switched={"TaintTolerationComparisonOperators": True})
    with pytest.raises(SettingsError, match="is PreAlpha at emulated version"):
        await versioned(web.json_response({"major": "1", "minor": "34"}), gates)


async def versioned(
    answer: web.Response, requested: RequestedSemantics = NO_FLAGS
) -> tuple[Connection, str, str]:
    """Let the server answer /version so. Return the connection, the metrics and the log."""
    written = io.StringIO()
    metrics = ControllerMetrics(version="1")

    async def version(request: web.Request) -> web.Response:
        assert request.path == "/version"
        return answer

    settings = replace(default_settings(), requested=requested)
    async with answering(version) as url, KubeClient(anonymous(url)) as client:
        log = configure(verbosity=0, form="text", stream=written)
        connection = await with_semantics(Connection(client, log), settings, metrics)
    return connection, metrics.render().decode(), written.getvalue()
