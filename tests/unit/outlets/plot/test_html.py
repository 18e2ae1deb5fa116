"""Specification of the page: everything in it, and nothing from anywhere else."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

from gpumon.core.device.troubles import error_of
from gpumon.core.diagnosis.messages import WORD_OF_CAUSE
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.lanes import Lanes, RunLane
from gpumon.core.report.report import Report
from gpumon.core.view.palette import DARK, LIGHT
from gpumon.outlets.plot.html import html_page
from gpumon.outlets.text.headline import verdict_line, why_line
from gpumon.outlets.text.report_lines import next_line
from tests.builders.plot import Logged, logged
from tests.builders.report import gpu, report, run
from tests.builders.time import every, rhythm, s
from tests.unit.core.device.test_troubles import reported

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x00"
SHOWN = logged(
    every(1.0, [0.0] * 20 + rhythm(3, 2, 30)),
    every(1.0, [0.97] * 170),
    names=[HOSTILE, "NVIDIA A40"],
    source=f"/logs/{HOSTILE}.csv",
    notes=(f"A note {HOSTILE}",),
)


class Page(HTMLParser):
    """What a browser would make of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def text_of(shown: Logged) -> str:
    return Page(html_page(*shown).decode()).text


TEXT = html_page(*SHOWN).decode()
PAGE = Page(TEXT)


class TestThePage:
    def test_says_what_the_report_says_first(self) -> None:
        report = SHOWN.report
        for line in (verdict_line(report), why_line(report), next_line(report)):
            assert line[1:] in PAGE.text

    def test_has_the_seconds_of_each_gpu(self) -> None:
        unknown, unused = WORD_OF_CAUSE[IdleCause.UNKNOWN], WORD_OF_CAUSE[IdleCause.NOT_IN_USE]
        assert f"<th>busy</th><th>idle, {unknown}</th><th>idle, {unused}</th>" in TEXT
        figures = TEXT.replace("\N{NO-BREAK SPACE}", " ")
        assert "<td>2.83 min</td><td>1.50 min (53 %)</td><td>0.97 min (34 %)</td>" in figures
        assert "<td>0.37 min (13 %)</td>" in figures

    def test_has_the_lanes_for_light_paper_and_for_dark_and_in_words(self) -> None:
        (dark,), (light,) = ([value for name, value in PAGE.attributes if name == which]
                             for which in ("srcset", "src"))  # fmt: skip
        kind = "data:image/svg+xml;base64,"
        drawn = [base64.b64decode(url.removeprefix(kind)) for url in (light, dark)]

        assert [LIGHT.paper.encode() in svg for svg in drawn] == [True, False]
        assert [DARK.paper.encode() in svg for svg in drawn] == [False, True]
        assert ("media", "screen and (prefers-color-scheme: dark)") in PAGE.attributes
        assert "busy 97 %" in dict(PAGE.attributes)["alt"]

    def test_runs_nothing_and_asks_for_nothing(self) -> None:
        assert not {"script", "link", "iframe", "object", "base", "form"} & set(PAGE.tags)
        names = {name for name, _ in PAGE.attributes}
        assert not {name for name in names if name.startswith("on")}
        assert not names & {"href", "style", "action", "xlink:href"}
        assert all(value.startswith("data:") for name, value in PAGE.attributes
                   if name in ("src", "srcset"))  # fmt: skip
        assert not re.search(r"https?://", TEXT)
        assert "@import" not in TEXT

    def test_has_a_policy_that_allows_its_own_style_alone(self) -> None:
        (style,) = re.findall(r"<style>(.*?)</style>", TEXT, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

        (policy,) = (value for name, value in PAGE.attributes if value.startswith("default-src"))
        assert policy == (
            f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
            "form-action 'none'"
        )


WAIT = IdleCause.INPUT_WAIT
WAITED = report(gpu(30, {WAIT: 30}), runs=(run(wall_s=60),))


def page_of(one: Report, lanes: Lanes | None = None) -> Page:
    return Page(html_page(one, lanes).decode())


class TestThePageOfAGpuThatIsLost:
    def test_has_the_word_in_table_and_picture_and_the_remedy_once_each(self) -> None:
        shown = logged(every(1.0, [0.97] * 170), every(1.0, [0.97] * 90))
        gone = replace(
            shown.report.gpus[1],
            error="the GPU is lost (NVML 15): reboot",
            reported_troubles=reported((79, 1)),
        )
        one = replace(
            shown.report,
            gpus=(shown.report.gpus[0], gone),
            notes=(f"GPU 1: {error_of(gone.troubles)}", "Else."),
        )

        text = unescape(html_page(one, shown.lanes).decode())

        assert re.findall("<td>(healthy|lost)</td>", text) == ["healthy", "lost"]
        assert "GPU 1: lost, busy 97 %." in text
        remedies = re.findall(r"What to do: (.*?)\.</li>", text)
        assert remedies == [gone.troubles[1].advice] * 2
        assert "reboot" not in text.partition("<h2>Notes")[2]


class TestThePageOfATraining:
    def test_says_what_held_the_input_up_with_shares(self) -> None:
        reasons = {"gil_bound": s(6), "cpu_bound": s(22.5), "unknown": s(1.5)}
        waiting = gpu(30, {WAIT: 30})
        totals = waiting.totals._replace(input_wait_by_reason_ns=reasons)

        text = page_of(report(replace(waiting, totals=totals))).text

        shares = re.findall(
            r"[\d.]+ s for ([\w' ]+) \((\d+).0? ?%\)", text.partition("Why input")[2]
        )
        assert shares == [
            ("preprocessing", "75"), ("the GIL", "20"), ("reasons unknown", "5")
        ]  # fmt: skip

    def test_leaves_out_causes_that_are_next_to_nothing(self) -> None:
        text = page_of(report(gpu(30, {WAIT: 30, IdleCause.CHECKPOINT: 0.001}))).text

        assert WORD_OF_CAUSE[WAIT] in text
        assert WORD_OF_CAUSE[IdleCause.CHECKPOINT] not in text

    def test_is_whole_without_a_gpu_and_without_anything(self) -> None:
        lane = RunLane("train", 4711, s(7), s(9), s(1), {TrainingPhase.TRAIN_STEP: (s(1), s(1))})
        only_run = page_of(report(runs=(run(),)), Lanes((), (lane,)))
        nothing = page_of(report(), Lanes(()))

        assert "img" in only_run.tags
        assert "table" not in only_run.tags
        assert "img" not in nothing.tags
