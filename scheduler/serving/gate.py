"""
Who may ask: the API server says who holds a bearer token, and whether they may read a path.

    path always allowed? -- yes --> answered, nobody is asked
    token --> TokenReview --> user, or 401          no token --> system:anonymous
    user, path, verb --> SubjectAccessReview --> answered, or 403

An API server that cannot be asked refuses by its silence: 401 for the first question, 500 for the second. Answers are
kept for ten seconds, by what was asked in full. Tokens are neither logged nor kept: a keyed hash stands for each.

Strangers cannot crowd out who is known: questions about tokens that were good before, and rights that were granted
before, have places of their own; the others wait in a short line, and are told to come back where it is full.

Source: apiserver/pkg/server/options/{authentication,authorization}.go, pkg/authentication/request/bearertoken,
pkg/authentication/token/cache (kubernetes 1.36). Different here: a path that is always allowed is answered whatever
token comes along, and a path or method that is not served is 404 or 405 to everybody, before anybody is asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from scheduler.errors import ApiError, ServerFault, Throttled, Unreachable
from scheduler.kube.client import KubeClient
from scheduler.kube.requests import Request
from scheduler.kube.reviewing import User, decode_allowed, decode_user, review_access, review_token
from scheduler.observe.logs import Logger, quoted

#: How long answers are kept, as upstream's CacheTTL, AllowCacheTTL and DenyCacheTTL.
KEPT_S: Final = 10.0
#: Answers of a kind that are kept; the oldest goes first.
MAX_KEPT: Final = 1024
#: Questions to the API server at a time, and waiting besides: of strangers, and again of who is known.
AT_ONCE: Final = 4
WAITING: Final = 32
#: How long a question may take, its one repetition included; upstream's TokenRequestTimeout.
ANSWER_TIMEOUT_S: Final = 10.0
_REPEAT_AFTER_S: Final = 0.5
#: One line of trouble with the API server in so long, whatever comes in.
_COMPLAINT_PERIOD_S: Final = 10.0

ANONYMOUS: Final = User("system:anonymous", groups=("system:unauthenticated",))
#: As upstream's default of --authorization-always-allow-paths.
ALWAYS_ALLOWED: Final = ("/healthz", "/readyz", "/livez")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered. `reason` is Kubernetes' word for it; empty where plain text is the custom."""

    status: int
    reason: str
    message: str

    def response(self) -> web.Response:
        """The answer, headers and body, as kube-scheduler gives it."""
        headers = {"Cache-Control": "no-cache, private"}
        if self.status != 401:
            headers["X-Content-Type-Options"] = "nosniff"
        if self.status == 429:
            headers["Retry-After"] = "1"
        if not self.reason:
            return web.Response(status=self.status, text=f"{self.message}\n", headers=headers)
        body: dict[str, object] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body |= {"message": self.message, "reason": self.reason}
        if self.status == 403:
            body["details"] = {}
        text = json.dumps({**body, "code": self.status}, indent=2, ensure_ascii=False)
        return web.Response(
            status=self.status,
            body=text.encode(errors="replace"),
            headers=headers,
            content_type="application/json",
        )


_UNKNOWN: Final = Refusal(401, "Unauthorized", "Unauthorized")
_BUSY: Final = Refusal(429, "", "Too many requests, please try again later.")


