"""Report, page and recording with a GPU in trouble: such a machine is not healthy."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpumon.core.device.driver_codes import xid_text
from gpumon.outlets.http.live_state import LiveState
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle
from gpumon.pipeline.state_report import report_of
from tests.builders.driver import DriverStory
from tests.builders.driver_faults import FIRST, SECOND, Change
from tests.daemon import RunningDaemon
from tests.faults.faulty_machine import Machine, gpu
from tests.processes import ending
from tests.serving import new_views
from tests.waiting import wait_until

Troubles = list[list[tuple[str, str]]]
"""Kind and severity of each trouble of each GPU."""
BROKEN = 5
LOST, THROTTLED, ECC = ("lost", "high"), ("throttled", "moderate"), ("ecc", "high")
SW_POWER_CAP, HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE = 0x04, 0x08, 0x40, 0x80


@pytest.fixture
def eight(tmp_path: Path, fake_library: Path) -> Iterator[Machine]:
    """Eight GPUs, all busy."""
    made = Machine(tmp_path, fake_library.parent, gpus=8)
    for slot in range(8):
        made.fake.wave(slot, period_s=1.0, busy_ratio=1.0)
    yield made
    made.fake.close()


class Headline(NamedTuple):
    """The first lines of a report; ``golden/headlines_of_gpus_in_trouble.txt`` has the text."""

    verdict: str
    of: str
    why: str
    todo: str


def headline(text: str) -> Headline:
    lines = " ".join(text.split("\n\n")[0].split())
    found = re.fullmatch(r"Verdict: (.*?): (.*) Why: (.*) Next: (.*)", lines)
    assert found, lines
    return Headline(*found.groups())


def reported(story: DriverStory) -> Headline:
    return headline(render_report(report_of(story.state), TextStyle()))


def troubles(story: DriverStory) -> Troubles:
    """The troubles in ``/api/v1/state``."""
    live = LiveState(story.clock, new_views())
    live.publish(story.state)
    gpus = (live.document() or {})["gpus"]
    return [[(one["kind"], one["severity"]) for one in gpu["troubles"]] for gpu in gpus]


def over_api(daemon: RunningDaemon, index: int) -> dict[str, Any]:
    """That GPU in ``/api/v1/state``."""
    return gpu(json.loads(daemon.get("/api/v1/state")[1]), index)


class TestXid79OnGpu5OfEight:
    def test_is_the_first_line_of_live_and_replayed_reports(self, eight: Machine) -> None:
        kept = str(eight.folder / "night.gpumon")
        with eight.serve() as daemon:
            started = subprocess.Popen(
                [sys.executable, "-m", "gpumon", "record", kept, "--period", "0.5"],
                env={**daemon.environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            with ending(started) as recorder:
                daemon.wait_for(lambda state: gpu(state, 7)["observed_ns"] > 4e9)
                wait_until(lambda: Path(kept).exists() and Path(kept).stat().st_size > 0)
                eight.fake.report_xid(BROKEN, 79)
                wait_until(lambda: over_api(daemon, BROKEN)["xid_errors"] == {"79": 1})
                early = daemon.report()["gpus"][BROKEN]
                eight.fake.lose(BROKEN)
                daemon.wait_for(lambda state: not gpu(state, BROKEN)["present"])
                texts = [
                    eight.gpumon("report").stdout,
                    eight.gpumon("report", "--since", "1h").stdout,
                ]
                over_web = daemon.report()["gpus"][BROKEN]
                of_api = over_api(daemon, BROKEN), over_api(daemon, 0)
                looked = eight.gpumon("doctor").stdout
                recorder.send_signal(signal.SIGTERM)
                assert recorder.wait(10) == 0
        texts.append(eight.gpumon("replay", kept).stdout)

        advice = early["troubles"][0]["advice"]
        assert f"gpu 5 XID 79: {advice}" in " ".join(looked.split())

        for text in texts:
            printed = headline(text)
            assert printed.verdict == "GPU lost"
            assert printed.of.startswith("GPU 5 ")
            assert f"XID 79 ({xid_text(79).meaning})" in printed.of
            assert printed.todo.startswith(f"GPU 5: {advice}")
            (row,) = [line for line in text.splitlines() if line.startswith("5 ")]
            assert row.endswith("  lost")
        assert [(one["kind"], one["code"]) for one in early["troubles"]] == [("xid", 79)]
        assert [(one["kind"], one["code"], one["count"]) for one in over_web["troubles"]] == [
            ("lost", None, None), ("xid", 79, 1),
        ]  # fmt: skip
        assert over_web["verdict"] in ("healthy", "too_short_to_judge")  # that word is on time
        assert [one["text"] for one in of_api[0]["troubles"]] == [
            one["text"] for one in over_web["troubles"]
        ]
        assert of_api[1]["troubles"] == []


class TestAGpuInTrouble:
    @pytest.mark.parametrize(
        ("trouble", "verdict", "of", "todo", "expected"),
        [
            (lambda fake: fake.lose(FIRST), "GPU lost", "GPU 0 ", "Xid 79", [[LOST], []]),
            (lambda fake: fake.throttle(SECOND, HW_THERMAL | HW_SLOWDOWN),
             "GPU in trouble", r"GPU 1 .* 65 % .*\(hw_thermal_slowdown\)", "GPU 1: look",
             [[], [THROTTLED]]),
            (lambda fake: fake.throttle(SECOND, POWER_BRAKE),
             "GPU in trouble", r"GPU 1 .* 65 % .*\(hw_power_brake_slowdown\)", "GPU 1: look",
             [[], [THROTTLED]]),
            (lambda fake: fake.report_ecc(FIRST, uncorrected=True),
             "GPU in trouble", "GPU 0 .* memory", "GPU 0: .*reset", [[ECC], []]),
        ],
    )  # fmt: skip
    def test_is_the_first_line_of_a_report(
        self,
        story: DriverStory,
        trouble: Change,
        verdict: str,
        of: str,
        todo: str,
        expected: Troubles,
    ) -> None:
        trouble(story.fake)
        story.tick(30)

        printed = reported(story)

        assert printed.verdict == verdict
        assert re.match(of, printed.of)
        assert re.search(todo, printed.todo)
        assert troubles(story) == expected

    @pytest.mark.parametrize(
        "everyday",
        [
            lambda fake: fake.throttle(SECOND, SW_POWER_CAP | 0x01),
            lambda fake: fake.report_ecc(FIRST, uncorrected=False),
        ],
        ids=["its power limit", "an error that was corrected"],
    )
    def test_is_not_reported_for(self, story: DriverStory, everyday: Change) -> None:
        everyday(story.fake)
        story.tick(30)

        assert reported(story).verdict.startswith("Healthy since ")
        assert troubles(story) == [[], []]
