"""Reads a collection page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.requests import PAGE_LIMIT, WatchPath, list_page
from scheduler.daemon.kube.responses import decode_page
from scheduler.daemon.kube.transport import BODY_LIMIT_BYTES, BODY_TOO_LONG
from scheduler.errors import ApiError, Invalid

#: The limit shrinks and grows by this factor.
_FACTOR: Final = 8


class PageSize:
    """The limit of the next page of one collection."""

    def __init__(self) -> None:
        self.limit = PAGE_LIMIT

    def grow(self, n_bytes: int) -> None:
        """Raise the limit for the next page if this one, of `n_bytes`, was small."""
        if n_bytes * 2 * _FACTOR < BODY_LIMIT_BYTES:
            self.limit = min(PAGE_LIMIT, self.limit * _FACTOR)

    def shrink(self, error: ApiError) -> bool:
        """Lower the limit if the page was too long. Returns: True if the same page has to be requested again."""
        if error.reason != BODY_TOO_LONG or self.limit == 1:
            return False
        self.limit = max(1, self.limit // _FACTOR)
        return True


async def list_pages(
    client: KubeClient, resource: WatchPath, *, timeout_s: float
) -> AsyncGenerator[list[msgspec.Raw], None]:
    """
    Yield the objects of each page, which is requested when the caller asks for it. Wrap in `contextlib.aclosing`.

    Do not keep the raw bytes: they are a view of the whole page. Raises ApiError if there is
    no page within `timeout_s`; Gone if the list is too old to continue.
    """
    token, page_size = "", PageSize()
    while True:
        request = list_page(resource, continue_token=token, limit=page_size.limit)
        try:
            body = await client.request(request, timeout_s=timeout_s)
        except Invalid as error:
            if page_size.shrink(error):
                continue
            raise
        page_size.grow(len(body))
        page = decode_page(body)
        yield page.items or []
        token = page.metadata.continue_token
        if not token:
            return
