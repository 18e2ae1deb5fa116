"""What report, page and recording say of a GPU in trouble: a machine with one is not healthy."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.outlets.http.live_state import LiveState
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle
from gpumon.pipeline.reports import report_of
from tests.builders_driver import DriverStory
from tests.builders_faults import FIRST, SECOND, Change
from tests.daemon import RunningDaemon
from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml
from tests.faults.faulty_machine import Machine, gpu
from tests.patience import wait_until
from tests.processes import ending
from tests.serving import nothing_said

Begin = Callable[[FakeNvml], DriverStory]
Told = list[list[tuple[str, str]]]
"""Kind and severity of each trouble of each GPU."""
BROKEN = 5
LOST, THROTTLED, ECC = ("lost", "high"), ("throttled", "moderate"), ("ecc", "high")
HELD_DOWN = "GPU in trouble: GPU 1 had the clocks held down 65 % of the busy time"
SW_POWER_CAP, HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE = 0x04, 0x08, 0x40, 0x80


@pytest.fixture
def eight(tmp_path: Path, fake_library: Path) -> Iterator[Machine]:
    """Eight GPUs, all busy."""
    made = Machine(tmp_path, fake_library.parent, gpus=8)
    for slot in range(8):
        made.fake.wave(slot, period_s=1.0, busy_ratio=1.0)
    yield made
    made.fake.close()


def first_lines(text: str) -> str:
    """Verdict, Why and Next, unwrapped."""
    return " ".join(text.split("\n\n")[0].split())


def told(story: DriverStory) -> str:
    return first_lines(render_report(report_of(story.state), TextStyle()))


def troubles(story: DriverStory) -> Told:
    """As ``/api/v1/state`` has them."""
    live = LiveState(story.clock, nothing_said)
    live.publish(story.state)
    gpus = (live.document() or {})["gpus"]
    return [[(one["kind"], one["severity"]) for one in gpu["troubles"]] for gpu in gpus]


def over_api(daemon: RunningDaemon, index: int) -> dict[str, Any]:
    """That GPU in ``/api/v1/state``, which has what its board says."""
    return gpu(json.loads(daemon.get("/api/v1/state")[1]), index)


class TestXid79OnGpu5OfEight:
    def test_is_what_a_report_begins_with_live_and_of_a_recording(self, eight: Machine) -> None:
        kept = str(eight.folder / "night.gpumon")
        with eight.serve() as daemon:
            started = subprocess.Popen(
                [sys.executable, "-m", "gpumon", "record", kept, "--period", "0.5"],
                env={**daemon.environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            with ending(started) as recorder:
                daemon.wait_for(lambda state: gpu(state, 7)["observed_ns"] > 4e9)
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

        assert "gpu 5 XID 79" in looked
        assert "gpu 5 XID 79: reboot, or cut the machine's power" in " ".join(looked.split())

        for text in texts:
            said = first_lines(text)
            assert said.startswith("Verdict: GPU lost: GPU 5 cannot be read. It reported XID 79 (")
            assert "fell off the bus" in said
            assert "Next: GPU 5: reboot, or cut the machine's power" in said
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
        ("trouble", "verdict", "what_to_do", "told_of"),
        [
            (lambda fake: fake.lose(FIRST),
             "GPU lost: GPU 0 cannot be read. GPU 1 works well.",
             "GPU 0: look for Xid 79 in `dmesg`, then reset the GPU or reboot.", [[LOST], []]),
            (lambda fake: fake.throttle(SECOND, HW_THERMAL | HW_SLOWDOWN),
             f"{HELD_DOWN} by heat (hw_thermal_slowdown). GPU 0 works well.",
             "GPU 1: look at", [[], [THROTTLED]]),
            (lambda fake: fake.throttle(SECOND, POWER_BRAKE),
             f"{HELD_DOWN} by the machine's power supply (hw_power_brake_slowdown). GPU 0 works",
             "GPU 1: look at", [[], [THROTTLED]]),
            (lambda fake: fake.report_ecc(FIRST, uncorrected=True),
             "GPU in trouble: GPU 0 met an error of its memory that",
             "GPU 0: trust no result of that time; end what uses the GPU", [[ECC], []]),
        ],
    )  # fmt: skip
    def test_is_what_a_report_begins_with(
        self, story: DriverStory, trouble: Change, verdict: str, what_to_do: str, told_of: Told
    ) -> None:
        trouble(story.fake)
        story.tick(30)

        said = told(story)

        assert said.startswith(f"Verdict: {verdict}")
        assert f"Next: {what_to_do}" in said
        assert troubles(story) == told_of

    @pytest.mark.parametrize(
        "everyday",
        [
            lambda fake: fake.throttle(SECOND, SW_POWER_CAP | 0x01),
            lambda fake: fake.report_ecc(FIRST, uncorrected=False),
        ],
        ids=["its power limit", "an error that was corrected"],
    )
    def test_is_none_with(self, story: DriverStory, everyday: Change) -> None:
        everyday(story.fake)
        story.tick(30)

        assert told(story).startswith("Verdict: Healthy: GPU 0 and GPU 1 work well.")
        assert troubles(story) == [[], []]

    def test_has_a_row_also_where_it_was_lost_before_the_daemon_began(
        self, two_busy: FakeNvml, begin: Begin
    ) -> None:
        two_busy.lose(FIRST)
        story = begin(two_busy)
        story.tick(20)

        assert told(story).startswith("Verdict: GPU lost: GPU 0 cannot be read. GPU 1 works well.")
        assert [one.label for one in report_of(story.state).gpus] == ["0", "1"]

    def test_may_have_vanished_and_is_found_again(self, story: DriverStory) -> None:
        story.fake.reorder([SECOND])
        story.tick(20)

        # The other one is number 0 now.
        gone = f"GPU 0 ({story.fake.uuid(FIRST)[:12]}…)"
        assert told(story).startswith(f"Verdict: GPU lost: {gone} vanished. GPU 0 works well.")
        assert f"Next: {gone}: if nobody took it out, look for Xid" in told(story)
        story.fake.reorder([FIRST, SECOND])
        story.tick(6)
        assert told(story).startswith("Verdict: Healthy: GPU 0 and GPU 1 work well.")

    def test_is_each_of_them_where_the_whole_driver_is_gone(self, story: DriverStory) -> None:
        story.tick(20)
        story.fake.fail_everything(codes.UNKNOWN)
        story.tick(30)

        said = told(story)

        assert all(one.error is None for one in report_of(story.state).gpus)
        assert said.startswith("Verdict: GPU lost: GPU 0 and GPU 1 cannot be read. Until then ")
        assert "Until then healthy: GPU 0 and GPU 1 lost little of their time in use." in said
        assert "Why: GPU 0 and GPU 1: NVML answers with an unknown error, last read at" in said
        assert "Next: GPU 0 and GPU 1: read `dmesg`, and in a container create it anew" in said
        assert troubles(story) == [[LOST], [LOST]]

    def test_is_held_down_also_where_it_is_never_wholly_busy(
        self, fake_nvml_of_both_generations: FakeNvml
    ) -> None:
        fake = fake_nvml_of_both_generations
        for slot, (busy_ratio, why) in enumerate(((0.0, POWER_BRAKE), (0.7, HW_THERMAL))):
            fake.wave(slot, period_s=0.02, busy_ratio=busy_ratio)
            fake.throttle(slot, why)
        story = DriverStory(fake)
        story.tick(30)

        assert "GPU 1 had the clocks held down when it was asked last, by heat" in told(story)
        assert troubles(story) == [[THROTTLED], [THROTTLED]]
        fake.throttle(SECOND, 0)
        story.tick(10)
        assert troubles(story)[SECOND] == []
        story.close()
