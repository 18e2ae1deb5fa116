"""The files of the page: what they weigh, and what the document is without its script."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from gpumon.core.view.palette import DARK, LIGHT
from gpumon.core.view.status import Tone
from gpumon.core.view.view import PARTS, MonitorView
from gpumon.outlets.http.page_files import PAGE_PATHS, page_file
from gpumon.outlets.text.monitor_view import ViewBuilder
from gpumon.pipeline.state_report import report_of
from tests.builders.state import device, monitor_state, run, starved_gpu

WEB = Path(__file__).parents[4] / "gpumon" / "outlets" / "web"
MOST_BYTES = 90_000
HOSTILE = "<img src=x onerror=alert(1)>\"'&\u202e"


def view(**changes: object) -> MonitorView:
    state = monitor_state(**changes)
    return ViewBuilder().view(state, report_of(state), {})


def document(shown: MonitorView | None) -> str:
    return page_file("/", shown)[1].decode()


class Seen(HTMLParser):
    """The text of a document, and its elements."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


class TestTheFiles:
    def test_weigh_no_more_than_ninety_kilobytes(self) -> None:
        served = {path: page_file(path, None)[1] for path in PAGE_PATHS}

        assert sum(map(len, served.values())) <= MOST_BYTES

    def test_are_all_that_are_in_the_folder(self) -> None:
        files = {path.name for path in WEB.iterdir()} - {"index.html"}

        assert files == {path[1:] for path in PAGE_PATHS if (WEB / path[1:]).is_file()}

    def test_import_only_each_other_and_name_no_other_server(self) -> None:
        for path in PAGE_PATHS:
            text = page_file(path, None)[1].decode()

            assert {*re.findall(r'from "(.*?)"', text)} <= PAGE_PATHS
            assert not re.search(r"(?<!xmlns=.)https?://|data:", text)


class TestThePalette:
    def test_has_each_part_and_tone_for_light_and_dark(self) -> None:
        css = page_file("/palette.css", None)[1].decode()
        light, dark = css.split("@media")

        for palette, part_of in ((LIGHT, light), (DARK, dark)):
            colours = palette._asdict()
            for name in PARTS:
                assert f"--part-{name.replace('_', '-')}:{colours[name]};" in part_of
            for tone in Tone:
                assert f"--tone-{tone.value}:{colours[tone.value]};" in part_of

    def test_gives_each_tone_its_own_icon(self) -> None:
        icons = {page_file(f"/favicon-{tone.value}.svg", None) for tone in Tone}

        assert len(icons | {page_file("/favicon-gone.svg", None)}) == len(Tone) + 1
        assert page_file("/favicon.ico", None)[0] == "image/svg+xml"


class TestTheDocument:
    def test_has_the_headline_the_advice_and_each_gpu_without_a_script(self) -> None:
        shown = view()
        seen = " ".join(Seen(document(shown)).texts)

        for text in (shown.headline.line, shown.headline.why, shown.headline.next):
            assert text in seen
        for advice in shown.advice:
            assert advice.heading in seen
            assert advice.text in seen
        for gpu in shown.gpus:
            assert f"GPU {gpu.label} " in seen
            assert f"{gpu.status.shape} {gpu.status.word}" in seen
            assert gpu.line in seen
            assert gpu.first_advice in seen

    def test_says_of_when_it_is_and_that_its_gpus_are_simulated(self) -> None:
        simulated, live = document(view()), document(view(simulated=False))

        assert "as of 22:13:20 UTC" in simulated
        assert 'class="pill">simulated GPU' in simulated
        assert 'class="pill" hidden>simulated GPU' in live
        assert 'class="pill" hidden>recording' in simulated

    def test_waits_for_the_first_sample(self) -> None:
        assert "Waiting for the first sample" in document(None)
        assert "<table><thead><tr><th scope" not in document(None).partition("<template")[0]

    def test_never_reads_a_name_as_markup(self) -> None:
        gpu = starved_gpu(device=device(name=HOSTILE))
        shown = view(gpus=(gpu,), runs=(run(HOSTILE),))
        written = document(shown)

        assert [tag for tag, _ in Seen(written).tags if tag == "img"] == []
        assert "\u202e" not in written
        assert "&lt;img src=x onerror=alert(1)&gt;&quot;&#x27;&amp;" in written

    def test_has_no_style_or_script_of_its_own(self) -> None:
        tags = Seen(document(view())).tags

        assert [attributes for tag, attributes in tags if tag == "script"] == [
            {"type": "module", "src": "/page.js"}
        ]
        assert not [tag for tag, attributes in tags if tag == "style" or "style" in attributes]
        assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]
