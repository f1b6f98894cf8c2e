"""The test kit: the same names as `scheduler.sdk.testing`, which describes them."""

from scheduler.sdk.testing import *  # noqa: F403
from scheduler.sdk.testing import __all__ as __all__
