"""
`python -m tests.system.monitoring.plain_rules` writes the alerts as a rules file, for a Prometheus without its
operator.

The groups are those of the PrometheusRule, which is the source.
"""

from typing import Final

import yaml

from tests.system.monitoring.queries import FOLDER, RULES

FILE: Final = FOLDER / "prometheus" / "rules.yml"
_HEAD: Final = "# The alerts of ../rules.yaml, made by `python -m tests.system.monitoring.plain_rules`.\n"


def plain_rules() -> str:
    """Return the text of the rules file."""
    return _HEAD + yaml.safe_dump(RULES["spec"], sort_keys=False, width=120)


if __name__ == "__main__":
    FILE.write_text(plain_rules())
