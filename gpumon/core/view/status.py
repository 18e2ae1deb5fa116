"""The status of each GPU in one word, shape and tone, and the order of need."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.diagnosis.messages import WORD_OF_VERDICT
from gpumon.core.verdict import Severity, VerdictName

if TYPE_CHECKING:
    from gpumon.core.report.report import GpuReport


class Tone(str, Enum):
    """How urgent something is: the palette has a colour for each."""

    BAD = "bad"
    WARN = "warn"
    GOOD = "good"
    QUIET = "quiet"


class Need(int, Enum):
    """How much a GPU needs attention, the most first."""

    BROKEN = 0
    LOSING = 1
    NOTED = 2
    WELL = 3
    QUIET = 4


class GpuStatus(NamedTuple):
    """The one status of a GPU.

    Attributes:
        key: Its name for programs.
        word: Its name for people.
        shape: One character, so that no status depends on colour alone.
    """

    key: str
    word: str
    shape: str
    tone: Tone
    need: Need


_OF_VERDICT: Final = {
    VerdictName.HANGING: ("■", Tone.BAD, Need.BROKEN),
    VerdictName.STARVED: ("▲", Tone.BAD, Need.LOSING),
    VerdictName.STALLED: ("◆", Tone.WARN, Need.LOSING),
    VerdictName.STARVATION_SUSPECTED: ("△", Tone.WARN, Need.LOSING),
    VerdictName.PARTIAL: ("◐", Tone.WARN, Need.LOSING),
    VerdictName.HEALTHY: ("●", Tone.GOOD, Need.WELL),
    VerdictName.NOT_IN_USE: ("○", Tone.QUIET, Need.QUIET),
    VerdictName.TOO_SHORT_TO_JUDGE: ("◌", Tone.QUIET, Need.QUIET),
    VerdictName.TOO_FEW_SAMPLES: ("◌", Tone.QUIET, Need.QUIET),
}
_LOST: Final = GpuStatus("lost", "lost", "✖", Tone.BAD, Need.BROKEN)
_GONE: Final = GpuStatus("gone", "gone", "·", Tone.QUIET, Need.QUIET)
_PARTITIONED: Final = GpuStatus("partitioned", "MIG on", "◇", Tone.QUIET, Need.QUIET)
_NO_DATA: Final = GpuStatus("no_data", "no data", "◌", Tone.QUIET, Need.QUIET)
_SUSPENDED: Final = GpuStatus("suspended", "suspended", "‖", Tone.WARN, Need.NOTED)
_HELD: Final = GpuStatus("held", "held idle", "▣", Tone.WARN, Need.NOTED)


def status_of(gpu: GpuReport) -> GpuStatus:
    """The status of a GPU now; in a report without a present, over all its time.

    The worst of its troubles comes first, then what it does. A moderate trouble replaces only a
    status that calls for nothing.
    """
    grave = [one for one in gpu.troubles if one.severity is Severity.HIGH]
    if gpu.is_lost:
        return _LOST
    if grave:
        return GpuStatus("trouble", grave[0].short_name, "✖", Tone.BAD, Need.BROKEN)
    if not gpu.listed:
        return _GONE
    if not gpu.is_diagnosable:
        return _PARTITIONED if gpu.is_partitioned else _NO_DATA
    status = _without_trouble(gpu)
    lesser = [one for one in gpu.troubles if one.severity is Severity.MODERATE]
    if lesser and status.need >= Need.WELL:
        return GpuStatus("trouble", lesser[0].short_name, "!", Tone.WARN, Need.NOTED)
    return status


def _without_trouble(gpu: GpuReport) -> GpuStatus:
    if gpu.is_suspended:
        return _SUSPENDED
    name = gpu.verdict.name if gpu.now is None else gpu.now.name
    if is_held(gpu, name):
        return _HELD
    if name is VerdictName.NOT_IN_USE and gpu.is_hardly_observed:
        name = VerdictName.TOO_SHORT_TO_JUDGE
    shape, tone, need = _OF_VERDICT[name]
    return GpuStatus(name.value, word_of(gpu, name), shape, tone, need)


def word_of(gpu: GpuReport, name: VerdictName) -> str:
    """The word for this verdict on a GPU, in every outlet."""
    if is_held(gpu, name):
        return _HELD.word
    if name is VerdictName.NOT_IN_USE and gpu.is_hardly_observed:
        name = VerdictName.TOO_SHORT_TO_JUDGE
    if name is gpu.verdict.name is VerdictName.NOT_IN_USE and gpu.totals.in_use_ns:
        return "hardly used"
    return WORD_OF_VERDICT[name]


def is_held(gpu: GpuReport, name: VerdictName) -> bool:
    """Whether a process holds a GPU with this verdict, and nothing runs on it."""
    is_unused = name in (VerdictName.NOT_IN_USE, VerdictName.TOO_SHORT_TO_JUDGE)
    return gpu.held is not None and is_unused


_BETTER_FOR_NS: Final = 10 * NS_PER_S
"""ours: how long a GPU must do better before it gives up its place, which people have read."""
_CLEARLY_MORE: Final = 1.25
"""ours: a GPU that loses so much more than the one before it overtakes it."""


class Standing(NamedTuple):
    """What decides on the place of a GPU.

    Attributes:
        family: The UUID of its board: a GPU and its MIG instances stay together.
        lost_ns: Time that it lost lately.
    """

    key: str
    family: str
    need: Need
    lost_ns: int


class NeedOrder:
    """Orders the GPUs of successive ticks: the worst first, and no place changes at random.

    Worse counts at once, better once it has lasted: a verdict at its threshold changes often.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[Need, int | None]] = {}  # and since when it has done better
        self._before: list[str] = []  # families, in their last order

    def places(self, gpus: Sequence[Standing], now_ns: int) -> list[int]:
        """The positions in ``gpus`` in the order of need."""
        self._held = {gpu.key: self._hold(gpu, now_ns) for gpu in gpus}
        families: dict[str, list[int]] = {}
        for at, gpu in enumerate(gpus):
            families.setdefault(gpu.family, []).append(at)
        stood = {key: place for place, key in enumerate(self._before)}
        ordered: list[_Family] = []
        for key, members in sorted(
            families.items(), key=lambda one: (stood.get(one[0], -1), one[1][0])
        ):
            family = _Family(
                key,
                members,
                min(self._held[gpus[at].key][0] for at in members),
                max(gpus[at].lost_ns for at in members),
                key in stood,
            )
            place = len(ordered)
            while place and family.overtakes(ordered[place - 1]):
                place -= 1
            ordered.insert(place, family)
        self._before = [family.key for family in ordered]
        return [at for family in ordered for at in family.members]

    def _hold(self, gpu: Standing, now_ns: int) -> tuple[Need, int | None]:
        held, better_ns = self._held.get(gpu.key, (gpu.need, None))
        if gpu.need <= held:
            return gpu.need, None
        if better_ns is None:
            return held, now_ns
        return (gpu.need, None) if now_ns - better_ns >= _BETTER_FOR_NS else (held, better_ns)


class _Family(NamedTuple):
    key: str
    members: list[int]
    need: Need
    lost_ns: int
    had_a_place: bool

    def overtakes(self, earlier: _Family) -> bool:
        if self.need is not earlier.need:
            return self.need < earlier.need
        if self.need is not Need.LOSING:
            return self.members[0] < earlier.members[0]
        more = _CLEARLY_MORE if self.had_a_place and earlier.had_a_place else 1.0
        return self.lost_ns > more * earlier.lost_ns
