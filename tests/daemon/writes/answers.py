"""Answers of a scripted server to a write."""

from __future__ import annotations

from typing import Any

from tests.support.api_bodies import body
from tests.support.scripted_server import reply


def refusal(code: int, reason: str = "X", message: str = "no", **headers: str) -> Any:
    return reply(body(code, reason, message), status=code, headers=headers)
