"""
Binds pods. Outcomes are values; no failure of the server raises.

A bind in doubt is settled by a read of its pod. Without the right to GET pods, the pod is listed. If that is forbidden
too, the watch decides: a node or a deletion that it has shown is final, and a pod that it shows unbound for
`UNREADABLE_S` is unbound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from scheduler.daemon.kube import requests
from scheduler.daemon.kube.responses import WrittenObject, decode_page, decode_written
from scheduler.daemon.writes.sending import Doubt, Sender, Write
from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.pods import Pod
from scheduler.errors import ApiError, Forbidden, Invalid, NotFound

#: By then the watch has shown a bind that took effect: the server ends a request after 60 s, and a silent watch is
#: reopened after `daemon.kube.client.SILENT_S`, 75 s.
UNREADABLE_S: Final = 150.0


class Binder:
    """
    Writes binds to the API server.

    `on_answer` is called with the seconds of every bind, many if the answer was lost, `on_unreadable` with the pod and
    the error if the pod of a lost answer may not be read. `watched_node` returns the node on which the watch has shown
    the pod of a uid: '' if unbound, None if deleted.
    """

    def __init__(
        self,
        sender: Sender,
        *,
        on_answer: Callable[[float], None] = lambda _: None,
        watched_node: Callable[[str], str | None] = lambda _: "",
        on_unreadable: Callable[[str, str], None] = lambda _pod, _why: None,
    ) -> None:
        self._sender, self._on_answer = sender, on_answer
        self._watched_node, self._on_unreadable = watched_node, on_unreadable

    async def bind(self, instruction: Bind) -> str:
        """Bind the pod; read it after a lost answer. Return why it is not bound, in upstream's words; '' if it is."""
        pod = instruction.pod
        request = requests.bind(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            node_name=instruction.node_name,
            annotations=instruction.annotations,
        )
        read = partial(self._settle, pod, instruction.node_name)
        outcome = await self._sender.send(Write(request, lambda _: "", read, on_answer=self._on_answer))
        if isinstance(outcome, NotFound):
            return _not_found(pod)
        return outcome.message if isinstance(outcome, ApiError) else outcome

    async def _settle(self, pod: Pod, node_name: str, doubt: Doubt) -> str | None:
        """Return the outcome of the bind if it can be read; None if the pod is unbound."""
        try:
            found = await self._read(pod, doubt)
        except ApiError as error:
            shown = self._watched_node(pod.uid)
            if shown is None:
                return _not_found(pod)
            if shown:
                return _bound_to(shown, pod, node_name)
            if isinstance(error, (Forbidden, Invalid)) and doubt.seconds > UNREADABLE_S:
                return None
            raise
        if found is None or found.metadata.uid != pod.uid:
            return _not_found(pod)
        return _bound_to(found.spec.node_name, pod, node_name) if found.spec.node_name else None

    async def _read(self, pod: Pod, doubt: Doubt) -> WrittenObject | None:
        """Return the pod's node as the server has it, None if the pod is gone. Lists if GET is forbidden."""
        try:
            return decode_written(await self._sender.read(requests.get_pod(pod.namespace, pod.name)))
        except NotFound:
            return None
        except (Forbidden, Invalid) as refusal:
            if doubt.n_reads == 1:
                self._on_unreadable(pod.key, str(refusal))
        found = decode_page(await self._sender.read(requests.find_pod(pod.namespace, pod.name))).items
        return decode_written(found[0]) if found else None


def _not_found(pod: Pod) -> str:
    return f'pods "{pod.name}" not found'


def _bound_to(found: str, pod: Pod, node_name: str) -> str:
    """Return the outcome of a bind to `node_name` for a pod that is on node `found`."""
    if found == node_name:
        return ""
    text = f'pod {pod.name} is already assigned to node "{found}"'
    return f'Operation cannot be fulfilled on pods/binding "{pod.name}": {text}'
