"""
Authenticates and authorizes clients of a port by asking the API server.

    path always allowed? -- yes --> answered without asking
    token --> TokenReview --> user, or 401          no token --> system:anonymous
    user, path, verb --> SubjectAccessReview --> answered, or 403

If the API server does not answer a TokenReview, the response is 401; for a SubjectAccessReview it is 500. Answers are
cached for ten seconds. Tokens are neither logged nor stored; the cache key is a keyed hash.

Unknown clients cannot crowd out known ones: tokens and rights that were accepted before are reviewed in a queue of
their own. Both queues are short, and requests beyond them get 429. So do unknown ones beyond 20 a second: a flood of
random tokens would be a review each, whose cost is the API server's.

Source: apiserver/pkg/server/options/{authentication,authorization}.go, pkg/authentication/request/bearertoken,
pkg/authentication/token/cache (kubernetes 1.36). Difference: a path that is always allowed is answered whatever token
is sent, and a path or method that is not served gets 404 or 405 without authentication.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar, cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from scheduler.daemon.kube.access_reviews import (
    UserInfo,
    decode_allowed,
    decode_user,
    review_access,
    review_pod_list,
    review_token,
)
from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.rate_limit import TokenBucket
from scheduler.daemon.kube.requests import Request
from scheduler.daemon.metrics.logs import Logger, quoted
from scheduler.errors import ApiError, ServerFault, Throttled, Unreachable

#: How long answers are cached, as upstream's CacheTTL, AllowCacheTTL and DenyCacheTTL.
CACHE_TTL_S: Final = 10.0
#: Size of each cache; the oldest entry is dropped first.
MAX_CACHED: Final = 1024
#: Reviews that each of the two queues runs at once, and limit on the waiting ones.
MAX_CONCURRENT: Final = 4
MAX_WAITING: Final = 32
#: Reviews of unknown tokens and rights, per second and at once.
UNKNOWN_PER_S: Final = 20.0
UNKNOWN_AT_ONCE: Final = 100
#: Deadline of a review, its one retry included; upstream's TokenRequestTimeout.
REVIEW_TIMEOUT_S: Final = 10.0
_RETRY_AFTER_S: Final = 0.5
#: At most one log line per period about failed reviews.
_LOG_PERIOD_S: Final = 10.0

ANONYMOUS: Final = UserInfo("system:anonymous", groups=("system:unauthenticated",))
#: The page, to which `/` leads, and the prefix of its data. The page's own files contain nothing of the cluster and
#: need no right.
PAGE_PATH: Final = "/ui"
API_PREFIX: Final = "/api/v1/"
#: The role in manifests/explain that has the rights to the page's data.
VIEWER_ROLE: Final = "affinity-scheduler-viewer"
_ALL_PODS: Final = '"pods" at the cluster scope'
#: As upstream's default of --authorization-always-allow-paths.
ALWAYS_ALLOWED: Final = ("/healthz", "/readyz", "/livez")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refusal of a request. `reason` is the reason of a Kubernetes Status; '' for a plain text response."""

    status: int
    reason: str
    message: str

    def response(self) -> web.Response:
        """Return the response as kube-scheduler sends it."""
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


_UNAUTHORIZED: Final = Rejection(401, "Unauthorized", "Unauthorized")
_TOO_MANY: Final = Rejection(429, "", "Too many requests, please try again later.")


