"""
Who may look at the page's data, and whose pods.

    plain HTTP on loopback   a request with a loopback Host and, where a browser sends them, our own Origin and fetch
                             site: a foreign page whose name resolves to loopback (DNS rebinding) has neither
    HTTPS                    users who may `get` the path /ui; names of pods of the namespaces whose pods they may list
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from aiohttp import web

from scheduler.daemon.kube.access_reviews import UserInfo
from scheduler.daemon.port.delegated_auth import DelegatedAuth, Rejection
from scheduler.daemon.port.listener import host_of, is_loopback
from scheduler.tools.page.pending import Visible

#: How long an answer about a namespace is used.
_TTL_S: Final = 60.0
#: Namespaces that are asked about at once, and users and namespaces remembered.
_ASKED_AT_ONCE: Final = 16
_MAX_USERS: Final = 64
_MAX_NAMESPACES: Final = 10_000
_ALL: Final = ""
_OWN_SITES: Final = ("same-origin", "none")


class PageAccess:
    """Checks requests for the page's data. `auth` is None on plain HTTP, which is served on loopback alone."""

    def __init__(self, auth: DelegatedAuth | None) -> None:
        self._auth = auth
        #: By user, then namespace: whether its pods may be listed, and until when that is known.
        self._rights: OrderedDict[UserInfo, dict[str, tuple[float, bool]]] = OrderedDict()

    def problem(self, request: web.Request) -> str | None:
        """Return why the request is not from a page of ours; None if it may be. Routes behind HTTPS are authorized."""
        origin = request.headers.get("Origin")
        scheme = "http" if self._auth is None else "https"
        if self._auth is None and not is_loopback(host_of(request.host)):
            return "only for this machine, by the name localhost or a loopback address"
        if origin is not None and origin != f"{scheme}://{request.host}":
            return "the Origin is not this server"
        if request.headers.get("Sec-Fetch-Site", "none") not in _OWN_SITES:
            return "only for the page of this server"
        return None

    async def visible(
        self, request: web.Request, namespaces: Callable[[], Iterable[str]], *, first: str = ""
    ) -> Visible | Rejection:
        """
        Return the predicate of the namespaces whose pods the request's user may see by name.

        `namespaces` is called only if the user may not see all; `first` is the one that the request is about. Of many
        that nothing is known about, the first few are asked about; the others follow at the next request, and are not
        seen until then.
        """
        if self._auth is None:
            return everything
        user = await self._auth.identify(request.headers.get("Authorization", ""))
        if isinstance(user, Rejection):
            return user
        known = self._of(user)
        await self._ask(user, known, [_ALL])
        if not self._is_granted(known, _ALL):
            names = [first, *sorted(namespaces())] if first else sorted(namespaces())
            unknown = [name for name in dict.fromkeys(names) if not self._is_known(known, name)]
            await self._ask(user, known, unknown[:_ASKED_AT_ONCE])
        if self._is_granted(known, _ALL):
            return everything
        granted = frozenset(name for name in known if self._is_granted(known, name))
        return granted.__contains__

    def _of(self, user: UserInfo) -> dict[str, tuple[float, bool]]:
        known = self._rights.setdefault(user, {})
        self._rights.move_to_end(user)
        if len(self._rights) > _MAX_USERS:
            self._rights.popitem(last=False)
        if len(known) > _MAX_NAMESPACES:
            known.clear()
        return known

    async def _ask(
        self, user: UserInfo, known: dict[str, tuple[float, bool]], namespaces: Iterable[str]
    ) -> None:
        """Ask the API server about namespaces that nothing is known about. A failure leaves them unknown."""
        unknown = [name for name in namespaces if not self._is_known(known, name)]
        if self._auth is None or not unknown:
            return
        answers = await asyncio.gather(*(self._auth.may_list_pods(user, name) for name in unknown))
        until_s = time.monotonic() + _TTL_S
        for name, answer in zip(unknown, answers, strict=True):
            if not isinstance(answer, Rejection):
                known[name] = (until_s, answer)

    def _is_known(self, known: dict[str, tuple[float, bool]], namespace: str) -> bool:
        return namespace in known and time.monotonic() < known[namespace][0]

    def _is_granted(self, known: dict[str, tuple[float, bool]], namespace: str) -> bool:
        return self._is_known(known, namespace) and known[namespace][1]


def everything(_: str) -> bool:
    """Return True: the predicate of a viewer who may see all namespaces."""
    return True
