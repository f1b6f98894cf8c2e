"""Manifests of `explain` and `simulate`: files, folders and URLs; what is misspelt or left out is named."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from syrupy.assertion import SnapshotAssertion

from tests.cli.conftest import Called, recorded, written
from tests.support import build

#: Takes arguments, and returns what the commands do with them: what `explain` prints, and what `simulate` does.
Both = Callable[..., Awaitable[list[tuple[int, Any, Any]]]]


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
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def both(tmp_path: Path, called: Called) -> Both:
    on = recorded(
        tmp_path, build.node("a", labels={build.ZONE: "a"}), build.node("b", labels={build.ZONE: "b"})
    )

    async def call(*arguments: str) -> list[tuple[int, Any, Any]]:
        return [await called(command, *arguments, "--on", on) for command in ("explain", "simulate")]

    return call


async def test_all_files_are_taken(tmp_path: Path, url: str, both: Both) -> None:
    for name in ("a", "b"):
        written(tmp_path / f"{name}.json", pod(name))
    files = ("-f", str(tmp_path / "a.json"), "-f", f"{url}/pod.json", "-f", str(tmp_path / "b.json"))
    for (code, out, err), field in zip(await both(*files, "-o", "json"), ("pod", "name"), strict=True):
        assert [answer[field] for answer in json.loads(out)] == ["a", "web", "b"]
        assert (code, err) == (0, "read Pod (3)\n")


async def test_a_folder_is_read_as_kubectl_reads_it(tmp_path: Path, both: Both) -> None:
    """A Service without a namespace counts: by its selector the default constraints spread the pods of a bare Pod."""
    folder = tmp_path / "app"
    folder.mkdir()
    written(folder / "1-pod.yaml", build.pod("bare", labels={"app": "a"}, namespace="team"))
    service = build.service("s", {"app": "a"})
    del service["metadata"]["namespace"]
    foreign = {**service, "apiVersion": "serving.knative.dev/v1", "spec": 3}
    written(folder / "2-service.yml", service, foreign)
    (folder / "README.md").write_text("no manifest")
    # Definitions and dashboards are larger than any other manifest, and not parsed.
    (folder / "crd.yaml").write_text(f"kind: CustomResourceDefinition\nspec: [{'y' * (1 << 20)}")
    (folder / "dashboards.yaml").write_text(f"items: [{'y' * (5 << 20)}\nkind: ConfigMapList\n")
    explained, simulated = await both("-f", str(folder), "-n", "team", "-o", "json")
    left_out = "Service of serving.knative.dev/v1, CustomResourceDefinition, ConfigMapList"
    told = 0, f"read Pod, Service; left out {left_out}\n"
    assert explained[::2] == simulated[::2] == told
    (answer,) = json.loads(explained[1])
    assert all("PodTopologySpread" in node["scores"] for node in answer["scores"])


@pytest.mark.parametrize("path", ["/absent", "/pod.json", "/moved"])
async def test_a_url_that_gives_no_manifest_is_one_line(
    path: str, url: str, monkeypatch: pytest.MonkeyPatch, called: Called, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr("scheduler.tools.explain.input_files._MANIFEST_LIMIT_BYTES", 10)
    code, out, err = await called("simulate", "-f", url + path, "--on", "never-read")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.replace(url, "URL") == snapshot


async def test_a_server_that_is_not_there_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch, called: Called, snapshot: SnapshotAssertion
) -> None:
    asked = socket.getaddrinfo

    def resolve(host: str, *args: Any, **more: Any) -> Any:
        if host == "nowhere.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return asked(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    # Where aiodns is installed, aiohttp asks it instead.
    monkeypatch.setattr(aiohttp.connector, "DefaultResolver", aiohttp.ThreadedResolver)
    # In capitals: they have precedence.
    monkeypatch.setenv("NO_PROXY", "*")
    for address in ("http://127.0.0.1:1/x", "http://nowhere.invalid/x", "http://[", "https://"):
        assert await called("explain", "-f", address, "--on", "never-read") == (2, "", snapshot)


POD = "kind: Pod\napiVersion: v1\nmetadata: {name: p}\n"
NOT_MANIFESTS = {
    "empty": "",
    "a list": "- a\n",
    "no YAML": "kind: [Pod",
    "a secret": "kind: Secret\napiVersion: v1\n",
    "a kind that no terminal shows": 'kind: "\\x85x"\napiVersion: v1\n',
    "a kind that is no text": "kind: [Pod]\napiVersion: v1\n",
    "the same object twice": f"{POD}spec: {{}}\n---\nkind: Pod\napiVersion: v1\n"
    "metadata: {name: p, namespace: default}\nspec: {}\n",
    "a quantity that is none": f"{POD}spec: {{containers: [{{resources: {{requests: {{cpu: x}}}}}}]}}\n",
    "requests that are no object": f"{POD}spec: {{containers: [{{resources: {{requests: x, limits: {{cpu: 1}}}}}}]}}\n",
    "a key of a toleration that is no text": f"{POD}spec: {{tolerations: [{{key: 5}}]}}\n",
    "tolerations that are no list": f"{POD}spec: {{tolerations: x}}\n",
    "a volume whose name is a list": f"{POD}spec: {{volumes: [{{name: []}}]}}\n",
    "a Service whose selector is no text": f"{POD}spec: {{}}\n---\nkind: Service\napiVersion: v1\n"
    "metadata: {name: s}\nspec: {selector: {app: 3}}\n",
    "a class whose value is no number": f"{POD}spec: {{}}\n---\nkind: PriorityClass\n"
    "apiVersion: scheduling.k8s.io/v1\nmetadata: {name: c}\nvalue: x\n",
    "misspelt": f"{POD}spec: {{nodeSelectr: {{}}, tolerations: [{{effect: NoScheduel}}]}}\n",
}


@pytest.mark.parametrize("manifest", NOT_MANIFESTS.values(), ids=NOT_MANIFESTS)
async def test_what_is_wrong_in_a_manifest_is_a_line(
    manifest: str, tmp_path: Path, both: Both, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "m.yaml").write_text(manifest)
    explained, simulated = await both("-f", str(tmp_path / "m.yaml"))
    code, out, err = explained
    assert explained == simulated
    assert (code, out, err.count("\n")) == (2, "", 2 if "nodeSelectr" in manifest else 1)
    assert err == snapshot


async def test_an_annotation_that_nothing_reads_is_told(
    tmp_path: Path, both: Both, snapshot: SnapshotAssertion
) -> None:
    annotations = {"affinity-scheduler.io/afinity": "{}"}
    file = written(tmp_path / "pod.json", build.pod("p", annotations=annotations))
    for code, out, _ in await both("-f", file, "-o", "json"):
        (answer,) = json.loads(out)
        assert code == 0
        assert [note for note in answer["notes"] if "afinity" in note] == snapshot
