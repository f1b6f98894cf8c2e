"""The version of the installed package. Apart from `--version`, no command that only prints needs it."""

from importlib.metadata import PackageNotFoundError, version


def product_version() -> str:
    """Return the installed version, `unknown` if the package is not installed."""
    try:
        return version("affinity-scheduler")
    except PackageNotFoundError:
        return "unknown"
