"""The dashboard's expressions, with known time counters."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from grafana import queries
from tests.dashboard_file import as_grafana_sends_it
from tests.needs import needed

pytestmark = pytest.mark.prometheus

BANDS = (
    queries.BUSY_BAND,
    queries.STARVED_BAND,
    queries.SUSPECTED_BAND,
    queries.OTHER_LOSS_BAND,
    queries.NOT_IN_USE_BAND,
)
# Seconds per second. A third of the input wait is starved, the rest was for a first batch.
GROWTH = {
    "busy_seconds_total": 0.3,
    "starved_seconds_total": 0.1,
    "suspected_seconds_total": 0.05,
    'idle_seconds_total{cause="input_wait"}': 0.3,
    'idle_seconds_total{cause="checkpoint"}': 0.2,
    'idle_seconds_total{cause="unknown"}': 0.1,
    'idle_seconds_total{cause="not_in_use"}': 0.1,
}


def test_bands_add_up_to_one_including_the_wait_for_a_first_batch(tmp_path: Path) -> None:
    labels = 'job="gpumon",instance="a",uuid="GPU-0"'
    series = []
    for name, growth in GROWTH.items():
        family, _, cause = name.partition("{")
        more = "," + cause.rstrip("}") if cause else ""
        total = f"gpumon_gpu_{family}{{{labels}{more}}}"
        series.append({"series": total, "values": f"0+{15 * growth}x80"})
    whole = " + ".join(f"({as_grafana_sends_it(band, rate='1m')})" for band in BANDS)
    test = {
        "interval": "15s",
        "input_series": series,
        "promql_expr_test": [
            {"expr": f"round({whole}, 1e-6)", "eval_time": "15m", "exp_samples": [{"value": 1.0}]}
        ],
    }
    path = tmp_path / "bands.json"  # JSON is YAML
    path.write_text(json.dumps({"evaluation_interval": "15s", "tests": [test]}), encoding="utf-8")

    done = subprocess.run(
        [needed("promtool"), "test", "rules", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
