"""The test kit: the same names as `scheduler.testing`, which describes them."""

from scheduler.testing import *  # noqa: F403
from scheduler.testing import __all__ as __all__
