"""Specification of turns: an answer holds for as long as its field's period says."""

from __future__ import annotations

from gpumon.core.board.latest_values import holds_for_ns
from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.binding import FieldCalls, NvmlLibrary
from gpumon.sources.nvml.details.turns import Turn, Turns


def test_an_answer_holds_no_longer_than_its_field_is_asked_for(library: NvmlLibrary) -> None:
    now_ns, period_ns = 1_000 * NS_PER_S, 5 * NS_PER_S
    turns = Turns(lambda: now_ns)
    turns.add(Turn("power", lambda _: {"power_watts": 97.0}, FieldCalls(library), period_ns))

    turns.take()

    until_ns = now_ns + holds_for_ns(period_ns)
    assert turns.latest.at(until_ns - 1) == {"power_watts": 97.0}
    assert turns.latest.at(until_ns) == {}
