"""The source of the page's data, as its API asks for it, and the JSON of the answers."""

from __future__ import annotations

from typing import Protocol

import msgspec
from aiohttp import web

from scheduler.errors import SchedulerError
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.page.decisions import Decisions
from scheduler.tools.page.devices import DeviceOverview, DevicePool
from scheduler.tools.page.domains import Cell, DomainMap, NodeLabels
from scheduler.tools.page.files import SECURITY_HEADERS
from scheduler.tools.page.groups import Groups
from scheduler.tools.page.machine_room import MachineRoom, RoomQuestion
from scheduler.tools.page.nodes import NodeUses
from scheduler.tools.page.now import Now
from scheduler.tools.page.pending import Pending, Search, Visible
from scheduler.tools.page.survey import Rules
from scheduler.tools.page.what_if import Weights, WhatIf, WhatIfRequest


class BusyError(SchedulerError):
    """Too many questions are waiting; ask again after `retry_after_s`."""

    def __init__(self, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__("other questions are being answered, please try again later")


class PageSource(Protocol):
    """The data of the page. `Visible` tells of which namespaces pods may be named."""

    @property
    def is_synced(self) -> bool:
        """Whether all objects are listed."""

    @property
    def newest_decision(self) -> int:
        """The number of the newest attempt."""

    def now(self) -> Now:
        """Return the state of the scheduler."""

    def decisions(self, after: int, may_see: Visible, most: int) -> Decisions:
        """Return at most `most` attempts after the one of that number."""

    def namespaces(self) -> set[str]:
        """Return the namespaces of remembered attempts and pending pods."""

    async def rules(self) -> Rules:
        """Return all rules."""

    async def domain_map(self, identifier: str, group_by: str) -> DomainMap | None:
        """Return the domains of a rule, None if there is no such rule."""

    async def cell(self, identifier: str, domain: str, may_see: Visible) -> Cell | None:
        """Return the pods of a domain, None if there is no such rule or domain."""

    def node_labels(self) -> NodeLabels:
        """Return the label keys of nodes."""

    def weights(self) -> Weights:
        """Return the weights of scoring plugins."""

    async def devices(self, search: str) -> DeviceOverview:
        """Return the devices by driver, and the pools that the search finds."""

    async def device_pool(self, driver: str, pool: str, may_see: Visible) -> DevicePool | None:
        """Return the devices of a pool and the pods that have them, None if there is no such pool."""

    async def pending(self, search: Search, may_see: Visible) -> Pending:
        """Return the pending pods."""

    async def groups(self, may_see: Visible) -> Groups:
        """Return the groups with pending members."""

    async def room(self, question: RoomQuestion, may_see: Visible) -> MachineRoom:
        """Return the machine room, and the holes that groups wait for."""

    async def nodes(self, search: str) -> NodeUses:
        """Return how full the nodes are that the search finds."""

    async def explanation(
        self, namespace: str, name: str, may_see: Visible, *, tries_changes: bool
    ) -> Explanation | None:
        """Return the explanation of a pod, None if there is no such pod. Raises BusyError."""

    async def what_if(self, request: WhatIfRequest, may_see: Visible) -> WhatIf | None:
        """Return the answer, None if its pod is unknown. Raises SettingsError, BusyError."""


def json_answer(data: object, *, status: int = 200) -> web.Response:
    """Return the object as JSON."""
    return json_body(msgspec.json.encode(data), status=status)


def json_body(body: bytes, *, status: int = 200) -> web.Response:
    """Return the JSON as an answer that nothing keeps."""
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def found_answer(data: object | None, what: str) -> web.Response:
    """Return the object, or that there is no such one."""
    return error_answer(404, f"there is no such {what}") if data is None else json_answer(data)


def error_answer(status: int, message: str, *, retry_after_s: int | None = None) -> web.Response:
    """Return the error."""
    response = json_answer({"message": message}, status=status)
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(retry_after_s)
    return response
