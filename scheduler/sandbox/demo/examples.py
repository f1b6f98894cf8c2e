"""The example manifests: their folder, and their objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from scheduler.errors import SettingsError
from scheduler.sandbox.demo.api import JsonObject

#: Their folder in a wheel, and in a checkout.
_INSTALLED: Final = Path(__file__).parent / "manifests"
_CHECKED_OUT: Final = Path(__file__).parents[3] / "manifests" / "examples"


def folder() -> Path:
    """Return the folder of the example manifests, of this installation or this checkout."""
    return _INSTALLED if _INSTALLED.is_dir() else _CHECKED_OUT


def documents(name: str, swap: Mapping[str, str] | None = None) -> list[JsonObject]:
    """
    Return the objects of an example file, after every text in `swap` was replaced by its value.

    Raises SettingsError if the file is missing.
    """
    path = folder() / name
    try:
        text = path.read_text()
    except OSError as error:
        found = error.strerror or "no file"
        raise SettingsError(str(path), "", found, "an example manifest; install the package again") from error
    for old, new in (swap or {}).items():
        text = text.replace(old, new)
    return [document for document in yaml.safe_load_all(text) if document]