class DelegatedAuth:
    """
    Authenticates and authorizes requests through the API server.

    `client` sends reviews alone, which therefore never wait for a connection; `rights` the SubjectAccessReviews, where
    they need other credentials. Paths in `always_allowed` need no right; `*` at the end matches all with that prefix.
    """

    def __init__(
        self,
        client: KubeClient,
        rights: KubeClient | None = None,
        *,
        always_allowed: Iterable[str] = ALWAYS_ALLOWED,
        log: Logger,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens, self._rights = client, rights or client
        self._log = log
        self._now_s = now_s
        patterns = tuple(always_allowed)
        self._open_paths = frozenset(each for each in patterns if not each.endswith("*"))
        self._open_prefixes = tuple(each.removesuffix("*") for each in patterns if each.endswith("*"))
        self._hash_key = secrets.token_bytes(32)
        #: The user by hash of the token; whether access is granted by user, what it asks for, and verb.
        self._users: _Answers[bytes, UserInfo] = _Answers(now_s)
        self._granted: _Answers[tuple[UserInfo, str, str], bool] = _Answers(now_s)
        self._known_queue, self._unknown_queue = _BoundedQueue(), _BoundedQueue()
        self._in_flight: dict[Hashable, asyncio.Future[object]] = {}
        self._unknown_bucket = TokenBucket(qps=UNKNOWN_PER_S, burst=UNKNOWN_AT_ONCE, now_s=0.0)
        self._logged_s = -_LOG_PERIOD_S

    async def authorize(self, authorization: str, path: str, verb: str) -> Rejection | None:
        """Return None if the request with this header, '' for none, may be answered, else the rejection."""
        if path in self._open_paths or path.startswith(self._open_prefixes):
            return None
        user = await self.identify(authorization)
        if isinstance(user, Rejection):
            return user
        review = review_access(user, path, verb)
        return await self._authorize_user(user, f"{verb} path", quoted(path), review)

    async def identify(self, authorization: str) -> UserInfo | Rejection:
        """Return the user of the header's token; the anonymous one without a token."""
        token = _bearer_token(authorization)
        return await self._authenticate(token) if token else ANONYMOUS

    async def authorize_viewer(self, authorization: str) -> Rejection | None:
        """Return None if the request's user may see the page's data, which name pods everywhere, else the rejection."""
        rejection = await self.authorize(authorization, PAGE_PATH, "get")
        if rejection is None:
            user = await self.identify(authorization)
            if isinstance(user, Rejection):
                return user
            rejection = await self._authorize_user(user, "list resource", _ALL_PODS, review_pod_list(user))
        if rejection is None or rejection.status != 403:
            return rejection
        return replace(rejection, message=f"{rejection.message}: ask for the ClusterRole {VIEWER_ROLE}")

    def middleware(self) -> Middleware:
        """Return an aiohttp middleware that lets only authorized requests through."""

        @web.middleware
        async def authorized(request: web.Request, handler: Handler) -> web.StreamResponse:
            resource = request.match_info.route.resource
            if resource is None:  # 404 or 405
                return await handler(request)
            authorization = request.headers.get("Authorization", "")
            path, verb = resource.canonical, request.method.lower()
            if path in ("/", PAGE_PATH) or path.startswith(f"{PAGE_PATH}/"):
                return await handler(request)
            if path.startswith(API_PREFIX):
                # By system:discovery, every authenticated user may get /api/*. A question changes nothing.
                rejection = await self.authorize_viewer(authorization)
            else:
                rejection = await self.authorize(authorization, path, verb)
            return await handler(request) if rejection is None else rejection.response()

        return authorized

    async def _authenticate(self, token: str) -> UserInfo | Rejection:
        if not (token.isascii() and token.isprintable()):
            return _UNAUTHORIZED
        key = hashlib.blake2b(token.encode(), key=self._hash_key, digest_size=32).digest()
        if (answered := self._users.get(key)) is not None:
            return answered

        async def ask() -> UserInfo | Rejection:
            try:
                user = decode_user(await self._review(self._tokens, review_token(token)))
            except ApiError as error:
                self._log_failure("Unable to authenticate the request", error)
                return _UNAUTHORIZED
            return self._users.put(key, user or _UNAUTHORIZED)

        return await self._share(key, ask, known=self._users.has_accepted(key))

    async def _authorize_user(
        self, user: UserInfo, verb: str, what: str, review: Request
    ) -> Rejection | None:
        key = (user, what, verb)
        denied = Rejection(403, "Forbidden", f"forbidden: User {quoted(user.name)} cannot {verb} {what}")

        async def ask() -> bool | Rejection:
            try:
                allowed = decode_allowed(await self._review(self._rights, review))
            except ApiError as error:
                self._log_failure("Unable to authorize the request", error)
                return Rejection(500, "", f"Internal Server Error: {what}: the API server could not be asked")
            return self._granted.put(key, allowed or denied)

        answer = self._granted.get(key)
        if answer is None:
            answer = await self._share(key, ask, known=self._granted.has_accepted(key))
        return answer if isinstance(answer, Rejection) else None

    async def _review(self, client: KubeClient, request: Request) -> bytes:
        """Send a review and return the response. It is retried once, which is safe because reviews change nothing."""
        deadline_s = self._now_s() + REVIEW_TIMEOUT_S
        try:
            return await client.request(request, timeout_s=REVIEW_TIMEOUT_S / 2)
        except (Unreachable, ServerFault, Throttled):
            await asyncio.sleep(_RETRY_AFTER_S)
        return await client.request(request, timeout_s=max(0.1, deadline_s - self._now_s()))

    async def _share(self, key: Hashable, ask: Callable[[], Awaitable[V]], *, known: bool) -> V | Rejection:
        """Return the result of `ask`. Concurrent calls with an equal key share one result."""
        if (running := self._in_flight.get(key)) is not None:
            # Equal keys have results of equal type.
            return cast("V | Rejection", await asyncio.shield(running))
        if not known and not self._unknown_bucket.take(self._now_s()):
            return _TOO_MANY
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._in_flight[key] = answer
        result: V | Rejection = _TOO_MANY  # for the sharing calls, if this one is cancelled
        try:
            result = await (self._known_queue if known else self._unknown_queue).run(ask)
            return result
        finally:
            del self._in_flight[key]
            answer.set_result(result)

    def _log_failure(self, message: str, error: ApiError) -> None:
        if self._now_s() - self._logged_s >= _LOG_PERIOD_S:
            self._logged_s = self._now_s()
            self._log.error(message, err=str(error))


class _Answers(Generic[K, V]):
    """
    The answers of the API server, which expire after `CACHE_TTL_S`.

    Rejections are bounded by themselves, so that a flood of them displaces nothing that was accepted.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        #: Expiry and answer by key, ordered by expiry.
        self._accepted: dict[K, tuple[float, V | Rejection]] = {}
        self._rejected: dict[K, tuple[float, V | Rejection]] = {}

    def put(self, key: K, answer: V | Rejection) -> V | Rejection:
        """Cache the answer and return it."""
        is_rejection = isinstance(answer, Rejection)
        entries = self._rejected if is_rejection else self._accepted
        self._accepted.pop(key, None)
        self._rejected.pop(key, None)
        entries[key] = (self._now_s() + CACHE_TTL_S, answer)
        if len(entries) > MAX_CACHED:
            del entries[next(iter(entries))]
        return answer

    def get(self, key: K) -> V | Rejection | None:
        """Return the answer, None if there is none or it has expired."""
        until_s, answer = self._accepted.get(key) or self._rejected.get(key) or (0.0, None)
        return answer if self._now_s() < until_s else None

    def has_accepted(self, key: K) -> bool:
        """Return whether the last answer was no rejection, expired or not."""
        return key in self._accepted


class _BoundedQueue:
    """Runs `MAX_CONCURRENT` calls at a time and lets `MAX_WAITING` more wait."""

    def __init__(self) -> None:
        self._running = asyncio.Semaphore(MAX_CONCURRENT)
        self._n = 0

    async def run(self, ask: Callable[[], Awaitable[V]]) -> V | Rejection:
        """Return the result of `ask` after the calls before it; 429 at once if the queue is full."""
        if self._n >= MAX_CONCURRENT + MAX_WAITING:
            return _TOO_MANY
        self._n += 1
        try:
            async with self._running:
                return await ask()
        finally:
            self._n -= 1


def _bearer_token(authorization: str) -> str:
    """Return the bearer token; '' without a header or with another scheme."""
    scheme, *rest = authorization.strip().split(" ", 2)
    return rest[0] if rest and scheme.lower() == "bearer" else ""
