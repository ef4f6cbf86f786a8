"""Draws the shipped dashboard as a page: real figures of a loaded cluster, by a real Prometheus, without a Grafana.

    PYTHONPATH=tests .venv/bin/python -m compat.dashboard_picture docs/dashboard.html --seconds 90

Places, titles, queries and units are those of deploy/grafana/strandline.json. What Grafana would draw finer is drawn
plainly. One broker is killed and started again in the middle, so that there is something to see. Needs Debian's
`prometheus`; `chromium --headless --screenshot` makes a PNG of the page.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from compat.metrics_site import VICTIM, as_asked, cluster_with_admin_ports, load, make_topics, targets_of, until
from compat.prometheus_server import DEPLOY, Prometheus
from strandline.spark_connector.pipelines.pictures import curves, size_text

Points = list[tuple[float, float]]
COLUMN_PX, ROW_PX = 62, 27
STYLE = """
body{margin:0;background:#f4f5f5;font:13px sans-serif;color:#24292e}
main{position:relative;margin:12px auto}
article{position:absolute;box-sizing:border-box;background:#fff;border:1px solid #dcdee0;
padding:6px 8px;overflow:hidden}
article h2{font-size:13px;font-weight:600;margin:0 0 4px}
article b{display:block;font-size:30px;font-weight:500;text-align:center;margin-top:8px}
article.red{background:#fbd5d7}article.orange{background:#fde9cf}article.green{background:#dcf3e1}
h1{position:absolute;margin:0;font-size:15px;line-height:27px}
svg{width:100%;height:150px}svg text{font:14px sans-serif;fill:#555}svg line{stroke:#ddd}
.key{display:flex;flex-wrap:wrap;gap:1px 10px;font-size:11px}
.key i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.3em}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--seconds", type=float, default=90)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, cluster_with_admin_ports(Path(folder) / "cluster") as cluster:
        make_topics(cluster)
        with Prometheus(Path(folder) / "prometheus", targets_of(cluster)) as prometheus:
            until(lambda: prometheus.is_ready, "Prometheus does not start")
            names = {target: f"broker-{number}" for number, target in enumerate(targets_of(cluster), 1)}
            started_s = time.time()
            was_killed = is_back = False
            while (passed_s := time.time() - started_s) < options.seconds:
                load(cluster)
                if not was_killed and passed_s > options.seconds * 0.4:
                    cluster.kill_broker(VICTIM)
                    was_killed = True
                if not is_back and passed_s > options.seconds * 0.6:
                    cluster.start_broker(VICTIM)
                    is_back = True
            options.page.write_text(page(prometheus, names, started_s + 10, time.time()), encoding="utf-8")


def page(prometheus: Prometheus, names: Mapping[str, str], since_s: float, until_s: float) -> str:
    dashboard = json.loads((DEPLOY / "grafana/strandline.json").read_text())
    pieces = [_panel(prometheus, panel, names, since_s, until_s) for panel in dashboard["panels"]]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    size = f"width:{24 * COLUMN_PX}px;height:{rows * ROW_PX}px"
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(dashboard["title"])}</title>'
    return f'{head}<style>{STYLE}</style><main style="{size}">{"".join(pieces)}</main></html>\n'


def _panel(
    prometheus: Prometheus, panel: Mapping[str, Any], names: Mapping[str, str], since_s: float, until_s: float
) -> str:
    place = panel["gridPos"]
    at = f"left:{place['x'] * COLUMN_PX}px;top:{place['y'] * ROW_PX}px"
    title = escape(panel["title"])
    if panel["type"] == "row":
        return f'<h1 style="{at}">{title}</h1>'
    size = f"width:{place['w'] * COLUMN_PX - 6}px;height:{place['h'] * ROW_PX - 6}px"
    if panel["type"] == "stat":
        (series,) = prometheus.query(as_asked(panel["targets"][0]["expr"]))
        value = float(series["value"][1])
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        colour = [step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]
        return f'<article class="{colour}" style="{at};{size}"><h2>{title}</h2><b>{value:g}</b></article>'
    lines: dict[str, Points] = {}
    for target in panel["targets"]:
        for series in prometheus.query_range(as_asked(target["expr"]), since_s, until_s, 1.0):
            lines[_legend(target["legendFormat"], series["metric"], names)] = [
                (at_s - since_s, float(value)) for at_s, value in series["values"] if value != "NaN"
            ]
    length_s = until_s - since_s
    ticks = {length_s * part / 4: f"{length_s * part / 4:.0f} s" for part in range(5)}
    unit = panel["fieldConfig"]["defaults"]["unit"]
    picture = curves(lines, unit="", shown=lambda value: _shown(value, unit), ticks=ticks)
    return f'<article style="{at};{size}"><h2>{title}</h2>{picture}</article>'


def _legend(pattern: str, labels: Mapping[str, str], names: Mapping[str, str]) -> str:
    """names: of targets, whose addresses say nothing to who looks at the picture."""
    for name, value in labels.items():
        shown = Path(value).name if name == "logDirectory" else names.get(value, value)
        pattern = pattern.replace(f"{{{{{name}}}}}", shown)
    return pattern


def _shown(value: float, unit: str) -> str:
    if unit in ("bytes", "Bps"):
        return size_text(value) + ("/s" if unit == "Bps" else "")
    if unit == "percentunit":
        return f"{value:.0%}"
    return f"{value:,.3g}" + {"ms": " ms", "s": " s", "reqps": "/s", "cps": "/s", "ops": "/s"}.get(unit, "")


if __name__ == "__main__":
    main()
