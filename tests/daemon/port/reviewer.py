"""An API server that answers TokenReviews and SubjectAccessReviews from tables and counts them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.scripted_server import answering

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass
class Reviewer:
    """`users` by token; `rights` are (user, verb, path). While `open` is not set, reviews wait."""

    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    rights: set[tuple[str, str, str]] = field(default_factory=set)
    #: Statuses to answer with instead, one after the other; 0 for no answer.
    faults: list[int] = field(default_factory=list)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    url: str = ""
    open: asyncio.Event = field(default_factory=asyncio.Event)
    n_at_once: int = 0
    most_at_once: int = 0

    def __post_init__(self) -> None:
        self.open.set()

    def knows(self, token: str, name: str, *paths: str, **more: Any) -> None:
        """Let the holder of the token get these paths."""
        self.users[token] = {"username": name, "groups": ["system:authenticated"], **more}
        self.rights |= {(name, "get", path) for path in paths}

    def n_asked(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.asked)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        spec = (await request.json())["spec"]
        self.asked.append((request.path, spec))
        self.n_at_once += 1
        self.most_at_once = max(self.most_at_once, self.n_at_once)
        try:
            await self.open.wait()
        finally:
            self.n_at_once -= 1
        if self.faults:
            status = self.faults.pop(0)
            if status == 0:
                assert request.transport is not None
                request.transport.abort()
            return web.json_response({"kind": "Status", "message": "no"}, status=status or 500)
        if request.path == TOKENS:
            user = self.users.get(spec["token"])
            said: dict[str, Any] = (
                {"authenticated": True, "user": user} if user else {"user": {}, "error": "no"}
            )
        else:
            wanted = spec["nonResourceAttributes"]
            said = {"allowed": (spec["user"], wanted["verb"], wanted["path"]) in self.rights}
        return web.json_response(json.loads(json.dumps({"status": said})), status=201)


@asynccontextmanager
async def reviewing() -> AsyncIterator[Reviewer]:
    reviewer = Reviewer()
    async with answering(reviewer.answer) as reviewer.url:
        yield reviewer
        reviewer.open.set()
