"""A headless Chromium, which has to be installed on the machine, driven by Playwright."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: Switches off what a browser does in the background: without a network that would only wait.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def chromium() -> str | None:
    """Return the browser's executable: CHROMIUM, or what the distribution calls it; None if there is none."""
    named = os.environ.get("CHROMIUM")
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return named or next((path for path in found if path), None)


def why_none() -> str | None:
    """Return why no browser can be driven; None if one can."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    return None if chromium() else "no Chromium on this machine (Debian: apt install chromium)"


@contextmanager
def browsing() -> Iterator[Browser]:
    """Yield a browser, closed at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield browser
        browser.close()


def problems_of(page: Any) -> list[str]:
    """Return a list to which every error of the page is appended: of scripts, of the console, of its policy."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("console", lambda message: found.append(message.text) if _is_problem(message) else None)
    return found


def _is_problem(message: Any) -> bool:
    """Return False for the browser's report of an HTTP error status, which tests cause on purpose."""
    return message.type == "error" and "responded with a status of 400" not in message.text
