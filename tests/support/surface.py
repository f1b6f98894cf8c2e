"""What users name: flags of commands, families of metrics."""

import argparse
import importlib

from scheduler.cli import main
from scheduler.daemon.metrics.series import Family
from tests.support.manifest_files import ROOT


def flags() -> dict[str, set[str]]:
    """Return the flags of each command."""
    found = {}
    for name in main._COMMANDS:
        parser = argparse.ArgumentParser(conflict_handler="resolve")
        importlib.import_module(main.module_of(name)).add_arguments(parser)
        found[name] = {option for action in parser._actions for option in action.option_strings}
    return found


def families() -> dict[str, Family]:
    files = [
        path for name in ("metrics/*.py", "*/metrics.py") for path in (ROOT / "scheduler").glob(f"*/{name}")
    ]
    modules = (
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)) for path in files
    )
    return {
        each.name: each for module in modules for each in vars(module).values() if isinstance(each, Family)
    }
