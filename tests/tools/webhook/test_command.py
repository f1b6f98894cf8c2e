"""`affinity-scheduler webhook` as a process, with certificate files, and with bad input."""

from __future__ import annotations

import json
import signal
import ssl
import time
from pathlib import Path

import aiohttp
import pytest

from scheduler.cli.main import main
from scheduler.daemon.port.certificates import TrustedKeyPair, issue
from tests.support import build
from tests.support.waiting import until
from tests.support.webhook_process import started
from tests.tools.webhook.client import review
from tests.tools.webhook.test_certificate_rotation import write


async def test_with_a_certificate_in_files_it_needs_no_api_server(tmp_path: Path) -> None:
    trusted: TrustedKeyPair = issue(["127.0.0.1"], time.time())
    cert, key = write(tmp_path, trusted.pair)
    files = ("--tls-cert-file", str(cert), "--tls-private-key-file", str(key))
    context = ssl.create_default_context(cadata=trusted.authorities.decode())
    harmful = build.pod(affinity=build.affinity(anti_required=[build.term(build.ZONE, {})]))
    async with started(*files, "--refuse-anti-affinity", "any") as (daemon, port):
        await until(daemon.is_ready, what="readiness")

        async def refuses() -> int:
            url = f"https://127.0.0.1:{port}/validate"
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, data=review(harmful), ssl=context) as answer,
            ):
                return int(json.loads(await answer.read())["response"]["status"]["code"])

        assert await refuses() == 403
        assert await daemon.metric("affinity_scheduler_webhook_requests_total", verdict="refused") == 1
        expiry = await daemon.metric("affinity_scheduler_webhook_certificate_expiry_timestamp_seconds")
        assert expiry > time.time()
        assert (await daemon.get("/healthz"))[0] == 200
        status, shown = await daemon.get("/configz")
        assert (status, json.loads(shown)["refused"]) == (200, "any")
        # Until proxies know that it stops, it still answers.
        daemon.process.send_signal(signal.SIGTERM)
        await until(
            lambda: daemon.get("/readyz"), lambda answer: answer[0] == 500, what="the end of readiness"
        )
        assert await refuses() == 403


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(["--webhook-port", "0"], "--webhook-port: found 0, expected a port from 1", id="none"),
        pytest.param(["--tls-cert-file", "x"], "--tls-cert-file: found one of the two files", id="one file"),
        pytest.param(
            ["--tls-cert-file", "/absent", "--tls-private-key-file", "/absent"],
            "--tls-cert-file: /absent: found No such file or directory, expected a readable PEM file",
            id="no file",
        ),
        pytest.param(["--refuse-anti-affinity", "all"], "invalid choice: 'all'", id="an unknown rule"),
        pytest.param(["--schedulers", "a,,b"], "--schedulers: found 'a,,b', expected names", id="no name"),
        pytest.param(["--kubeconfig", "/absent"], "/absent", id="no kubeconfig"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert line in refused(capsys, *arguments)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line that the command prints before exit code 2."""
    try:
        code: object = main(["webhook", *arguments])
    except SystemExit as ended:
        code = ended.code
    output, errors = capsys.readouterr()
    (line,) = errors.splitlines()
    assert (code, output) == (2, "")
    return line


def test_a_port_in_use_is_one_line(
    tmp_path: Path, unused_tcp_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = issue(["127.0.0.1"], time.time()).pair
    cert, key = write(tmp_path, pair)
    port = str(unused_tcp_port)
    files = ("--tls-cert-file", str(cert), "--tls-private-key-file", str(key))
    line = refused(capsys, *files, "--port", port, "--webhook-port", port)
    assert line.startswith("--webhook-port: found 127.0.0.1 port")
