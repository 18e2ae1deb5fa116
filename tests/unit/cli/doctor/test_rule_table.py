"""Tests of ``gpumon doctor --rules``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpumon.cli.doctor import doctor
from gpumon.cli.doctor.rule_table import render_rules
from gpumon.cli.main import main
from gpumon.core.diagnosis.rules import ALL_RULES
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.settings.threshold import thresholds_of
from gpumon.outlets.text.style import TextStyle

PAGE = Path(__file__).resolve().parents[4] / "docs" / "rules.md"
FENCE = "```\n"


@pytest.fixture(autouse=True)
def a_machine_that_must_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("--rules read the machine")

    for name in ("open_source", "read_driver_files", "machine_findings", "_examine"):
        monkeypatch.setattr(doctor, name, refuse)


def reported(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = main(["doctor", "--rules", *words])
    assert code == 0
    return capsys.readouterr().out


class TestTheTable:
    def test_is_the_one_in_the_documentation(self) -> None:
        table = "\n".join(render_rules(TextStyle())) + "\n"
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(FENCE)
        shown, _, after = rest.partition(FENCE)
        if os.environ.get("GPUMON_UPDATE_GOLDEN"):
            PAGE.write_text(before + FENCE + table + FENCE + after, encoding="utf-8")
            shown = table

        assert shown == table, "run: make golden"


class TestForScripts:
    def test_the_document_has_the_same_rules(self, capsys: pytest.CaptureFixture[str]) -> None:
        document = json.loads(reported(capsys, "--json"))

        assert document["schema"] == "gpumon.rules/1"
        assert [rule["id"] for rule in document["rules"]] == [rule.id for rule in ALL_RULES]
        healthy = next(rule for rule in document["rules"] if rule["id"] == "healthy")
        assert healthy["kind"] == "verdict"
        (lost_share,) = [one for one in thresholds_of(DEFAULT_SETTINGS) if one.name == "lost_share"]
        assert healthy["thresholds"][0] == {
            "name": "lost_share",
            "value": 0.05,
            "unit": "share",
            "what": lost_share.what,
            "origin": lost_share.origin,
        }
