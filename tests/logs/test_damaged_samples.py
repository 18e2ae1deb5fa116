"""A line that is lost, doubled, cut or garbled never adds observed time."""

from __future__ import annotations

import string
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.settings.detector import DetectorSettings
from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_text import LogText
from tests.builders.logs import analysed
from tests.logs.test_samples import SAMPLES, story_of

SIGNS = string.ascii_letters + string.digits + " |,:-./%#\"'{}[]"


@cache
def lines_of(sample: Path) -> tuple[str, ...]:
    with LogText(str(sample)) as text:
        return tuple(text.lines())


def observed_s(lines: tuple[str, ...]) -> float | None:
    """Time observed, over all GPUs; ``None``: the log is refused."""
    try:
        report = analysed("".join(lines))
    except UnreadableLogError:
        return None
    return sum(gpu.totals.observed_ns for gpu in report.gpus) / 1e9


@cache
def undamaged_s(sample: Path) -> float:
    seconds = observed_s(lines_of(sample))
    assert seconds is not None
    return seconds


@dataclass(frozen=True)
class Damage:
    """Damage to one line, from 0, at one character; ``new`` replaces it if it is garbled."""

    sample: Path
    line: int
    sign: int
    kind: str
    new: str

    def done(self) -> tuple[str, ...]:
        lines = lines_of(self.sample)
        before, line, after = lines[: self.line], lines[self.line], lines[self.line + 1 :]
        start = line[: self.sign]
        return {
            "deleted": (*before, *after),
            "doubled": (*before, line, line, *after),
            "cut": (*before, start + "\n", *after),
            "torn off": (*before, start),
            "garbled": (*before, start + self.new + line[self.sign + 1 :], *after),
        }[self.kind]


@st.composite
def damages(draw: st.DrawFn) -> Damage:
    sample = draw(st.sampled_from(SAMPLES))
    lines = lines_of(sample)
    at = draw(st.integers(0, len(lines) - 1))
    sign = draw(st.integers(0, max(0, len(lines[at]) - 1)))
    # A log of one line, twice, is two logs.
    kinds = ["doubled"] * (len(lines) > 1) + ["deleted", "cut", "garbled", "torn off"]
    return Damage(sample, at, sign, draw(st.sampled_from(kinds)), draw(st.sampled_from(SIGNS)))


def gpus_of_one_line(sample: Path) -> int:
    """The number of GPUs that a line concerns: one or all."""
    alone = ("dcgmi_dmon", "nvidia_smi_csv", "nvidia_smi_dmon")
    return 1 if sample.name.startswith(alone) else story_of(sample).gpus


def periods_added(kind: str) -> float:
    """The number of periods that a damaged line may add to the observed time of each of its GPUs.

    A lost line adds nothing. A doubled line is a row more if the log has no stamps. A garbled line
    may be of a new GPU, or of a time before the first row or after the last one, and then stands
    for all the time up to a hole.
    """
    return {"deleted": 0.0, "doubled": 1.0}.get(kind, DetectorSettings().log.hole_periods)


class TestOneDamagedLine:
    @settings(max_examples=100, deadline=None)
    @given(damages())
    def test_never_adds_time(self, damage: Damage) -> None:
        seconds = observed_s(damage.done())

        period_s = max(1.0, story_of(damage.sample).period_s)  # a second if no two rows show it
        most_s = periods_added(damage.kind) * period_s * gpus_of_one_line(damage.sample)
        assert seconds is None or seconds <= undamaged_s(damage.sample) + most_s + 0.01
