"""What the tables show, by Grafana's own transformations in Node, of a real Prometheus' answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.builders.scripted_hosts import UNUSED, Hours
from tests.dashboard_file import BOARDS, FLEET, HOST, RUN, as_grafana_sends_it, panels
from tests.e2e.prometheus_server import Prometheus
from tests.e2e.scripted_prometheus import NOW_S, SENT, UNUSED_SENT, prometheus_after
from tests.imported_later import ImportedLater
from tests.needs import missing, needed
from tests.tools.draw_pictures import IMAGES

picture_panels: Any = ImportedLater("grafana.picture_panels")
pictures: Any = ImportedLater("grafana.pictures")

pytestmark = pytest.mark.prometheus

ROOT: Final = Path(__file__).resolve().parents[2]
DRAWN: Final = sorted(path.stem for path in (ROOT / "docs" / "images").glob("gpumon-*.png"))
MODULES: Final = ROOT / ".venv-node"
OLDEST_NODE: Final = 20
H200: Final = "NVIDIA H200"
EACH_GPU: Final = (1020 / 1800, 660 / 1800, 0, 780, 1.475, 90 / 141, 1)
WITHOUT_UNUSED: Final = {"run", "epoch"}
"""A run hangs or not, and its epoch is reported or not."""
MOST_BYTES: Final = 150_000
TABLES: Final = {
    (uid, panel["title"]): panel
    for uid in BOARDS
    for panel in panels(uid)
    if panel.get("transformations")
}

TRUTH: Final[dict[tuple[str, str], tuple[tuple[str, ...], list[tuple[Any, ...]]]]] = {
    (FLEET, "Worst ten hosts"): (
        ("Host", "GPU-hours lost", "Share", "Price", "Main cause"),
        [
            ("node-000", 1560 / 3600, 1560 / 3600, 1560 / 3600 * 2.5, "input_wait"),
            ("node-002", 480 / 3600, 0.4, 480 / 3600 * 2.5, "start_up"),
            ("node-001", 0.06, 0.06, 0.06 * 2.5, "validation"),
        ],
    ),
    (FLEET, "Worst ten runs"): (
        ("Run", "GPU-hours lost", "Share", "Price", "Main cause"),
        [
            ("resnet", 1560 / 3600, 1560 / 3600, 1560 / 3600 * 2.5, "input_wait"),
            ("gpt", 480 / 3600, 0.4, 480 / 3600 * 2.5, "start_up"),
            ("bert", 0.06, 0.06, 0.06 * 2.5, "validation"),
        ],
    ),
    (FLEET, "Worst ten users"): (
        ("User", "GPU-hours lost", "Share", "Price", "Main cause"),
        [
            ("ada", 2040 / 3600, 2040 / 4800, 2040 / 3600 * 2.5, "input_wait"),
            ("bob", 0.06, 0.06, 0.06 * 2.5, "validation"),
        ],
    ),
    (FLEET, "Alerts that fire now"): (
        ("Severity", "Alert", "Host", "GPU", "Run", "User"),
        [
            ("page", "GpumonDown", "node-003", "", "", ""),
            ("info", "GpumonGPUThrottled", "node-000", "1", "", ""),
            ("page", "GpumonGPUStarved", "node-000", "", "resnet", "ada"),
        ],
    ),
    (HOST, "Each GPU"): (
        (
            *("GPU", "Model", "UUID", "Busy", "Starved", "Suspected", "Lost", "Pause 95 %"),
            *("Memory", "Starved now"),
        ),
        [(str(gpu), H200, f"GPU-00000000-000{gpu}", *EACH_GPU) for gpu in range(2)],
    ),
    (HOST, "Use of each GPU, by cause"): (
        ("card\\cause", "busy", "checkpoint", "input_wait", "within_step"),
        [(f"{gpu} {H200}", 1020, 60, 660, 60) for gpu in range(2)],
    ),
    (HOST, "Runs on each GPU now"): (
        ("GPU", "Model", "Run"),
        [(str(gpu), H200, "resnet") for gpu in range(2)],
    ),
    (HOST, "Users on each GPU now"): (
        ("GPU", "User"),
        [(str(gpu), "ada") for gpu in range(2)],
    ),
    (RUN, "Its GPUs"): (
        ("Run", "Host", "GPU", "Model", "User", "Share", "Busy", "Starved"),
        [
            ("resnet", "node-000", "0", H200, "ada", 0.6, 1020 / 1800, 660 / 1800),
            ("resnet", "node-000", "1", H200, "ada", 0.4, 1020 / 1800, 660 / 1800),
        ],
    ),
}
"""Headings and rows by dashboard and table, after the half hour of the script."""

SHOWN: Final = (
    ("suffix:GPU-h", 12400.26, 1, "12400.3 GPU-h"),
    ("locale", 31000.456, 2, "31,000.46"),
    ("percentunit", 0.413, 0, "41%"),
    ("kwatth", 0.125, 1, "125.0 Wh"),
    ("massg", 50_130, 1, "50.1 kg"),
    ("suffix:times", 1.579, 2, "1.58 times"),
    ("suffix:steps/s", 3.5, 2, "3.50 steps/s"),
)
"""Unit, value, decimals, and what Grafana writes."""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus_after(Hours(), tmp_path_factory.mktemp("used")) as server:
        yield server


@pytest.fixture(scope="module")
def unused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus_after(Hours(UNUSED), tmp_path_factory.mktemp("unused")) as server:
        yield server


def in_grafana(
    tables: Sequence[dict[str, Any]] = (),
    values: Sequence[tuple[Any, ...]] = (),
    fields: Sequence[tuple[Any, ...]] = (),
) -> Any:
    """The answer of ``tests/grafana_data/transform.cjs``."""
    node = needed("node", "nodejs")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        missing(f"@grafana/data needs Node {OLDEST_NODE} or newer, and this is {version.strip()}")
    if not (MODULES / "node_modules" / "@grafana").is_dir():
        missing("@grafana/data is not installed: make tools")
    done = subprocess.run(
        [node, str(ROOT / "tests" / "grafana_data" / "transform.cjs"), str(MODULES)],
        input=json.dumps({"tables": tables, "values": values, "fields": fields}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def question(
    server: Prometheus, panel: dict[str, Any], sent: dict[str, str], *, keeps_empty: bool
) -> dict[str, Any]:
    """A table and what Prometheus answers for it."""
    targets = [
        {
            "refId": target["refId"],
            "result": server.now(as_grafana_sends_it(target["expr"], sent), time=str(NOW_S)),
        }
        for target in panel["targets"]
    ]
    return {
        "targets": targets,
        "transformations": panel["transformations"],
        "keepsEmpty": keeps_empty,
    }


def every_table(server: Prometheus, sent: dict[str, str], *, keeps_empty: bool) -> dict[Any, Any]:
    """Rows by dashboard and table."""
    asked = [question(server, panel, sent, keeps_empty=keeps_empty) for panel in TABLES.values()]
    return dict(zip(TABLES, in_grafana(asked)["tables"], strict=True))


class TestTheTables:
    def test_show_the_truth_in_each_column(self, prometheus: Prometheus) -> None:
        shown = every_table(prometheus, SENT, keeps_empty=True)

        assert shown.keys() == TRUTH.keys()
        for key, (headings, rows) in TRUTH.items():
            expected = [dict(zip(headings, row, strict=True)) for row in rows]
            assert [list(row) for row in shown[key]] == [list(headings)] * len(rows), key
            for row, truth in zip(sorted_rows(shown[key]), sorted_rows(expected), strict=True):
                for heading, value in truth.items():
                    is_text = isinstance(value, str)
                    expected_value = value if is_text else pytest.approx(value, rel=0.01, abs=1e-6)
                    assert row[heading] == expected_value, (key, heading)

    def test_are_the_same_in_the_pictures(self, prometheus: Prometheus) -> None:
        shown = every_table(prometheus, SENT, keeps_empty=True)

        for key, panel in TABLES.items():
            asked = question(prometheus, panel, SENT, keeps_empty=True)["targets"]
            answers = {one["refId"]: one["result"] for one in asked}
            if panel["type"] == "table":
                drawn = picture_panels.table_rows(panel, answers)
                assert [without_gaps(row) for row in drawn] == [
                    without_gaps(row) for row in shown[key]
                ], key

    @pytest.mark.parametrize("keeps_empty", [True, False], ids=["new", "old"])
    def test_say_so_in_one_row_if_nothing_is_lost(
        self, unused: Prometheus, keeps_empty: bool
    ) -> None:
        shown = every_table(unused, UNUSED_SENT, keeps_empty=keeps_empty)

        for key, text in (
            ("host", "nothing lost"),
            ("run", "no tagged run at work"),
            ("user", "no user at work"),
        ):
            (row,) = shown[FLEET, f"Worst ten {key}s"]
            assert row[key.capitalize()] == text
            assert row["GPU-hours lost"] == 0
        (alert,) = shown[FLEET, "Alerts that fire now"]
        assert alert["Alert"] == "none"

    def test_of_the_worst_are_in_order(self, prometheus: Prometheus) -> None:
        shown = every_table(prometheus, SENT, keeps_empty=True)

        hours = [row["GPU-hours lost"] for row in shown[FLEET, "Worst ten hosts"]]
        assert hours == sorted(hours, reverse=True)


class TestThePictures:
    @pytest.mark.parametrize("name", DRAWN)
    def test_are_small_and_can_be_drawn_again(self, prometheus: Prometheus, name: str) -> None:
        shown = IMAGES / f"{name}.png"

        drawn = pictures.picture(name, prometheus)

        assert drawn.startswith(b"\x89PNG")
        assert len(drawn) < MOST_BYTES
        assert shown.stat().st_size < MOST_BYTES


class TestTheUnits:
    def test_exist_in_grafana_and_are_written_as_intended(self) -> None:
        used = {unit for uid in BOARDS for panel in panels(uid) for unit in units_of(panel)}
        written = [(unit, value, decimals) for unit, value, decimals, _ in SHOWN]

        answer = in_grafana(values=[*written, *((unit, 1, 1) for unit in sorted(used))])

        assert answer["unknownUnits"] == []
        assert [picture_panels.written(*one) for one in written] == [text for *_, text in SHOWN]
        assert answer["texts"][: len(SHOWN)] == [text for *_, text in SHOWN]


class TestTheStates:
    """A figure, "not in use" and a cause, as Grafana shows them in a field."""

    def test_of_a_figure_are_its_value_and_not_in_use(self) -> None:
        stats = [
            (panel["title"], picture_panels.settings_of(panel, name))
            for uid in BOARDS
            for panel in panels(uid)
            if panel["type"] == "stat"
            for name in {target["legendFormat"] for target in panel["targets"]} - WITHOUT_UNUSED
        ]

        cells = in_grafana(fields=[(config, -1) for _, config in stats])["cells"]

        assert len(stats) > 10
        assert {cell: title for cell, (title, _) in zip(cells, stats, strict=True)}.keys() == {
            "not in use"
        }

    def test_of_a_cause_are_words_of_the_glossary(self) -> None:
        panel = TABLES[FLEET, "Worst ten hosts"]
        config = picture_panels.settings_of(panel, "Main cause")

        cells = in_grafana(fields=[(config, "input_wait"), (config, "start_up")])["cells"]

        assert cells == ["waiting for input", "during start-up"]


def without_gaps(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value not in (None, "")}


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: [str(value) for value in row.values()][:3])


def units_of(panel: dict[str, Any]) -> Iterator[str]:
    config = panel["fieldConfig"]
    yield config["defaults"]["unit"]
    for override in config["overrides"]:
        for setting in override["properties"]:
            if setting["id"] == "unit":
                yield setting["value"]
