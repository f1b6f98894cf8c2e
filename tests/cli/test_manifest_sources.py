"""`-f` may be given several times, and may be a URL; what is misspelt is an error, what is left out is named."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Called
from tests.support import build
from tests.support.snapshots import header


class _Manifests(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/pod.json")
            self.end_headers()
            return
        self.send_response(200 if self.path == "/pod.json" else 404)
        self.end_headers()
        self.wfile.write(json.dumps(pod("web")).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        del format, args


def pod(name: str) -> build.Json:
    return {field: value for field, value in build.pod(name).items() if field != "status"}


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Manifests) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps({**header(), "nodes": [build.node("n")]}))
    return str(file)


@pytest.mark.parametrize("command", ["explain", "simulate"])
async def test_all_files_are_taken(
    command: str, tmp_path: Path, snapshot: str, url: str, called: Called
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(pod(name)))
    files = ("-f", str(tmp_path / "a.json"), "-f", f"{url}/pod.json", "-f", str(tmp_path / "b.json"))
    code, out, err = await called(command, *files, "--on", snapshot, "-o", "json")
    answers = json.loads(out)
    field = "pod" if command == "explain" else "name"
    assert [answer[field] for answer in answers] == ["a", "web", "b"]
    assert (code, err) == (0, "read Pod (3)\n")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/absent", "found status 404 Not Found, expected a manifest"),
        ("/pod.json", "found more than 10 bytes, expected fewer"),
        ("/moved", "found more than 10 bytes, expected fewer"),
    ],
)
async def test_a_url_that_gives_no_manifest_is_one_line(
    path: str, found: str, snapshot: str, url: str, monkeypatch: pytest.MonkeyPatch, called: Called
) -> None:
    monkeypatch.setattr("scheduler.tools.explain.input_files._MANIFEST_LIMIT_BYTES", 10)
    told = await called("simulate", "-f", url + path, "--on", snapshot)
    assert told == (2, "", f"{url}{path}: {found}\n")


@pytest.mark.parametrize("address", ["http://[", "https://"])
async def test_a_url_without_a_server_is_one_line(address: str, snapshot: str, called: Called) -> None:
    code, _, err = await called("explain", "-f", address, "--on", snapshot)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"{address}: found ")


async def test_a_server_that_is_not_there_is_said_in_words(
    snapshot: str, monkeypatch: pytest.MonkeyPatch, called: Called
) -> None:
    asked = socket.getaddrinfo

    def resolve(host: str, *args: Any, **more: Any) -> Any:
        if host == "nowhere.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return asked(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setenv("no_proxy", "*")
    for address, why in (
        ("http://127.0.0.1:1/x", "nothing listens on 127.0.0.1:1"),
        ("http://nowhere.invalid/x", "no address is known of the host nowhere.invalid"),
    ):
        told = await called("explain", "-f", address, "--on", snapshot)
        assert told == (2, "", f"{address}: {why}\n")


@pytest.mark.parametrize("command", ["explain", "simulate"])
async def test_each_misspelt_field_or_value_is_a_line(
    command: str, tmp_path: Path, snapshot: str, called: Called
) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(
        "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {nodeSelectr: {}, tolerations: [{effect: NoScheduel}]}\n"
    )
    code, out, err = await called(command, "-f", str(file), "--on", snapshot)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f'{file}: spec.nodeSelectr: unknown field; did you mean "nodeSelector"?',
        f"{file}: spec.tolerations[0].effect: found 'NoScheduel', expected one of NoSchedule, PreferNoSchedule,"
        ' NoExecute; did you mean "NoSchedule"?',
    ]


@pytest.mark.parametrize("command", ["explain", "simulate"])
async def test_an_annotation_that_nothing_reads_is_told(
    command: str, tmp_path: Path, snapshot: str, called: Called
) -> None:
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(build.pod("p", annotations={"affinity-scheduler.io/afinity": "{}"})))
    code, out, _ = await called(command, "-f", str(file), "--on", snapshot, "-o", "json")
    (answer,) = json.loads(out)
    assert code == 0
    note = (
        "annotation affinity-scheduler.io/afinity has no effect: nothing reads it;"
        ' did you mean "affinity-scheduler.io/affinity"?'
    )
    assert answer["notes"].count(note) == 1
