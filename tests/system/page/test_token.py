"""A port that other machines reach asks a browser for a token, and says which role its user lacks."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.browser import FLAGS, chromium, why_none
from tests.support.waiting import until
from tests.system.page.test_browser import SIZES
from tests.tools.page.test_api import OUTSIDE, served

pytestmark = pytest.mark.slow


async def test_who_may_not_view_is_told_and_who_may_sees_pods_of_all_namespaces(tmp_path: Path) -> None:
    if (reason := why_none()) is not None:
        pytest.skip(reason)
    from playwright.async_api import async_playwright

    async with served(tmp_path, *OUTSIDE) as port, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        page = await browser.new_page(ignore_https_errors=True)
        await page.goto(f"https://127.0.0.1:{port.daemon.port}/ui/")
        await page.get_by_text('User "system:anonymous" cannot get path "/ui"').wait_for()
        await page.get_by_label("Token").fill(port.tokens["no lister"])
        await page.get_by_role("button", name="Continue").click()
        told = 'cannot list resource "pods" at the cluster scope: ask for the ClusterRole affinity-scheduler-viewer.'
        await page.get_by_role("alert").get_by_text(told).wait_for()
        for width, height in SIZES.values():
            await page.set_viewport_size({"width": width, "height": height})
            await until(
                partial(page.evaluate, "document.documentElement.scrollWidth <= innerWidth"), what=str(width)
            )
        await page.get_by_label("Token").fill(port.tokens["viewer"])
        await page.get_by_role("button", name="Continue").click()
        await page.get_by_role("navigation").get_by_role("link", name="Pending").click()
        for name in ("mine-waits", "theirs-waits"):
            await page.get_by_role("link", name=name).wait_for()
        await browser.close()
