"""The fleet dashboard's expressions, with recorded tiles, some of them missing."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from grafana import fleet_queries as queries
from tests.dashboard_file import as_grafana_sends_it
from tests.needs import needed

pytestmark = pytest.mark.prometheus

HALF_HOUR: Final = {"__range": "1800s", "__range_s": "1800"}
TWO_DAYS: Final = {
    **{"__range": "172800s", "__range_s": "172800"},
    **{"tile": "1h", "__interval": "1h", "__interval_ms": "3600000"},
}
MISSED: Final = "_ {0} {0} {0} _ {0} {0}"
"""Six tiles; the rules missed the fourth."""
Truth = Mapping[str, Mapping[str, float]]


def verify(
    tmp_path: Path,
    series: Mapping[str, str],
    truth: Truth,
    sent: Mapping[str, str],
    *,
    tile_s: int = 300,
    after_s: int = 1800,
) -> None:
    """Expect the values of expressions by labels, one second after the last tile."""
    tests = [
        {
            "expr": f"round({as_grafana_sends_it(expr, sent)}, 1e-6)",
            "eval_time": f"{after_s + 1}s",
            "exp_samples": [
                {"labels": f"{{{labels}}}", "value": round(value, 6)}
                for labels, value in expected.items()
            ],
        }
        for expr, expected in truth.items()
    ]
    test = {
        "interval": f"{tile_s}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": tests,
    }
    path = tmp_path / "tiles.json"  # JSON is YAML
    path.write_text(json.dumps({"evaluation_interval": f"{tile_s}s", "tests": [test]}))

    done = subprocess.run(
        [needed("promtool"), "test", "rules", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


def fleet(tile: str, values: str, seconds: int) -> dict[str, str]:
    """Two GPUs, one of them in use: 60 % busy, 40 % lost to waits for input."""
    return {
        f"gpumon:gpu_expected_seconds:increase{tile}": values.format(2 * seconds),
        f"gpumon:gpu_observed_seconds:increase{tile}": values.format(2 * seconds),
        f"gpumon:gpu_busy_seconds:increase{tile}": values.format(0.6 * seconds),
        f"gpumon:gpu_not_in_use_seconds:increase{tile}": values.format(seconds),
        f'cause:gpumon_gpu_lost_seconds:increase{tile}{{cause="input_wait"}}': values.format(
            0.4 * seconds
        ),
    }


class TestAMissedTile:
    def test_is_missing_coverage_and_no_smaller_loss_over_time(self, tmp_path: Path) -> None:
        truth: Truth = {
            queries.COVERAGE: {"": 5 / 6},
            queries.LOST_HOURS: {"": 5 * 120 / 3600},
            queries.LOST_SHARE: {"": 0.4},
            queries.LOST_BAND: {"": 0.2},
            queries.BUSY_BAND: {"": 0.3},
            queries.NOT_IN_USE_BAND: {"": 0.5},
            queries.CAUSES: {'cause="input_wait"': 0.4},
        }

        over = {**HALF_HOUR, "__interval": "30m", "__interval_ms": "1800000"}
        verify(tmp_path, fleet("5m", MISSED, 300), truth, over)


class TestHourlyTiles:
    def test_count_as_hours_beyond_a_day(self, tmp_path: Path) -> None:
        truth: Truth = {
            queries.COVERAGE: {"": 1},
            queries.LOST_HOURS: {"": 48 * 0.4},
            queries.LOST_PRICE: {"": 48 * 0.4 * 2.5},
            queries.CAUSES: {'cause="input_wait"': 0.4},
            queries.COVERAGE_NOW: {"": 1},
            queries.TILES_NOW: {"": 1},
        }

        tiles = fleet("1h", "_ {0}x47", 3600)
        verify(tmp_path, tiles, truth, TWO_DAYS, tile_s=3600, after_s=172_800)

    @pytest.mark.parametrize(
        ("seconds", "tile"), [(3600, "5m"), (86_400, "5m"), (86_401, "1h"), (604_800, "1h")]
    )
    def test_are_chosen_beyond_a_day(self, tmp_path: Path, seconds: int, tile: str) -> None:
        query = re.fullmatch(r"query_result\((.*)\)", queries.TILE_CHOICES)
        assert query is not None
        chosen = f'tile="{tile}"'
        assert re.search(queries.TILE_REGEX.strip("/"), f"{{{chosen}}} {seconds} 0")

        verify(tmp_path, {}, {query[1]: {chosen: seconds}}, {"__range_s": str(seconds)})


class TestWhatNoDaemonReports:
    def test_has_no_value_although_gpus_are_in_use(self, tmp_path: Path) -> None:
        truth: Truth = {
            queries.LOST_KWH: {},
            queries.LOST_KWH_PRICE: {},
            queries.LOST_CO2: {},
            queries.WORST_RUNS["lost"]: {'run="no tagged run at work"': 0},
            queries.WORST_USERS["lost"]: {'user="no user at work"': 0},
        }

        verify(tmp_path, fleet("5m", "_ {0}x5", 300), truth, HALF_HOUR)

    def test_is_no_loss_if_nothing_was_lost(self, tmp_path: Path) -> None:
        tiles = {
            "gpumon:gpu_observed_seconds:increase5m": "_ 300x5",
            'run:gpumon_training_gpu_busy_seconds:increase5m{run="resnet"}': "_ 300x5",
            'user:gpumon_user_gpu_busy_seconds:increase5m{user="ada"}': "_ 300x5",
        }
        truth = {
            queries.WORST_RUNS["lost"]: {'run="nothing lost"': 0},
            queries.WORST_USERS["lost"]: {'user="nothing lost"': 0},
        }

        verify(tmp_path, tiles, truth, HALF_HOUR)


class TestTheWorst:
    def test_are_ten_and_time_of_no_run_is_none_of_them(self, tmp_path: Path) -> None:
        tiles = {"gpumon:gpu_observed_seconds:increase5m": "_ 7200x5"}
        for number in range(12):
            labels = f'run="run-{number}",cause="checkpoint"'
            tiles[f"run_cause:gpumon_training_gpu_lost_seconds:increase5m{{{labels}}}"] = (
                f"_ {60 * number}x5"
            )
        tiles['run_cause:gpumon_training_gpu_lost_seconds:increase5m{run="",cause="unknown"}'] = (
            "_ 7200x5"
        )
        truth = {
            queries.WORST_RUNS["lost"]: {
                f'run="run-{number}"': number / 10 for number in range(11, 1, -1)
            }
        }

        verify(tmp_path, tiles, truth, HALF_HOUR)