class Gate:
    """
    Judges requests by what the API server says of them.

    Args:
        client: asks TokenReview and SubjectAccessReview; nothing else should wait for its connections.
        always_allowed: paths that need no right; one that ends with `*` stands for all that begin so.
        log: told of trouble with the API server.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        always_allowed: Iterable[str] = ALWAYS_ALLOWED,
        log: Logger,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._log = log
        self._now_s = now_s
        patterns = tuple(always_allowed)
        self._free_paths = frozenset(each for each in patterns if not each.endswith("*"))
        self._free_prefixes = tuple(each.removesuffix("*") for each in patterns if each.endswith("*"))
        self._hash_key = secrets.token_bytes(32)
        self._users: _Kept[bytes, User] = _Kept(now_s)
        #: Tokens that the API server does not know; apart, so that no flood of them displaces a user.
        self._strangers: _Kept[bytes, None] = _Kept(now_s)
        self._granted: _Kept[tuple[User, str, str], None] = _Kept(now_s)
        self._denied: _Kept[tuple[User, str, str], None] = _Kept(now_s)
        self._for_known, self._for_strangers = _Line(), _Line()
        self._shared: dict[Hashable, asyncio.Future[object]] = {}
        self._complained_s = -_COMPLAINT_PERIOD_S

    async def judge(self, authorization: str, path: str, verb: str) -> Refusal | None:
        """
        Whether the request may be answered: None, or the refusal.

        Args:
            authorization: the header, empty where there is none.
            path: what would be served, and nothing that only resembles it.
            verb: the method in lower case.
        """
        if path in self._free_paths or path.startswith(self._free_prefixes):
            return None
        token = _token(authorization)
        user: User | Refusal = ANONYMOUS
        if token:
            user = await self._user(token)
        if isinstance(user, Refusal):
            return user
        return await self._access(user, path, verb)

    def middleware(self) -> Middleware:
        """Lets an aiohttp handler answer only what `judge` lets pass."""

        @web.middleware
        async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
            resource = request.match_info.route.resource
            if resource is None:  # 404 or 405
                return await handler(request)
            authorization = request.headers.get("Authorization", "")
            refusal = await self.judge(authorization, resource.canonical, request.method.lower())
            return await handler(request) if refusal is None else refusal.response()

        return gate

    async def _user(self, token: str) -> User | Refusal:
        if not (token.isascii() and token.isprintable()):
            return _UNKNOWN
        key = hashlib.blake2b(token.encode(), key=self._hash_key, digest_size=32).digest()
        if (user := self._users.get(key)) is not None:
            return user
        if key in self._strangers:
            return _UNKNOWN

        async def ask() -> User | Refusal:
            try:
                found = decode_user(await self._asked(review_token(token)))
            except ApiError as error:
                self._complain("Unable to authenticate the request", error)
                return _UNKNOWN
            if found is None:
                self._strangers.keep(key, None)
                self._users.forget(key)
                return _UNKNOWN
            self._users.keep(key, found)
            return found

        return await self._once(key, ask, known=self._users.had(key))

    async def _access(self, user: User, path: str, verb: str) -> Refusal | None:
        key = (user, path, verb)
        denied = Refusal(
            403, "Forbidden", f"forbidden: User {quoted(user.name)} cannot {verb} path {quoted(path)}"
        )
        if key in self._granted:
            return None
        if key in self._denied:
            return denied

        async def ask() -> Refusal | None:
            try:
                allowed = decode_allowed(await self._asked(review_access(user, path, verb)))
            except ApiError as error:
                self._complain("Unable to authorize the request", error)
                return Refusal(500, "", f'Internal Server Error: "{path}": the API server could not be asked')
            (self._granted if allowed else self._denied).keep(key, None)
            (self._denied if allowed else self._granted).forget(key)
            return None if allowed else denied

        return await self._once(key, ask, known=self._granted.had(key))

    async def _asked(self, request: Request) -> bytes:
        """The answer, after one repetition where the first try met trouble: a review changes nothing."""
        deadline_s = self._now_s() + ANSWER_TIMEOUT_S
        try:
            return await self._client.request(request, timeout_s=ANSWER_TIMEOUT_S / 2)
        except (Unreachable, ServerFault, Throttled):
            await asyncio.sleep(_REPEAT_AFTER_S)
        return await self._client.request(request, timeout_s=max(0.1, deadline_s - self._now_s()))

    async def _once(self, key: Hashable, ask: Callable[[], Awaitable[V]], *, known: bool) -> V | Refusal:
        """What `ask` says, or what it says to somebody who asks the same at this moment."""
        if (under_way := self._shared.get(key)) is not None:
            return cast("V | Refusal", await asyncio.shield(under_way))  # a key is of one kind of question
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._shared[key] = answer
        said: V | Refusal = _BUSY  # to those who share it, should this request be given up
        try:
            said = await (self._for_known if known else self._for_strangers).turn(ask)
            return said
        finally:
            del self._shared[key]
            answer.set_result(said)

    def _complain(self, message: str, error: ApiError) -> None:
        if self._now_s() - self._complained_s >= _COMPLAINT_PERIOD_S:
            self._complained_s = self._now_s()
            self._log.error(message, err=str(error))


class _Kept(Generic[K, V]):
    """Answers by question, each good for `KEPT_S`; the oldest goes where there are too many. Costs are constant."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        #: Ordered by the time until which each is good.
        self._found: dict[K, tuple[float, V]] = {}

    def keep(self, key: K, answer: V) -> None:
        """From now on this is the answer."""
        self._found.pop(key, None)
        self._found[key] = (self._now_s() + KEPT_S, answer)
        if len(self._found) > MAX_KEPT:
            del self._found[next(iter(self._found))]

    def get(self, key: K) -> V | None:
        """The answer while it is good."""
        until_s, answer = self._found.get(key, (0.0, None))
        return answer if self._now_s() < until_s else None

    def __contains__(self, key: K) -> bool:
        """Whether there is an answer that is good."""
        found = self._found.get(key)
        return found is not None and self._now_s() < found[0]

    def had(self, key: K) -> bool:
        """Whether there is an answer, be it old."""
        return key in self._found

    def forget(self, key: K) -> None:
        """There is no answer."""
        self._found.pop(key, None)


class _Line:
    """So many at once, so many waiting, and no more."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)
        self._n = 0

    async def turn(self, ask: Callable[[], Awaitable[V]]) -> V | Refusal:
        """What `ask` says when its turn comes; 429 at once where the line is full."""
        if self._n >= AT_ONCE + WAITING:
            return _BUSY
        self._n += 1
        try:
            async with self._places:
                return await ask()
        finally:
            self._n -= 1


def _token(authorization: str) -> str:
    """The bearer token; empty where there is none, and another scheme is as good as none."""
    scheme, *rest = authorization.strip().split(" ", 2)
    return rest[0] if rest and scheme.lower() == "bearer" else ""
