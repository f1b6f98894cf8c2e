"""
Draw the dashboard, as a Prometheus has it of a run in which everything happens.

    python -m tests.system.monitoring.picture [--seconds 120] [-o manifests/monitoring/dashboard.png]

Grafana is not used: the panels' own queries are drawn with the page's uPlot, in the dashboard's grid, by Chromium. It
needs prometheus and chromium (Debian's packages), and fails if a panel has no data.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.browser import browsing, why_none
from tests.support.manifest_files import MANIFESTS
from tests.system.monitoring.prometheus import Prometheus
from tests.system.monitoring.queries import DASHBOARD
from tests.system.monitoring.scene import played

_UPLOT = Path(__file__).parents[3] / "scheduler" / "tools" / "page" / "ui" / "vendor"
_WIDTH_PX, _UNIT_PX = 1200, 8
#: Lines of one panel: more cannot be told apart in a picture.
_MOST_LINES = 8


async def drawn(seconds: float) -> list[dict[str, Any]]:
    """Return the dashboard's panels with the values of each line over the run."""
    with tempfile.TemporaryDirectory() as folder:
        async with played(Path(folder)) as prometheus:
            begin_s = time.time()
            await asyncio.sleep(seconds)
            end_s = time.time()
            return [await _with_data(panel, prometheus, begin_s, end_s) for panel in DASHBOARD["panels"]]


async def _with_data(
    panel: dict[str, Any], prometheus: Prometheus, begin_s: float, end_s: float
) -> dict[str, Any]:
    lines: list[dict[str, Any]] = []
    for target in panel.get("targets", ()):
        for series in await prometheus.over_time(target["expr"], begin_s, end_s):
            values = [(float(at), float(value)) for at, value in series["values"]]
            finite = [(at, value) for at, value in values if math.isfinite(value)]
            if finite:
                lines.append({"label": _label(target, series["metric"]), "values": finite})
    lines.sort(key=lambda line: -max(value for _, value in line["values"]))
    unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "")
    return {
        **{name: panel[name] for name in ("title", "type", "gridPos")},
        "unit": unit,
        "lines": lines[:_MOST_LINES],
        "begin": begin_s,
        "end": end_s,
    }


def _label(target: dict[str, Any], metric: dict[str, str]) -> str:
    """Return the legend of a line, as Grafana fills it in."""
    legend = target.get("legendFormat", "")
    filled = re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: metric.get(match[1], ""), legend)
    return filled.strip() or " ".join(metric.values()) or target["refId"]


def page(panels: list[dict[str, Any]]) -> str:
    """Return the HTML of the picture."""
    script = (_UPLOT / "uplot.js").read_text()
    # The module's export becomes a name of the page.
    script = re.sub(
        r"export\s*\{\s*(\w+) as default\s*\}\s*;?|export default (\w+);?", r"const Plot = \1\2;", script
    )
    template = Path(__file__).with_name("picture.html").read_text()
    filled = {
        "STYLE": (_UPLOT / "uplot.css").read_text(),
        "SCRIPT": script,
        "PANELS": json.dumps(panels),
        "UNIT": str(_UNIT_PX),
    }
    return re.sub(r"/\*(STYLE|SCRIPT|PANELS|UNIT)\*/", lambda match: filled[match[1]], template)


def save(panels: list[dict[str, Any]], to: Path) -> None:
    """Let a browser draw the panels, and save what it shows."""
    with browsing() as browser:
        view = browser.new_page(viewport={"width": _WIDTH_PX, "height": 1000})
        view.on("pageerror", lambda error: print(f"error of the page: {error}", file=sys.stderr))
        view.set_content(page(panels))
        view.wait_for_function("document.body.className === 'drawn'", timeout=10_000)
        view.screenshot(path=to, full_page=True)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.monitoring.picture")
    parser.add_argument("--seconds", type=float, default=120.0, help="of the run (default %(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=MANIFESTS / "monitoring" / "dashboard.png")
    arguments = parser.parse_args()
    if why := why_none():
        print(why, file=sys.stderr)
        return 2
    panels = asyncio.run(drawn(arguments.seconds))
    save(panels, arguments.output)
    empty = [panel["title"] for panel in panels if panel["type"] != "row" and not panel["lines"]]
    print(f"{arguments.output}: {arguments.output.stat().st_size >> 10} KiB, {len(panels)} panels and rows")
    if empty:
        print(f"no data: {', '.join(empty)}", file=sys.stderr)
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
