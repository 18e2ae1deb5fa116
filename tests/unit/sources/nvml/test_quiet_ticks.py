"""A tick that read nothing changes nothing: all outlets show what they would show anyway."""

from __future__ import annotations

from gpumon import __version__
from gpumon.core.codecs.report_codec import encode_report_with_lanes
from gpumon.core.codecs.state_codec import StateEncoder, state_document
from gpumon.core.sample import Frame
from gpumon.core.state import MonitorState
from gpumon.outlets.http.page_history import PageHistory
from gpumon.outlets.metrics.prometheus import MetricsExporter
from gpumon.pipeline.report_builder import Reports
from gpumon.sources.gpu_source import ReadNow
from tests.builders.driver import DriverStory, Fake
from tests.builders.monitor import monitor, reading

DEPTH, WINDOW_S = 71, 0.2


class Outlets:
    """A monitor and what shows its states."""

    def __init__(self, story: DriverStory) -> None:
        self.monitor, self.reports, self.history = monitor(), Reports(), PageHistory()
        self.exporter = MetricsExporter(clock=story.clock, version=__version__)
        self.encoder = StateEncoder()
        self.state: MonitorState | None = None

    def tick(self, story: DriverStory, *frames: Frame) -> MonitorState:
        state = self.monitor.ingest(reading(story.fake.now_ns(), *frames))
        self.reports.follow(state)
        self.history.append(state)
        self.exporter.publish(state)
        self.encoder.encode(state, pid=1, address=None)
        self.state = state
        return state

    def shown(self, state: MonitorState) -> dict[str, object]:
        """What does not show when the newest tick was."""
        reports = [
            self.reports.report_with_lanes(since_s=since_s) for since_s in (None, 30.0, 120.0)
        ]
        return {
            "state": state_document(state, pid=1, address=None),
            "metrics": self.exporter.render().body.decode(),
            "reports": [encode_report_with_lanes(one) for one in reports if one is not None],
            "history": self.history.encode(),
        }


def test_show_what_ticks_show_that_look_at_everything(fake: Fake) -> None:
    for slot in (0, 1):
        fake.gpu(slot).ring_depth = DEPTH
        fake.wave(slot, period_s=7.0 + 6 * slot, busy_ratio=0.5, window_s=WINDOW_S)
    story = fake.story(off=["events"])
    story.reads = ReadNow.NOTHING
    quick, thorough, quiet = Outlets(story), Outlets(story), 0
    for second in range(1, 241):
        if second == 60:
            fake.run(0, 4000)
        if second == 120:
            fake.wave(1, period_s=9.0, busy_ratio=0.0, window_s=WINDOW_S)
        if second in (150, 190):
            fake.lose(1) if second == 150 else fake.find(1)
        story.tick()
        frame = story.frame
        states = quick.tick(story, frame), thorough.tick(story, frame._replace(is_quiet=False))
        quiet += frame.is_quiet
        assert states[0].gpus == states[1].gpus or frame.is_quiet
        if not frame.is_quiet:
            shown = quick.shown(states[0]), thorough.shown(states[1])
            for name, value in shown[0].items():
                assert value == shown[1][name], (second, name)
    assert quiet > 100
