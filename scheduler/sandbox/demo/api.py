"""The cluster as a user's program sees it: kubernetes-asyncio's dynamic client, with objects as JSON."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from scheduler.sandbox.demo.waiting import StoryFailed

if TYPE_CHECKING:
    from kubernetes_asyncio.dynamic import DynamicClient

#: An object as JSON.
JsonObject: TypeAlias = dict[str, Any]
#: A kind of object of the dynamic client, whose answers have no types.
Resource: TypeAlias = Any


class Api:
    """
    Requests about objects, each named by its apiVersion and kind.

    Every method raises StoryFailed if the server refuses, and aiohttp.ClientError if it does not answer.
    """

    def __init__(self, client: DynamicClient) -> None:
        self._client = client

    async def resource(self, kind: str, version: str = "v1") -> Resource:
        """Return the dynamic client's resource of a kind."""
        found: Resource = await self._client.resources.get(api_version=version, kind=kind)
        return found

    async def items(self, kind: str, version: str = "v1") -> list[JsonObject]:
        """Return all objects of a kind."""
        resource = await self.resource(kind, version)
        found: list[JsonObject] = (await resource.get(serializer=_object))["items"]
        return found

    async def get(self, kind: str, version: str, namespace: str, name: str) -> JsonObject:
        """Return one object."""
        resource = await self.resource(kind, version)
        found: JsonObject = await resource.get(name=name, namespace=namespace, serializer=_object)
        return found

    async def apply(self, document: JsonObject) -> None:
        """Create the object in `document`, or merge it into an existing one."""
        resource = await self.resource(document["kind"], document["apiVersion"])
        await resource.server_side_apply(
            body=document, field_manager="demo", force_conflicts=True, serializer=_object
        )

    async def patch(self, change: JsonObject) -> None:
        """Merge a part of an object into the object that it names, lists by their keys."""
        resource = await self.resource(change["kind"], change["apiVersion"])
        await resource.patch(body=change, serializer=_object)

    async def delete(self, kind: str, name: str) -> None:
        """Delete an object that is in no namespace."""
        await (await self.resource(kind)).delete(name=name, serializer=_object)


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncGenerator[Api, None]:
    """Run the block with a client of the kubeconfig's cluster."""
    # Half a second of CPU, which the menu of the stories does without.
    from kubernetes_asyncio.config import new_client_from_config
    from kubernetes_asyncio.dynamic import DynamicClient

    async with await new_client_from_config(str(kubeconfig)) as client:
        # Without a file of its own, it keeps what it has discovered in the folder for temporary files.
        yield Api(await DynamicClient(client, cache_file=str(kubeconfig.with_suffix(".discovery"))))


def _object(_: object, answer: JsonObject) -> JsonObject:
    """Return the object in an answer. Raises StoryFailed for a refusal, which the dynamic client takes for one."""
    if answer["kind"] == "Status" and answer["status"] == "Failure":
        raise StoryFailed(f"the API server refuses: {answer['message']}")
    return answer
