"""A headless Chromium that is installed on the machine, driven by Playwright, which brings none of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: Nothing that a browser does in the background, which would only wait for a network.
_FLAGS = (
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
    """The browser's executable: CHROMIUM, or what the distribution calls it; None if there is none."""
    named = os.environ.get("CHROMIUM")
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return named or next((path for path in found if path), None)


def why_none() -> str | None:
    """Why no browser can be driven, None if one can."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    return None if chromium() else "no Chromium on this machine (Debian: apt install chromium)"


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser, closed at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(_FLAGS))
        yield browser
        browser.close()


def problems_of(page: Any) -> list[str]:
    """The list that gets every error of the page from now on: of scripts, of the console, of its policy."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("console", lambda message: found.append(message.text) if _is_problem(message) else None)
    return found


def _is_problem(message: Any) -> bool:
    """A refused question is an answer, which the browser reports as well."""
    return message.type == "error" and "responded with a status of 400" not in message.text
