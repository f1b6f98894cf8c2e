"""
The built-in plugins have no door that an out-of-tree plugin lacks: from a file of their own they decide the recordings
alike.
"""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

import scheduler.engine.plugins
from scheduler.daemon.settings.out_of_tree_files import load_plugins
from scheduler.engine.framework.out_of_tree import GuardedPlugin
from tests.conformance.product import ProductSubject
from tests.conformance.replay import answers
from tests.conformance.traces import Json, read

FOLDER = Path(scheduler.engine.plugins.__file__).parent
DATA = Path(__file__).parents[2] / "data"
_TRACES = 6


class _GuestSubject(ProductSubject):
    """The product, one of whose plugins was loaded from a file and runs as an out-of-tree plugin under its own name."""

    def __init__(self, config: Json | None, name: str, file: Path) -> None:
        super().__init__(config)
        loaded = load_plugins([str(file)], installed=False)
        assert loaded.problems == ()
        own = GuardedPlugin(name, loaded.by_name[f"My{name}"].plugin_class(), name)
        running = {one.name for one in self.profile.filters} | {
            one.plugin.name for one in self.profile.scorers
        }
        assert name in running
        self.profile = replace(
            self.profile,
            filters=tuple(own if one.name == name else one for one in self.profile.filters),
            scorers=tuple(
                replace(one, plugin=own) if one.plugin.name == name else one for one in self.profile.scorers
            ),
        )


@pytest.mark.parametrize(
    ("name", "file", "recordings"),
    [
        ("NodeName", "node_name.py", "node.jsonl.gz"),
        ("NodeUnschedulable", "node_unschedulable.py", "node.jsonl.gz"),
        ("NodePorts", "node_ports.py", "node.jsonl.gz"),
        ("NodePorts", "node_ports.py", "preempt.jsonl.gz"),
        ("TaintToleration", "taint_toleration.py", "node.jsonl.gz"),
        ("ImageLocality", "image_locality.py", "node.jsonl.gz"),
    ],
)
def test_a_built_in_plugin_from_a_file_decides_as_kube_scheduler_did(
    name: str, file: str, recordings: str, tmp_path: Path
):
    """The file is the plugin's own; only its name is another one, since its own is taken."""
    source = (FOLDER / file).read_text().replace(f'"{name}"', f'"My{name}"')
    (tmp_path / file).write_text(source)
    asked = 0
    for trace in islice(read(DATA / recordings), _TRACES):
        for where, mismatches in answers(trace, _GuestSubject(trace.config, name, tmp_path / file)):
            assert mismatches == [], where
            asked += 1
    assert asked >= _TRACES
