"""Rules and alerts: valid, tested by promtool, and each with a page that says what to do."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gpumon.outlets.metric_table import METRICS
from tests.needs import needed

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "prometheus"
RULES, ALERTS, TESTS = (FOLDER / name for name in ("rules.yml", "alerts.yml", "tests.yml"))

ALERT_NAMES = re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8"))


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    command = [needed("promtool", "prometheus"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.prometheus
def test_the_rules_are_valid() -> None:
    checked = promtool("check", "rules", str(RULES), str(ALERTS))

    assert checked.returncode == 0, checked.stderr


@pytest.mark.prometheus
def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    tested = promtool("test", "rules", str(TESTS))

    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.prometheus
def test_a_wrong_threshold_would_be_seen(tmp_path: Path) -> None:
    for path in (RULES, ALERTS, TESTS):
        text = path.read_text(encoding="utf-8")
        (tmp_path / path.name).write_text(text.replace("> 0.30", "> 0.60"), encoding="utf-8")

    assert promtool("test", "rules", str(tmp_path / TESTS.name)).returncode != 0


class TestEachAlert:
    @pytest.mark.parametrize("alert", ALERT_NAMES)
    def test_has_a_page_that_says_what_to_do(self, alert: str) -> None:
        page = ROOT / "docs" / "runbooks" / f"{alert}.md"

        assert page.read_text(encoding="utf-8").startswith(f"# {alert}\n")
        assert f"runbook: docs/runbooks/{alert}.md" in ALERTS.read_text(encoding="utf-8")

    @pytest.mark.parametrize("alert", ALERT_NAMES)
    def test_is_seen_firing(self, alert: str) -> None:
        cases = TESTS.read_text(encoding="utf-8").split("- alertname: ")

        assert any(case.startswith(alert) and "exp_labels" in case for case in cases)

    def test_pages_on_what_is_proved_and_informs_of_what_is_suspected(self) -> None:
        severity = dict(
            re.findall(r"- alert: (\w+).*?severity: (\w+)", ALERTS.read_text("utf-8"), re.DOTALL)
        )

        assert severity["GpumonGPUStarved"] == "page"
        assert severity["GpumonGPUStarvationSuspected"] == "info"


def test_no_page_is_left_behind_by_its_alert() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "runbooks").glob("*.md")}

    assert pages == set(ALERT_NAMES)


@pytest.mark.parametrize("path", [RULES, ALERTS], ids=lambda path: path.name)
def test_use_only_metrics_that_gpumon_exposes(path: Path) -> None:
    used = set(re.findall(r"(?<![\w:])gpumon_\w+(?=[{\[\s]|$)", path.read_text(encoding="utf-8")))

    assert used - {metric.name for metric in METRICS} == set()
    assert used
