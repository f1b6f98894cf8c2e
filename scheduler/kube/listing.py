"""A collection read page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from scheduler.errors import Invalid
from scheduler.kube.client import KubeClient
from scheduler.kube.paging import PageSize
from scheduler.kube.requests import Resource, list_page
from scheduler.kube.responses import decode_page


async def pages(
    client: KubeClient, resource: Resource, *, timeout_s: float
) -> AsyncGenerator[list[msgspec.Raw], None]:
    """
    The objects of every page, as they are asked for. Wrap in `contextlib.aclosing`.

    Raw bytes must not be kept: they are a view of their whole page.

    Raises:
        ApiError: the server did not list, within `timeout_s` a page; Gone where the list is too old to go on.
    """
    token, page_size = "", PageSize()
    while True:
        request = list_page(resource, continue_token=token, limit=page_size.limit)
        try:
            body = await client.request(request, timeout_s=timeout_s)
        except Invalid as error:
            if page_size.shrinks(error):
                continue
            raise
        page_size.fitted(len(body))
        page = decode_page(body)
        yield page.items or []
        token = page.metadata.continue_token
        if not token:
            return
