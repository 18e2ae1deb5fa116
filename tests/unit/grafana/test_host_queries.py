"""The host dashboard's expressions, with known time counters."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from grafana import host_queries as queries
from tests.dashboard_file import as_grafana_sends_it
from tests.needs import needed

pytestmark = pytest.mark.prometheus

OVER = {"__rate_interval": "1m"}
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


WHOLE = " + ".join(f"({as_grafana_sends_it(band, OVER)})" for band in BANDS)


def verify(
    tmp_path: Path, growth: Mapping[str, float], values: Mapping[str, tuple[str, float]]
) -> None:
    """Expect these labels and values of expressions, with counters that grow so fast."""
    labels = 'job="gpumon",instance="a",uuid="GPU-0"'
    series = []
    for name, per_second in growth.items():
        family, _, cause = name.partition("{")
        more = "," + cause.rstrip("}") if cause else ""
        total = f"gpumon_gpu_{family}{{{labels}{more}}}"
        series.append({"series": total, "values": f"0+{15 * per_second}x80"})
    test = {
        "interval": "15s",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": f"round({expr}, 1e-6)",
                "eval_time": "15m",
                "exp_samples": [{"labels": f"{{{shown}}}", "value": value}],
            }
            for expr, (shown, value) in values.items()
        ],
    }
    path = tmp_path / "panels.json"  # JSON is YAML
    path.write_text(json.dumps({"evaluation_interval": "15s", "tests": [test]}), encoding="utf-8")

    done = subprocess.run(
        [needed("promtool"), "test", "rules", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


def test_bands_add_up_to_one_including_the_wait_for_a_first_batch(tmp_path: Path) -> None:
    verify(tmp_path, GROWTH, {WHOLE: ("", 1.0)})


def test_a_gpu_without_any_series_of_a_cause_has_a_value_in_each_panel(tmp_path: Path) -> None:
    growth = {
        "observed_seconds_total": 1.0,
        "busy_seconds_total": 1.0,
        "starved_seconds_total": 0.0,
        "suspected_seconds_total": 0.0,
    }
    gpu = 'job="gpumon",instance="a",uuid="GPU-0"'
    shown = {
        WHOLE: ("", 1.0),
        queries.LOST_SHARE: ("", 0.0),
        queries.STARVED_SHARE: ("", 0.0),
        queries.LOST_HOURS: ("", 0.0),
        queries.CULPRIT: ('cause="nothing lost"', 0.0),
        queries.CAUSES: ('cause="nothing lost"', 0.0),
        queries.REASONS: ('reason="no tagged wait"', 0.0),
        queries.TABLE["busy"]: (gpu, 1.0),
        queries.TABLE["lost"]: (gpu, 0.0),
    }
    sent = {as_grafana_sends_it(expr, OVER): value for expr, value in shown.items()}

    verify(tmp_path, growth, sent)
