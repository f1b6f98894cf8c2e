"""A small client of the cluster's HTTP API: it sends what kubectl would send for the stories' commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeAlias

import aiohttp
import msgspec
import yaml

from scheduler.errors import SchedulerError

#: An object as JSON.
JsonObject: TypeAlias = dict[str, Any]

#: Kinds that are in no namespace.
_OF_THE_CLUSTER: Final = ("Namespace", "Node", "PriorityClass")
_APPLY: Final = "application/apply-patch+yaml"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_TIMEOUT_S: Final = 20.0
#: A watch gets a bookmark every minute; one that is silent for longer is dead.
_SILENT_S: Final = 150.0
_LINE_LIMIT_BYTES: Final = 4 << 20
_AT_ONCE: Final = 8


class RequestError(SchedulerError):
    """The server refused a request or did not answer. The demo catches it and shows it as the story's failure."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class ApiSession:
    """
    Requests to one API server without authentication, as devcluster serves it. Use `async with`.

    Every method raises RequestError if the answer is an error, or there is none.
    """

    def __init__(self, server: str) -> None:
        self.server: Final = server
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S), read_bufsize=_LINE_LIMIT_BYTES
        )

    async def __aenter__(self) -> ApiSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    async def get(self, path: str) -> JsonObject:
        """Return the object at `path`."""
        found: JsonObject = msgspec.json.decode(await self._request("GET", path))
        return found

    async def items(self, path: str) -> list[JsonObject]:
        """Return all objects of a collection."""
        found: list[JsonObject] = (await self.get(path))["items"]
        return found

    async def text(self, url: str) -> str:
        """Return the answer of another server at `url`: metrics, readiness."""
        return (await self._request("GET", url)).decode()

    async def apply(self, document: JsonObject) -> None:
        """Create the object in `document`, or merge it into an existing one."""
        path = f"{collection_of(document)}/{document['metadata']['name']}?fieldManager=demo&force=true"
        await self._request("PATCH", path, document, _APPLY)

    async def create_all(self, documents: Sequence[JsonObject]) -> None:
        """Create all objects, a few at a time."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def create(document: JsonObject) -> None:
            async with gate:
                await self._request("POST", collection_of(document), document, "application/json")

        async with asyncio.TaskGroup() as tasks:
            for document in documents:
                tasks.create_task(create(document))

    async def patch(self, path: str, change: JsonObject) -> None:
        """Merge `change` into the object at `path`, lists by their keys."""
        await self._request("PATCH", path, change, _STRATEGIC)

    async def delete(self, path: str) -> None:
        """Delete the object at `path`."""
        await self._request("DELETE", path)

    async def watch(self, path: str, version: str) -> AsyncGenerator[list[bytes], None]:
        """Yield lines of JSON with the changes of a collection after `version`. Wrap in `aclosing`."""
        query = {"watch": "true", "resourceVersion": version}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=_SILENT_S)
        try:
            async with self._http.get(self.server + path, params=query, timeout=timeout) as response:
                if response.status >= 300:
                    raise RequestError(response.status, f"GET {path}: {await response.text()}")
                tail = b""
                while data := await response.content.readany():
                    *lines, tail = (tail + data).split(b"\n")
                    yield lines
        except (aiohttp.ClientError, TimeoutError) as error:
            raise RequestError(0, f"GET {path}: {error or type(error).__name__}") from error

    async def _request(
        self, method: str, path: str, body: JsonObject | None = None, content_type: str = ""
    ) -> bytes:
        url = path if path.startswith("http") else self.server + path
        headers = {"Content-Type": content_type} if content_type else {}
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self._http.request(method, url, data=data, headers=headers) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise RequestError(0, f"{method} {path}: {error or type(error).__name__}") from error
        if response.status >= 300:
            raise RequestError(response.status, f"{method} {path}: {_message(answer)}")
        return answer


def collection_of(document: JsonObject) -> str:
    """Return the path at which an object like `document` is created."""
    version, kind = document["apiVersion"], document["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = document["metadata"].get("namespace", "default")
    folder = root if kind in _OF_THE_CLUSTER else f"{root}/namespaces/{namespace}"
    return f"{folder}/{kind.lower()}{'es' if kind.endswith('s') else 's'}"


def _message(answer: bytes) -> str:
    """Return the message in a Status, or the answer as it is."""
    try:
        status = msgspec.json.decode(answer, type=dict[str, object])
    except msgspec.DecodeError:
        return answer.decode(errors="replace")[:500]
    return str(status.get("message", status))


def server_in(kubeconfig: Path) -> str:
    """Return the API server's address in a kubeconfig with one cluster. Raises: OSError if there is no file yet."""
    return str(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
