"""The live page in a real browser: it says what is lost, to what, and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.documents.report_codec import encode_report
from gpumon.core.judge.verdict_rules import judge
from gpumon.core.phase import IdleCause
from gpumon.core.state import CollectorState, GpuState, MonitorState
from gpumon.core.time.totals import GapTotals, GpuTotals
from gpumon.core.verdict import VerdictName
from gpumon.pipeline.reports import report_of
from tests.builders_state import (
    HEALTHY_UUID,
    STARVED_UUID,
    S,
    device,
    healthy_gpu,
    run,
    starved_gpu,
)
from tests.e2e.open_page import ADVICE, Show, now, recent, story
from tests.story_of_states import machine

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ADVISED = {"advice": [ADVICE]}
WAITED = {IdleCause.IMBALANCE: 9 * S}
LEVEL = {"text": "Split them 3:2.", "evidence": "It waited for a slower GPU."}
A_MOMENT = GpuTotals(observed_ns=4 * S, busy_ns=4 * S, in_use_ns=4 * S, in_use_busy_ns=4 * S)


def stalled_gpu(gpu: GpuState, idle_ns: Mapping[IdleCause, int]) -> GpuState:
    totals = gpu.totals._replace(idle_ns=idle_ns, suspected_ns=0, pending_ns=0)
    return gpu._replace(
        totals=totals._replace(observed_ns=totals.busy_ns + sum(idle_ns.values())),
        verdict=gpu.verdict._replace(name=VerdictName.STALLED),
    )


def suspected_gpu(index: int) -> GpuState:
    """Untagged: 80 s in use, 25 of them in pauses that are suspected."""
    totals = GpuTotals(
        observed_ns=80 * S, busy_ns=55 * S, idle_ns={IdleCause.UNKNOWN: 25 * S}, in_use_ns=80 * S,
        in_use_busy_ns=55 * S, suspected_ns=25 * S, low_ns=25 * S,
        pauses=GapTotals(count=10, total_ns=25 * S, longest_ns=3 * S, p50_ns=5 * S // 2),
    )  # fmt: skip
    return starved_gpu(device=device(index, f"GPU-{index}"), totals=totals, verdict=judge(totals))


@pytest.mark.parametrize("width", [1280, 390])
class TestAtBothWidths:
    def test_the_first_screen_says_what_is_lost_and_what_to_do(
        self, show: Show, width: int
    ) -> None:
        page = show(*story(60), report=ADVISED, width=width)
        page.until("#sentence", "starved")
        page.until("#next", "Prefetch")

        assert re.fullmatch(
            r"GPU 0 is starved: waiting for input cost [\d.]+ s \(\d+ %\) of the [\d.]+ s "
            r"in use\. GPU 2 pauses as behind a late input pipeline: [\d.]+ s \(\d+ %\) of "
            r"the [\d.]+ s in use, suspected, not proved\.",
            page.text("#sentence"),
        )
        assert page.text("#why") == ADVICE["evidence"]
        assert "at most 1.50 times as fast" in page.text("#gain")
        assert re.fullmatch(r"last sample \d+\.\d s ago", page.text("#age"))
        assert page.text("#simulated") == "simulated GPU: made-up hardware"

    def test_nothing_scrolls_sideways(self, show: Show, width: int) -> None:
        long = run("a-very-long-run-name-" * 6, framework="keras/tensorflow")
        page = show(*story(60)[:-1], now(runs=(long, run("b"))), width=width)
        page.until("#runs", "a-very-long")

        overhang = page.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert overhang <= 0

    def test_no_word_in_the_console_and_no_request_to_elsewhere(
        self, show: Show, width: int
    ) -> None:
        page = show(*story(30), width=width)
        page.until("#sentence", "starved")
        page.page.wait_for_timeout(500)

        assert page.faults == []
        assert {"/", "/page.js", "/page.css", "/api/v1/stream", "/api/v1/history"} <= {
            url.removeprefix(page.origin) for url in page.requested
        }
        assert [url for url in page.requested if not url.startswith(page.origin)] == []


class TestVerdictsInWords:
    @pytest.mark.parametrize(
        ("gpus", "sentence"),
        [
            ((), r"No GPU has been found yet\."),
            ((healthy_gpu(),), r"GPU 1 is kept busy: waiting for input cost 0.s \(0.%\) of"),
            (
                (starved_gpu(),),
                r"waiting for input cost 30.s \(33.%\) of the 90.s in use, and 6.s more "
                r"is suspected\.",
            ),
            (
                (suspected_gpu(0), suspected_gpu(3)),
                r"^GPUs 0 and 3 pause as behind a late input pipeline: 0\.833.GPU-minutes "
                r"\(31.%\) of the 2\.67.GPU-minutes in use, suspected, not proved\.",
            ),
            (
                (starved_gpu(present=False, error="GPU is lost"),),
                r"GPU 0 cannot be read now: what follows is the last known\.",
            ),
        ],
        ids=["none", "healthy", "starved", "suspected", "lost"],
    )
    def test_are_plain(self, show: Show, gpus: tuple[Any, ...], sentence: str) -> None:
        page = show(now(gpus=gpus, simulated=False))
        page.until("#sentence", sentence)

        assert page.is_hidden("#simulated")
        assert page.is_hidden("#replayed")

    def test_says_that_a_recording_is_not_now(self, show: Show) -> None:
        page = show(now(gpus=(healthy_gpu(),), simulated=False, replayed=True))
        page.until("#replayed", "replay of a recording: not now")

        assert page.is_hidden("#simulated")

    @pytest.mark.parametrize("alive", [True, False])
    def test_say_when_the_trainings_they_are_of_are_over(self, show: Show, alive: bool) -> None:
        page = show(now(runs=(run("old", alive=False, phase=None), run(alive=alive))))
        page.until("#sentence", "starved")

        assert page.text("#sentence").endswith("No tagged training runs now.") is not alive

    def test_are_followed_by_the_advice_on_their_own_cause(self, show: Show) -> None:
        start_up = {**ADVICE, "cause": "start_up", "evidence": "It began late.", "text": "Hurry."}
        page = show(*story(60), report={"advice": [start_up, ADVICE]})
        page.until("#next", r"Prefetch batches while the GPU works\.")

        assert "starved" in page.text("#sentence")
        assert page.text("#why") == ADVICE["evidence"]

    def test_of_several_stalled_gpus_follow_the_one_that_lost_most(self, show: Show) -> None:
        few = {IdleCause.WITHIN_STEP: 4 * S, IdleCause.INPUT_WAIT: 2 * S}
        gpus = (stalled_gpu(starved_gpu(), WAITED), stalled_gpu(healthy_gpu(), few))
        both = [{**ADVICE, "cause": "within_step"}, {**ADVICE, "cause": "imbalance", **LEVEL}]
        page = show(now(gpus=gpus), report={"advice": both})
        page.until("#sentence", r"GPUs 0 and 1 are stalled, mainly waiting for a slower .* \(9.s\)")
        page.until("#next", LEVEL["text"])

        assert page.text("#why") == LEVEL["evidence"]

    @pytest.mark.parametrize("gpus", [(), (healthy_gpu(present=False),)], ids=["none", "gone"])
    def test_of_a_driver_that_is_gone_say_what_to_do(
        self, show: Show, gpus: tuple[Any, ...]
    ) -> None:
        broken = CollectorState("nvml", False, 0.0, 1, "the driver is not loaded: run `modprobe`")
        page = show(now(gpus=gpus, collectors=(broken,)))
        page.until("#next", "Run `modprobe`\\.")

        assert page.text("#why") == "The driver is not loaded."

    def test_of_a_gpu_that_has_just_begun_to_work_do_not_say_that_it_is_not_in_use(
        self, show: Show
    ) -> None:
        new = healthy_gpu(totals=A_MOMENT, verdict=judge(A_MOMENT))
        page = show(now(gpus=(new,), runs=()))
        page.until("#sentence", r"Too short to judge: GPU 1 in use for less than 10.s\.")

        assert page.text(".gpu-line") == "too short to judge"

    def test_of_gpus_that_work_give_no_advice_on_one_that_worked_for_a_moment(
        self, show: Show
    ) -> None:
        new = healthy_gpu(device=device(0, "GPU-0"), totals=A_MOMENT, verdict=judge(A_MOMENT))
        longer = {**ADVICE, "cause": "not_in_use", "text": "Watch GPU 0 for longer."}
        page = show(now(gpus=(new, healthy_gpu()), runs=()), report={"advice": [longer]})
        page.until("#sentence", "GPU 1 is kept busy")
        page.until("#next", r"Nothing to change\.")

        assert page.text("#why").startswith("GPU 1 was idle ")

    def test_a_lost_gpu_beside_a_healthy_one_is_named_with_its_reason(self, show: Show) -> None:
        lost = starved_gpu(present=False, error="GPU is lost: reboot")
        page = show(now(gpus=(lost, healthy_gpu())))
        page.until("#sentence", r"^GPU 0 cannot be read\. GPU 1 is kept busy")

        assert page.text(".gpu-line >> nth=0") == "not answering: GPU is lost: reboot"
        assert page.text("#why") == "GPU 0 cannot be read: GPU is lost."
        assert page.text("#next") == "GPU 0: reboot."


class TestAllThatCanBeChanged:
    OTHERS = (
        {
            "cause": "imbalance", "lost_seconds": 45.0, "speedup_upper_bound": 1.42,
            "evidence": "It waited for a slower GPU.", "text": "Split them 5:9.",
            "gpus": ["1", "2", "0:1"],
        },
        {
            "cause": "unknown", "lost_seconds": 9.5, "speedup_upper_bound": None,
            "evidence": "Nothing tells why.", "text": "Tag the training.", "gpus": ["2"],
        },
        {
            "cause": "under_filled", "lost_seconds": 0.0, "speedup_upper_bound": 1.0,
            "evidence": "It is busy and empty.", "text": "Larger batches.", "gpus": ["3"],
        },
    )  # fmt: skip

    def test_is_said_of_whom_it_helps_and_by_how_much_at_most(self, show: Show) -> None:
        page = show(*story(60), report={"advice": [{**ADVICE, "gpus": ["0"]}, *self.OTHERS]})
        page.until("#gain", "^Upper bound for GPU 0: at most 1.50 times as fast")

        assert [re.split(r"\n+", item) for item in page.texts("#advice li")] == [
            [
                "GPUs 1, 2 and 0:1: waiting for a slower GPU · 0.75 GPU-minutes lost · "
                "at most 1.42 times as fast",
                "Split them 5:9.",
                "It waited for a slower GPU.",
            ],
            ["GPU 2: cause unknown · 9.5 s lost", "Tag the training.", "Nothing tells why."],
            ["GPU 3: under-filled", "Larger batches.", "It is busy and empty."],
        ]

    def test_is_no_more_than_one_thing_where_there_is_one(self, show: Show) -> None:
        page = show(*story(60), report=ADVISED)
        page.until("#gain", "^Upper bound: at most 1.50 times as fast")

        assert page.is_hidden("#more")

    def test_is_said_in_the_figures_of_the_headline_tick_for_tick(self, show: Show) -> None:
        told = list(machine(115, [VerdictName.STARVED]))
        so_far: list[MonitorState] = told[:95]
        page = show(*so_far, report=lambda _: encode_report(report_of(so_far[-1])))
        page.until("#why", "GPU 0 for")
        for state in told[95:]:
            so_far.append(state)
            page.server.publish(state)
            page.until("table.causes tfoot", rf"{state.samples_total}\.0")

            lost, whole = re.findall(r"(\d[\d.,]*) (?:s|min)\b", page.text("#sentence"))
            assert f"GPU 0 for {lost} of {whole} " in page.text("#why")


class TestATitle:
    def test_names_the_main_loss_of_its_gpu_and_its_share(self, show: Show) -> None:
        roles = [VerdictName.STALLED, VerdictName.STARVED, VerdictName.HEALTHY]
        page = show(*map(recent, machine(140, roles)))
        page.until("#sentence", "starved")

        assert dict(zip(page.texts(".gpu-name"), page.texts(".gpu-line"), strict=True)) == {
            "GPU 0 NVIDIA H200": "stalled · during checkpoints 14 % (20 s)",
            "GPU 1 NVIDIA H200": (
                "starved 40 % (56 s) · during checkpoints 10 % (14 s) · within the step 5.0 % (7 s)"
            ),
            "GPU 2 NVIDIA H200": "healthy · within the step 3.0 % (4.2 s)",
        }
        assert page.page.title() == "25\N{NO-BREAK SPACE}% lost · gpumon"

    def test_calls_no_gpu_starved_that_waited_for_its_very_first_batch(self, show: Show) -> None:
        totals = starved_gpu().totals._replace(first_input_wait_ns=27 * S)
        page = show(now(gpus=(starved_gpu(totals=totals),)))
        page.until(
            ".gpu-line",
            r"^starved · waiting for the very first batch 30.% \(27.s\) · "
            r"during checkpoints 8\.9.% \(8.s\)",
        )

        assert "starved 30" not in page.text(".gpu-line")

    def test_puts_no_loss_down_to_a_first_batch(self, show: Show) -> None:
        """Of 30 s of waiting 27 were for the first batch; 8 s of checkpoints were lost."""
        totals = starved_gpu().totals._replace(first_input_wait_ns=27 * S)
        page = show(now(gpus=(starved_gpu(totals=totals, verdict=judge(totals)),)))
        page.until(
            "#sentence",
            r"^GPU 0 is stalled, in part during checkpoints \(8.s\); no tag explains 10.s",
        )

        assert page.text("#why").endswith(" during checkpoints.")


class TestTheTables:
    def test_give_each_gpu_its_causes_and_close_the_sum(self, show: Show) -> None:
        page = show(now())
        page.until("#sentence", "starved")
        rows = page.text("table.causes >> nth=0").splitlines()

        assert rows[0] == "GPU 0 NVIDIA H200: starved"
        assert "waiting for input ◀\t30.0 s\t30 %" in rows
        assert "suspected starvation\t6.0 s\t6.0 %" in rows
        assert "not decided yet\t2.0 s\t2.0 %" in rows
        assert rows[-1] == "sum = observed\t100.0 s\t100 %"

    def test_say_what_their_shares_are_of(self, show: Show) -> None:
        page = show(now())
        page.until("#sentence", "starved")

        heads = page.text("table.causes >> nth=0 >> thead").split("\t")
        assert heads[-1].strip() == "of observed"

    def test_blame_no_start_up_for_the_time_in_use(self, show: Show) -> None:
        idle_ns = {IdleCause.START_UP: 45 * S, IdleCause.CHECKPOINT: 9 * S}
        page = show(now(gpus=(stalled_gpu(starved_gpu(), idle_ns),)))
        page.until("#sentence", r"GPU 0 is stalled, mainly during checkpoints \(9.s\)\.")
        rows = page.text("table.causes >> nth=0").splitlines()

        assert [row.split("\t")[0] for row in rows if "◀" in row] == ["during checkpoints ◀"]

    def test_say_what_each_run_is_doing_now(self, show: Show) -> None:
        page = show(now(runs=(run("old", alive=False, phase=None), run())))
        page.until("#runs", "resnet")
        rows = [row.split("\t") for row in page.text("table.runs").splitlines()]

        assert rows[1] == [
            "resnet", "input_wait", "0", "3", "1234", "90.0 s", "keras/jax", "4242",
        ]  # fmt: skip
        assert rows[2][:2] == ["old", "ended"]

    def test_say_which_part_of_each_batch_a_gpu_is_given(self, show: Show) -> None:
        shares = {STARVED_UUID: 0.6, HEALTHY_UUID: 0.4}
        page = show(now(runs=(run(gpu_uuids=tuple(shares), shares=shares),)))
        page.until("#runs", "resnet")
        cells = page.text("table.runs").splitlines()[1].split("\t")

        assert cells[2] == "0 (60 % of each batch), 1 (40 % of each batch)"

    def test_say_what_a_reader_of_the_figures_must_know(self, show: Show) -> None:
        note = "The figures of GPU 0 add up 2 runs since the daemon began."
        page = show(now(), report={**ADVISED, "notes": [note]})
        page.until("#notes", "add up 2 runs")

        assert page.text("#notes") == note

    def test_say_how_to_tag_where_no_run_is(self, show: Show) -> None:
        page = show(now(runs=()))

        page.until("#runs", r"PhaseTagger\(\)")

    def test_never_take_a_name_for_markup(self, show: Show) -> None:
        page = show(now(runs=(run("<img src=x onerror=alert(1)>"),)))
        page.until("#runs", "<img src=x")

        assert page.count("img") == 0


class TestScreenshots:
    @pytest.mark.parametrize("width", [1280, 390])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_are_not_blank(self, show: Show, width: int, scheme: str, tmp_path: Path) -> None:
        page = show(*story(150), report=ADVISED, width=width, scheme=scheme)
        page.until("#next", "Prefetch")
        folder = Path(os.environ.get("GPUMON_SCREENSHOTS", tmp_path))
        shot = folder / f"page-{width}-{scheme}.png"
        page.page.screenshot(path=shot, full_page=True)

        assert shot.stat().st_size > 20_000
