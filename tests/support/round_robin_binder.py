"""The simplest scheduler there is: pods go to the nodes in turn."""

from scheduler.devcluster.kinds import POD
from scheduler.devcluster.storage.binding import bind
from scheduler.devcluster.storage.store import Store

N_NODES = 3


async def dealt_out(store: Store) -> None:
    """Binds every new pod to node-0001, node-0002, node-0003 in turn, for ever."""
    turn = 0
    async for change, pod, _ in store.subscribe(POD, since=0):
        metadata = pod["metadata"]
        if change == "DELETED" or pod["spec"].get("nodeName") or metadata.get("deletionTimestamp"):
            continue
        if store.find(POD, metadata["namespace"], metadata["name"]) is None:
            continue
        turn += 1
        target = {"kind": "Node", "name": f"node-{turn % N_NODES + 1:04d}"}
        bind(
            store,
            metadata["namespace"],
            metadata["name"],
            {"metadata": {"name": metadata["name"]}, "target": target},
        )
