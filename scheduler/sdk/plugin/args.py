"""The base of a plugin's arguments."""

from __future__ import annotations

import msgspec


class Args(msgspec.Struct, kw_only=True, rename="camel"):
    """
    The arguments of a plugin, as its `args_type`: fields with types, and defaults where there is a sensible one.

    A configuration names `topology_key` as `topologyKey`. Its values are checked when it is read: types, and whatever
    `msgspec.Meta` or a `__post_init__` that raises ValueError demands.
    """
