"""
/statusz and /flagz, by what the real kube-scheduler answers.

`ANSWERS` is recorded from kube-scheduler 1.36.2: the Accept header, and what it answered. In a header, `{as}` stands
for the group and the kind. Both pages answered each header alike.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import aiohttp
import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from scheduler.daemon.port.zpages import ZPages, negotiate

PAGES: Final = {"/statusz": "Statusz", "/flagz": "Flagz"}
TEXT, REFUSED, REFUSED_AS_YAML = "text/plain; charset=utf-8", "406 json", "406 yaml"
ANSWERS: Final = [
    (None, TEXT),
    ("", TEXT),
    (" ", TEXT),
    ("*/*", TEXT),
    ("*", TEXT),
    ("text/plain", TEXT),
    ("text/*", TEXT),
    ("text/plain;charset=utf-8", TEXT),
    ("text/plain; charset=latin1", TEXT),
    ("text/html", REFUSED),
    ("text/html,*/*;q=0.8", TEXT),
    ("application/*", REFUSED),
    ("application/json", REFUSED),
    ("application/yaml", REFUSED_AS_YAML),
    ("application/xml", REFUSED),
    ("application/cbor", REFUSED),
    ("application/vnd.kubernetes.protobuf", REFUSED),
    ("garbage", REFUSED),
    ("application/json/x", REFUSED),
    ("application/json;v=v1alpha1;{as}", "json v1alpha1"),
    ("application/json;v=v1beta1;{as}", "json v1beta1"),
    ("application/yaml;v=v1alpha1;{as}", "yaml v1alpha1"),
    ("application/yaml;v=v1beta1;{as}", "yaml v1beta1"),
    ("application/vnd.kubernetes.protobuf;v=v1beta1;{as}", REFUSED),
    ("application/cbor;v=v1beta1;{as}", REFUSED),
    ("application/json;v=v1;{as}", REFUSED),
    ("application/json;v=v1beta1;as=Statusz", REFUSED),
    ("application/json;{as}", REFUSED),
    ("application/json;v=v1beta1;g=config.k8s.io", REFUSED),
    ("application/json;v=v1beta1;g=config.k8s.io;as=Other", REFUSED),
    ("application/json;v=v1beta1;g=other.k8s.io;as=Statusz", REFUSED),
    ("text/plain;v=v1beta1;{as}", REFUSED),
    ("*/*;v=v1beta1;{as}", "json v1beta1"),
    ("application/*;v=v1beta1;{as}", "json v1beta1"),
    ("application/json;v=foo;{as},*/*", TEXT),
    ("application/json;v=v1alpha1;{as},application/json;v=v1beta1;{as}", "json v1alpha1"),
    ("application/json;v=v1beta1;{as},application/json;v=v1alpha1;{as}", "json v1beta1"),
    ("text/plain,application/json;v=v1beta1;{as}", TEXT),
    ("application/json;v=v1beta1;{as},text/plain", "json v1beta1"),
    ("application/json;v=v1beta1;{as};q=0.5,text/plain;q=0.9", TEXT),
    ("*/*,application/json;v=v1beta1;{as}", "json v1beta1"),
    ("*/*;q=0.9,application/yaml;q=0.5;v=v1beta1;{as}", "yaml v1beta1"),
    ("application/json;v=v1beta1;{as};stream=watch", REFUSED),
    ("application/json;v=v1beta1;{as};sv=v1", REFUSED),
    ("application/json; v=v1beta1; {as}", "json v1beta1"),
    ("application/json;v=v1beta1;{as};pretty=1", "json v1beta1"),
    ("APPLICATION/JSON;v=v1beta1;{as}", REFUSED),
    ("text/plain;q=0", TEXT),
]
FLAGS: Final = {"v": "2", "bind-address": "127.0.0.1"}
STARTED_S: Final = datetime(2026, 11, 3, 14, 53, 42, tzinfo=UTC).timestamp()


@pytest_asyncio.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    pages = ZPages(
        FLAGS, "0.1.0", "1.36", now_s=lambda: 5000.0 + 3723, started_s=STARTED_S, started_at_s=5000.0
    )
    app = web.Application()
    app.router.add_get("/statusz", pages.statusz)
    app.router.add_get("/flagz", pages.flagz)
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession(server.make_url("/"), skip_auto_headers=["Accept"]) as session,
    ):
        yield session


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("accept", "answer"), ANSWERS)
async def test_each_header_is_answered_as_by_kube_scheduler(
    client: aiohttp.ClientSession, path: str, accept: str | None, answer: str
) -> None:
    kind = PAGES[path]
    asked = {} if accept is None else {"Accept": accept.replace("{as}", f"g=config.k8s.io;as={kind}")}
    async with client.get(path, headers=asked) as response:
        form, _, version = answer.partition(" ")
        if answer == TEXT:
            expected = (200, TEXT)
        elif form == "406":
            expected = (406, f"application/{version}")
        else:
            expected = (200, f"application/{form};g=config.k8s.io;v={version};as={kind}")
        assert (response.status, response.headers["Content-Type"]) == expected
        assert ("deprecated" in response.headers.get("Warning", "")) == (version == "v1alpha1")
        assert response.headers["Cache-Control"] == "no-cache, private"
        body = await response.text()
    if answer == TEXT:
        assert body.startswith(
            f"\nkube-scheduler {path[1:]}\nWarning: This endpoint is not meant to be machine"
        )
        return
    document = yaml.safe_load(body) if "yaml" in expected[1] else json.loads(body)
    assert document["kind"] == ("Status" if form == "406" else kind)


async def test_statusz_has_what_upstreams_has(client: aiohttp.ClientSession) -> None:
    async with client.get("/statusz") as response:
        lines = (await response.text()).splitlines()
    assert lines[3:6] == ["", "Started: Tue Nov  3 14:53:42 UTC 2026", "Up: 1 hr 02 min 03 sec"]
    assert lines[-2:] == [
        "Emulation version: 1.36",
        "Paths: /configz /flagz /healthz /livez /metrics /readyz",
    ]
    accept = {"Accept": "application/json;v=v1beta1;g=config.k8s.io;as=Statusz"}
    async with client.get("/statusz", headers=accept) as response:
        document = json.loads(await response.text())
    assert document.pop("goVersion").startswith("python3.")
    assert document == {
        "kind": "Statusz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": {"name": "kube-scheduler"},
        "startTime": "2026-11-03T14:53:42Z",
        "uptimeSeconds": 3723,
        "binaryVersion": "0.1.0",
        "emulationVersion": "1.36",
        "paths": ["/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz"],
    }


async def test_flagz_has_every_flag_in_order(client: aiohttp.ClientSession) -> None:
    async with client.get("/flagz") as response:
        assert (await response.text()).endswith("\nbind-address=127.0.0.1\nv=2\n")
    accept = {"Accept": "application/yaml;v=v1beta1;g=config.k8s.io;as=Flagz"}
    async with client.get("/flagz", headers=accept) as response:
        assert yaml.safe_load(await response.text())["flags"] == FLAGS


@given(st.text(alphabet="*/;,=qgvas tex/plin.0", max_size=60))
def test_no_header_fails(accept: str) -> None:
    found = negotiate(accept, "Statusz")
    assert found is None or found[0] in ("text/plain", "application/json", "application/yaml")
