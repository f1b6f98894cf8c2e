"""All pods of the cluster, kept up to date by one watch."""

from __future__ import annotations

from collections.abc import Collection

from scheduler.sandbox.demo.api import Api, JsonObject


class PodWatch:
    """The pods of the cluster; `run` keeps them up to date."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pods: dict[str, JsonObject] = {}
        #: Uids of all pods ever seen with a node.
        self._placed: set[str] = set()

    async def run(self) -> None:
        """Follow the cluster until cancelled. Raises: aiohttp.ClientError if it does not answer."""
        from kubernetes_asyncio.watch import Watch

        pods = await self._api.resource("Pod")
        async with Watch() as watch:
            async for event in watch.stream(pods.get, serialize=False):
                pod = event["object"]
                uid = pod["metadata"]["uid"]
                if event["type"] == "DELETED":
                    self._pods.pop(uid, None)
                    continue
                self._pods[uid] = pod
                if node_of(pod):
                    self._placed.add(uid)

    def pods(self, namespaces: Collection[str]) -> list[JsonObject]:
        """Return the pods of these namespaces that are neither finished nor being deleted."""
        return [pod for pod in self._of(namespaces) if is_counted(pod)]

    def leaving(self, namespaces: Collection[str]) -> int:
        """Return how many pods of these namespaces are being deleted."""
        return sum("deletionTimestamp" in pod["metadata"] for pod in self._of(namespaces))

    def n_placed(self) -> int:
        """Return how many different pods were ever seen with a node."""
        return len(self._placed)

    def _of(self, namespaces: Collection[str]) -> list[JsonObject]:
        return [pod for pod in self._pods.values() if pod["metadata"]["namespace"] in namespaces]


def node_of(pod: JsonObject) -> str:
    """Return the name of the pod's node, '' if it has none."""
    return str(pod["spec"].get("nodeName", ""))


def is_counted(pod: JsonObject) -> bool:
    """Return whether it is neither finished nor being deleted."""
    is_finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return "deletionTimestamp" not in pod["metadata"] and not is_finished


def is_ready(pod: JsonObject) -> bool:
    """Return whether it runs and is ready."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in _conditions(pod))


def pending_reason(pod: JsonObject) -> str:
    """Return the message of its PodScheduled condition if no node was found for it, else ''."""
    if node_of(pod):
        return ""
    return next((each["message"] for each in _conditions(pod) if each.get("reason") == "Unschedulable"), "")


def _conditions(pod: JsonObject) -> list[JsonObject]:
    found: list[JsonObject] = pod.get("status", {}).get("conditions", [])
    return found
