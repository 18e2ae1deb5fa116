"""Tests of rules and alerts: valid, tested by promtool, and each with a runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gpumon.outlets.metrics.metric_table import METRICS
from tests.needs import needed

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "prometheus"
RULES, ALERTS, TESTS = (FOLDER / name for name in ("rules.yml", "alerts.yml", "tests.yml"))
RUNBOOKS = ROOT / "docs" / "runbooks"

ALERT_NAMES = re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8"))
BASE = "https://gpumon.example/docs/runbooks"
BASE_OF_RUNBOOKS = '{{ with query "gpumon:runbooks:info" }}{{ . | first | label "base" }}{{ end }}'


def text_of(alert: str) -> str:
    parts = ALERTS.read_text(encoding="utf-8").split("- alert: ")
    return next(part for part in parts if part.startswith(f"{alert}\n"))


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    command = [needed("promtool", "prometheus"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.prometheus
def test_the_rules_are_valid() -> None:
    checked = promtool("check", "rules", str(RULES), str(ALERTS))

    assert checked.returncode == 0, checked.stderr


@pytest.mark.prometheus
def test_the_alerts_pass_the_tests_of_promtool() -> None:
    tested = promtool("test", "rules", str(TESTS))

    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.prometheus
def test_a_wrong_threshold_fails_these_tests(tmp_path: Path) -> None:
    for path in (RULES, ALERTS, TESTS):
        text = path.read_text(encoding="utf-8")
        (tmp_path / path.name).write_text(text.replace("> 0.30", "> 0.60"), encoding="utf-8")

    assert promtool("test", "rules", str(tmp_path / TESTS.name)).returncode != 0


@pytest.mark.prometheus
def test_the_base_url_of_runbooks_is_in_one_line(tmp_path: Path) -> None:
    for path in (RULES, ALERTS, TESTS):
        text = path.read_text(encoding="utf-8")
        (tmp_path / path.name).write_text(text.replace(BASE, "https://wiki.example/gpu"), "utf-8")

    assert ALERTS.read_text(encoding="utf-8").count(BASE) == 1
    assert promtool("test", "rules", str(tmp_path / TESTS.name)).returncode == 0


class TestEachAlert:
    @pytest.mark.parametrize("alert", ALERT_NAMES)
    def test_has_a_runbook(self, alert: str) -> None:
        urls = re.findall(r"runbook_url: '(.+)'", text_of(alert))

        assert urls == [f"{BASE_OF_RUNBOOKS}/{alert}.md"]
        assert (RUNBOOKS / f"{alert}.md").read_text(encoding="utf-8").startswith(f"# {alert}\n")

    @pytest.mark.parametrize("alert", ALERT_NAMES)
    def test_keeps_firing_during_a_failed_scrape_or_restart(self, alert: str) -> None:
        assert "\n        keep_firing_for: 5m\n" in text_of(alert)

    @pytest.mark.parametrize("alert", ALERT_NAMES)
    def test_is_documented_with_its_severity(self, alert: str) -> None:
        table = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
        severity = re.findall(r"severity: (\w+)", text_of(alert))

        assert re.findall(rf"\| \[{alert}\]\(runbooks/{alert}.md\) \| (\w+) \|", table) == severity

    @pytest.mark.parametrize("alert", ALERT_NAMES)
    def test_fires_in_a_test(self, alert: str) -> None:
        cases = TESTS.read_text(encoding="utf-8").split("- alertname: ")

        assert any(case.startswith(alert) and "exp_labels" in case for case in cases)

    def test_pages_for_proven_starvation_and_informs_of_suspected(self) -> None:
        severity = dict(
            re.findall(r"- alert: (\w+).*?severity: (\w+)", ALERTS.read_text("utf-8"), re.DOTALL)
        )

        assert severity["GpumonGPUStarved"] == "page"
        assert severity["GpumonGPUStarvationSuspected"] == "info"


def test_every_runbook_has_an_alert() -> None:
    pages = {page.stem for page in RUNBOOKS.glob("*.md")}

    assert pages == set(ALERT_NAMES)


@pytest.mark.parametrize("path", [RULES, ALERTS], ids=lambda path: path.name)
def test_only_exported_metrics_are_used(path: Path) -> None:
    used = set(re.findall(r"(?<![\w:])gpumon_\w+(?=[{\[\s]|$)", path.read_text(encoding="utf-8")))

    assert used - {metric.name for metric in METRICS} == set()
    assert used


@pytest.mark.parametrize("path", [RULES, ALERTS], ids=lambda path: path.name)
def test_the_age_of_a_scrape_is_not_used(path: Path) -> None:
    assert "time() -" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [RULES, ALERTS], ids=lambda path: path.name)
def test_ranges_cover_five_scrapes_of_a_minute(path: Path) -> None:
    # rate() needs two samples: with one failed scrape, a range of 2 m has fewer.
    ranges = re.findall(r"(?:rate|increase)\([^\[]+\[(\d+)m\]", path.read_text(encoding="utf-8"))

    assert ranges
    assert min(map(int, ranges)) >= 5
