"""Reports on many machines, pinned word for word, and what is printed if a server is no use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.cli import fleet_report
from tests import fake_prometheus
from tests.builders.state import StoppedClock
from tests.command_line import Shell
from tests.fake_prometheus import FakePrometheus
from tests.golden_files import Chapters, golden_story

SHOWN_ADDRESS = "http://prometheus:9090"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakePrometheus]:
    """A server of twenty hosts whose clock this machine has, too."""
    monkeypatch.setattr(fleet_report, "SystemClock", StoppedClock)
    monkeypatch.chdir(tmp_path)
    with fake_prometheus.running(FakePrometheus(fake_prometheus.fleet())) as fake:
        yield fake


def printed(gpumon: Shell, fake: FakePrometheus, options: str = "") -> str:
    ended = gpumon("report", "--prometheus", fake.address, *options.split())
    assert ended.code == 0, ended.err
    return (ended.out + ended.err).replace(fake.address, SHOWN_ADDRESS)


@golden_story
def test_fleet_reports(gpumon: Shell, fake: FakePrometheus) -> Chapters:
    texts = {options: printed(gpumon, fake, options) for options in ("", "--price 2.50 --by run")}
    return {f"gpumon report --prometheus URL {options}": text for options, text in texts.items()}
