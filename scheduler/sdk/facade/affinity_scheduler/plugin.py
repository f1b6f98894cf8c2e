"""The plugin contract: the same names as `scheduler.sdk.plugin`, which describes them."""

from scheduler.sdk.plugin import *  # noqa: F403
from scheduler.sdk.plugin import __all__ as __all__
