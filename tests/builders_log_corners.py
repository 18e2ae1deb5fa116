"""Corners of other people's logs: a few lines, and what is heard in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.log_sample import LogOptions
from tests.builders_logs import NO_OPTIONS, read_log, rows, seconds_of

CSV = (
    "timestamp, index, utilization.gpu [%]",
    "2026/01/24 21:52:14.120, 0, 94 %",
    "2026/01/24 21:52:15.120, 0, 0 %",
    "2026/01/24 21:52:16.120, 0, 97 %",
)
DMON = ("# gpu     sm    mem", "# Idx      %      %", "    0     94     40", "    0      0      0")
"""What two tools log of a GPU, for tests of what stands around a log."""


@dataclass(frozen=True)
class Corner:
    """A log of a few lines, what its user says of it, and what has to be heard in it."""

    log: str
    options: LogOptions
    told: Mapping[str, object]

    def heard(self) -> dict[str, object]:
        """What is heard in it, in the words of what it has to tell."""
        try:
            samples, facts = read_log(self.log, self.options)
        except (UnreadableLogError, UsageError) as refusal:
            said = str(refusal)
            pattern = str(self.told.get("refused"))
            return {"refused": pattern if re.search(pattern, said) else said}
        shares, stamps_ns = [one.busy_ratio for one in samples], [one.stamp_ns for one in samples]
        used = [one.memory_used_bytes for one in samples]
        heard: dict[str, object] = {
            "busy": [share if share is None else round(100 * share, 9) for share in shares],
            "of": [one.gpu for one in samples],
            "at_s": seconds_of(stamps_ns),
            "used_mib": [memory if memory is None else memory / (1 << 20) for memory in used],
            "began": facts.clock.iso(stamps_ns[0]),
            "is_wall": facts.clock.is_wall,
            "gpus": facts.gpus,
            "gpu_count": len(facts.gpus),
            "period_ns": facts.period_ns,
            "skipped": facts.skipped_lines,
            "broken_off": facts.broken_off,
            "notes": facts.notes,
            "noted": self._noted(" ".join(facts.notes)),
        }
        return {word: heard[word] for word in self.told}

    def _noted(self, notes: str) -> object:
        part = str(self.told.get("noted"))
        return part if part in notes else notes


def corner(
    *lines: str, options: LogOptions = NO_OPTIONS, is_cut: bool = False, **told: object
) -> Corner:
    """A corner of these lines, of which every one is of use unless ``skipped`` tells others.

    Args:
        lines: Of the log.
        options: What its user says of it.
        is_cut: Whether the last line has no end.
        told: What is asked, and what has to be heard: ``busy`` percent of each sample, ``of`` which
            GPU it is, ``at_s`` seconds from the first one, ``began`` the moment of that,
            ``used_mib`` memory in use; ``noted`` a part of the notes; ``refused`` a pattern of the
            sentence that it is refused with; and so on, in the words of ``Corner.heard``.
    """
    asked = told if "refused" in told else {"skipped": 0, **told}
    log = rows(*(line.removesuffix("\n") for line in lines))
    return Corner(log.removesuffix("\n") if is_cut else log, options, asked)


def heard(corners: Mapping[str, Corner]) -> Callable[..., None]:
    """A test, of a class, that each corner is heard as it is told; by its name in the table."""

    @pytest.mark.parametrize("corner", corners.values(), ids=corners.keys())
    def test(_: object, corner: Corner) -> None:
        assert corner.heard() == corner.told

    return test
