"""
The JSON paths of printer columns: fields, indexes, and filters by equality.

Source: client-go util/jsonpath (kubernetes 1.36). Difference: no ranges, wildcards and other comparisons.
"""

import re
from typing import Any, Final

_STEP: Final = re.compile(
    r"\.(?P<field>(?:\\.|[^.\[\\])+)"
    r"|\[(?P<index>-?\d+)\]"
    r"|\['(?P<quoted>[^']*)'\]"
    r"|\[\?\(@\.(?P<key>[\w.]+)\s*==\s*[\"'](?P<value>[^\"']*)[\"']\)\]"
)


def find(obj: Any, path: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value at a path such as `.status.conditions[?(@.type=="Ready")].status`; None if there is none."""
    value, position = obj, 0
    while position < len(path):
        step = _STEP.match(path, position)
        # An unsupported step prints as nothing, as a path that fails does upstream.
        if step is None or (value := _taken(value, step)) is None:
            return None
        position = step.end()
    return value


def _taken(value: Any, step: re.Match[str]) -> Any:  # noqa: ANN401 - any JSON value
    if (name := step["field"] or step["quoted"]) is not None:
        return value.get(name.replace("\\.", ".")) if isinstance(value, dict) else None
    if not isinstance(value, list):
        return None
    if step["index"] is not None:
        index = int(step["index"])
        return value[index] if -len(value) <= index < len(value) else None
    key = f".{step['key']}"
    return next((one for one in value if str(find(one, key)) == step["value"]), None)
