"""The plugin contract: the same names as `scheduler.plugin`, which describes them."""

from scheduler.plugin import *  # noqa: F403
from scheduler.plugin import __all__ as __all__
