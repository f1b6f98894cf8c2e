"""A small client of the cluster's HTTP API: it sends what kubectl would send for the stories' commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, TypeVar

import aiohttp
import msgspec
import yaml

from scheduler.demo.objects import JsonObject
from scheduler.errors import SchedulerError

#: apiVersion and kind of the objects in stories -> the collection's path below /api or /apis; {} is the namespace.
_COLLECTIONS: Final = {
    ("v1", "Namespace"): "/api/v1/namespaces",
    ("v1", "Node"): "/api/v1/nodes",
    ("v1", "ResourceQuota"): "/api/v1/namespaces/{}/resourcequotas",
    ("v1", "Secret"): "/api/v1/namespaces/{}/secrets",
    (
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
    ): "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    ("v1", "Pod"): "/api/v1/namespaces/{}/pods",
    ("apps/v1", "Deployment"): "/apis/apps/v1/namespaces/{}/deployments",
    ("apps/v1", "StatefulSet"): "/apis/apps/v1/namespaces/{}/statefulsets",
    ("policy/v1", "PodDisruptionBudget"): "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    (
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
    ): "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates",
    ("scheduling.k8s.io/v1", "PriorityClass"): "/apis/scheduling.k8s.io/v1/priorityclasses",
    ("storage.k8s.io/v1", "CSIDriver"): "/apis/storage.k8s.io/v1/csidrivers",
    (
        "storage.k8s.io/v1",
        "CSIStorageCapacity",
    ): "/apis/storage.k8s.io/v1/namespaces/{}/csistoragecapacities",
}
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_TIMEOUT_S: Final = 20.0
#: A watch gets a bookmark every minute; one that is silent for longer is dead.
_SILENT_S: Final = 150.0
_LINE_LIMIT_BYTES: Final = 4 << 20

T = TypeVar("T")


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

    async def get(self, path: str, form: type[T]) -> T:
        """Return the object at `path`, decoded."""
        return msgspec.json.decode(await self._request("GET", path), type=form)

    async def items(self, path: str, form: type[T]) -> list[T]:
        """Return all objects of a collection, decoded."""
        return (await self.page(path, form)).items

    async def page(self, path: str, form: type[T]) -> Page[T]:
        """Return all objects of a collection, decoded, with the version from which a watch continues."""
        return msgspec.json.decode(await self._request("GET", path), type=Page[form])  # type: ignore[valid-type] # a type made at run time

    async def text(self, url: str) -> str:
        """Return the answer of another server at `url`: metrics, readiness."""
        return (await self._request("GET", url)).decode()

    async def apply(self, document: JsonObject) -> None:
        """Create the object in `document`, or merge it into an existing one."""
        path = collection_of(document)
        try:
            await self._request("POST", path, document, "application/json")
        except RequestError as refusal:
            if refusal.status != 409:
                raise
            await self._request("PATCH", f"{path}/{document['metadata']['name']}", document, _MERGE)

    async def create_all(self, documents: Sequence[JsonObject]) -> None:
        """Create all objects, a few at a time."""
        gate = asyncio.Semaphore(8)

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
        """Delete the object at `path`, if it exists."""
        try:
            await self._request("DELETE", path)
        except RequestError as refusal:
            if refusal.status != 404:
                raise

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


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of a list."""

    resource_version: str = ""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A list of objects of one kind."""

    metadata: ListMeta
    items: list[T]


def collection_of(document: JsonObject) -> str:
    """Return the path at which an object like `document` is created. Raises ValueError if no story handles its kind."""
    kind = (str(document.get("apiVersion")), str(document.get("kind")))
    path = _COLLECTIONS.get(kind)
    if path is None:
        raise ValueError(f"no story handles {kind[1]} of {kind[0]}")
    return path.format(document["metadata"].get("namespace", "default"))


def server_in(kubeconfig: Path) -> str:
    """Return the API server's address in a kubeconfig with one cluster. Raises: OSError if there is no file yet."""
    return str(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])


def _message(answer: bytes) -> str:
    """Return the message in a Status, or the answer as it is."""
    try:
        status = msgspec.json.decode(answer, type=dict[str, object])
    except msgspec.DecodeError:
        return answer.decode(errors="replace")[:500]
    return str(status.get("message", status))
