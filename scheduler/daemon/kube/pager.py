"""Reads a collection page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.page_size import PageSize
from scheduler.daemon.kube.requests import Resource, list_page
from scheduler.daemon.kube.responses import decode_page
from scheduler.errors import Invalid


async def list_pages(
    client: KubeClient, resource: Resource, *, timeout_s: float
) -> AsyncGenerator[list[msgspec.Raw], None]:
    """
    Yield the objects of each page; the next page is requested when the caller asks for it.

    Wrap in `contextlib.aclosing`. Do not keep the raw bytes: they are a view of the whole page.

    Raises:
        ApiError: the server did not return a page within `timeout_s`; Gone if the list is too old to continue.
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
