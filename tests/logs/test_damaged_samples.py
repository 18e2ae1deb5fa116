"""Specification of damage: no lost, doubled, cut or garbled line raises, or makes time up."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.settings.detector import DetectorSettings
from gpumon.errors import UnreadableLogError
from gpumon.pipeline.log_analysis import LogAnalysis
from gpumon.sources.logs.detect import reader_for
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.log_text import LogText
from tests.logs.test_samples import FOLDER, SAMPLES, story_of

SIGNS = string.ascii_letters + string.digits + " |,:-./%#\"'{}[]"


@cache
def lines_of(sample: Path) -> tuple[str, ...]:
    with LogText(str(sample)) as text:
        return tuple(text.lines())


def observed_s(lines: list[str]) -> float | None:
    """Time observed, over all GPUs; ``None``: the log cannot be read, and says so."""
    try:
        reader = reader_for(iter(lines), name="a log", options=LogOptions())
        analysis = LogAnalysis(DetectorSettings())
        analysis.take(reader.samples())
        report = analysis.report("a log", reader.facts())
    except UnreadableLogError:
        return None
    return sum(gpu.totals.observed_ns for gpu in report.gpus) / 1e9


@cache
def undamaged_s(sample: Path) -> float:
    seconds = observed_s(list(lines_of(sample)))
    assert seconds is not None
    return seconds


@dataclass(frozen=True)
class Damage:
    """What happened to one line of a sample.

    Attributes:
        line: From 0.
        sign: Where in the line.
        kind: ``"torn off"``: nothing comes after it.
        new: What stands there when garbled.
    """

    sample: str
    line: int
    sign: int
    kind: str
    new: str

    def done(self) -> list[str]:
        return self.done_to(lines_of(FOLDER / self.sample))

    def done_to(self, whole: Sequence[str]) -> list[str]:
        """The same damage to lines of which some may be gone."""
        lines = list(whole)
        if self.line >= len(lines):
            return lines
        line, start = lines[self.line], lines[self.line][: self.sign]
        if self.kind == "deleted":
            del lines[self.line]
        elif self.kind == "doubled":
            lines.insert(self.line, line)
        elif self.kind == "deleted with its like":
            lines = [one for one in lines if one[:4] != line[:4]]
        elif self.kind == "doubled with its like":
            lines = [again for one in lines for again in [one] * (1 + (one[:9] == line[:9]))]
        elif self.kind == "cut":
            lines[self.line] = start + "\n"
        elif self.kind == "torn off":
            lines[self.line :] = [start] if start else []
        else:
            lines[self.line] = start + self.new + line[self.sign + 1 :]
        return lines


@st.composite
def damages(draw: st.DrawFn) -> Damage:
    return draw(damages_of(draw(st.sampled_from(SAMPLES)), ()))


@st.composite
def damages_of(draw: st.DrawFn, sample: Path, more_kinds: Sequence[str]) -> Damage:
    lines = lines_of(sample)
    at = draw(st.integers(0, len(lines) - 1))
    sign = draw(st.integers(0, max(0, len(lines[at]) - 1)))
    # A log of one line twice is two logs.
    kinds = ["doubled"] * (len(lines) > 1) + ["deleted", "cut", "garbled", "torn off"]
    kinds += more_kinds
    kind = draw(st.sampled_from(kinds))
    return Damage(sample.name, at, sign, kind, draw(st.sampled_from(SIGNS)))


def gpus_of_one_line(sample: Path) -> int:
    """How many GPUs a line of the sample speaks of, or dates: one or all of them."""
    alone = ("dcgmi_dmon", "nvidia_smi_csv", "nvidia_smi_dmon", "nvidia_smi_pmon")
    return 1 if sample.name.startswith(alone) else story_of(sample).gpus


def periods_added(kind: str) -> float:
    """By how many periods of each GPU in it a damaged line may lengthen what was observed.

    A line that is lost adds nothing: others are there already. One that comes twice cannot be
    told from the next where a log has no stamps. One with other signs in it may be of another
    GPU, which is new, or of another moment: before the first row or after the last one it stands
    for all the time up to a hole, and the place it left is none.
    """
    return {"deleted": 0.0, "doubled": 1.0}.get(kind, DetectorSettings().log.hole_periods)


class TestOneDamagedLine:
    @settings(max_examples=100, deadline=None)
    @given(damages())
    def test_never_makes_time_up(self, damage: Damage) -> None:
        sample = FOLDER / damage.sample

        seconds = observed_s(damage.done())

        period_s = max(1.0, story_of(sample).period_s)  # one that no two rows tell is a second
        most_s = periods_added(damage.kind) * period_s * gpus_of_one_line(sample)
        assert seconds is None or seconds <= undamaged_s(sample) + most_s + 0.01


WITH_THEIR_LIKE = ("deleted with its like", "doubled with its like")


class TestSeveralDamages:
    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def test_are_a_report_or_a_sentence(self, data: st.DataObject) -> None:
        sample = data.draw(st.sampled_from(SAMPLES))
        lines: Sequence[str] = lines_of(sample)
        for damage in data.draw(st.lists(damages_of(sample, WITH_THEIR_LIKE), max_size=5)):
            lines = damage.done_to(lines)

        seconds = observed_s(list(lines))  # no traceback

        assert seconds is None or seconds >= 0.0
