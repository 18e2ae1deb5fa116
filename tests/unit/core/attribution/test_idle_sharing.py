"""Specification of sharing: the idle time of one window by what the host was doing."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.attribution.idle_sharing import (
    WindowParts,
    hide_input_wait,
    merge_parts,
    share_idle,
)
from gpumon.core.phase import IdleCause

INPUT_WAIT, CALLBACKS, WITHIN_STEP, VALIDATION = (
    IdleCause.INPUT_WAIT, IdleCause.CALLBACKS, IdleCause.WITHIN_STEP, IdleCause.VALIDATION
)  # fmt: skip


Case = tuple[int, WindowParts, dict[IdleCause, int]]
"""Idle time of a window, what the host did in it, and the idle time by cause."""

GOES: dict[str, Case] = {
    "first to the phases in which the host kept the device waiting": (
        200, WindowParts(waits={INPUT_WAIT: 300}, step_ns=700), {INPUT_WAIT: 200},
    ),
    "to several of them in proportion to their length": (
        200, WindowParts(waits={INPUT_WAIT: 300, CALLBACKS: 100}, step_ns=600),
        {INPUT_WAIT: 150, CALLBACKS: 50},
    ),
    "never to a phase beyond its length": (
        500, WindowParts(waits={INPUT_WAIT: 300}, step_ns=700),
        {INPUT_WAIT: 300, WITHIN_STEP: 200},
    ),
    "then to validation up to its length": (
        500, WindowParts(waits={INPUT_WAIT: 100}, validation_ns=200, step_ns=700),
        {INPUT_WAIT: 100, VALIDATION: 200, WITHIN_STEP: 200},
    ),
    "to a wait beside the step only as far as the device was idle": (
        200, WindowParts(gross_input_wait_ns=900, step_ns=100), {INPUT_WAIT: 200},
    ),
    "to such a wait after all that the device felt for certain": (
        200, WindowParts(waits={CALLBACKS: 100}, gross_input_wait_ns=800, step_ns=100),
        {CALLBACKS: 100, INPUT_WAIT: 100},
    ),
    "to no cause where no phase was": (
        1000, WindowParts(waits={INPUT_WAIT: 400}, outside_ns=600), {INPUT_WAIT: 400},
    ),
}  # fmt: skip


class TestIdleTime:
    @pytest.mark.parametrize("where", GOES)
    def test_goes(self, where: str) -> None:
        idle_ns, parts, shared_ns = GOES[where]

        assert share_idle(idle_ns, parts).idle_ns == shared_ns

    def test_goes_to_imbalance_as_far_as_a_peer_was_busier(self) -> None:
        parts = WindowParts(waits={INPUT_WAIT: 100}, step_ns=900)

        shared = share_idle(500, parts, peer_excess_ns=250).idle_ns

        assert shared == {INPUT_WAIT: 100, IdleCause.IMBALANCE: 250, WITHIN_STEP: 150}


class TestResolved:
    def test_is_a_completely_idle_window_within_one_phase(self) -> None:
        parts = WindowParts(waits={INPUT_WAIT: 1000})

        assert share_idle(990, parts, wholly_idle=True).resolved_ns == 990
        assert share_idle(400, parts).resolved_ns == 0

    @pytest.mark.parametrize(
        "parts",
        [
            WindowParts(gross_input_wait_ns=900, step_ns=100),
            WindowParts(waits={INPUT_WAIT: 900}, step_ns=100),
            WindowParts(waits={IdleCause.UNKNOWN: 1000}),
        ],
        ids=["wait beside the step", "second phase", "phase that says nothing"],
    )
    def test_is_not_a_window_with(self, parts: WindowParts) -> None:
        assert share_idle(1000, parts, wholly_idle=True).resolved_ns == 0


class TestAHiddenWait:
    def test_is_the_part_in_which_the_device_worked(self) -> None:
        exposed = WindowParts(waits={INPUT_WAIT: 300}, step_ns=400, hidden_input_wait_ns=300)
        gross = WindowParts(gross_input_wait_ns=900, step_ns=100)

        assert share_idle(100, exposed).hidden_input_wait_ns == 500
        assert share_idle(200, gross).hidden_input_wait_ns == 700

    def test_counts_for_no_first_batch_or_validation_if_the_device_never_waited(self) -> None:
        hidden = WindowParts(
            gross_input_wait_ns=900, step_ns=100,
            first_input_wait_ns=300, validation_input_wait_ns=300,
        )  # fmt: skip

        shared = share_idle(0, hidden)

        assert (shared.first_input_wait_ns, shared.validation_input_wait_ns) == (0, 0)


lengths = st.integers(0, 10**9)


class TestLaws:
    @given(
        st.builds(
            WindowParts,
            waits=st.dictionaries(st.sampled_from(list(IdleCause)), lengths),
            validation_ns=lengths, step_ns=lengths, silent_ns=lengths, outside_ns=lengths,
        ),
        lengths, st.floats(0.0, 1.0),
    )  # fmt: skip
    def test_shares_and_time_in_no_phase_add_up_to_the_idle_time(
        self, parts: WindowParts, peer_ns: int, idle_share: float
    ) -> None:
        reported_ns = sum(parts.waits.values()) + parts.validation_ns + parts.step_ns
        idle_ns = round((reported_ns + parts.uncovered_ns) * idle_share)

        shared = share_idle(idle_ns, parts, peer_excess_ns=peer_ns)

        total_ns = sum(shared.idle_ns.values())
        assert idle_ns - parts.uncovered_ns <= total_ns <= idle_ns
        assert all(amount_ns > 0 for amount_ns in shared.idle_ns.values())
        if not parts.uncovered_ns:
            assert total_ns == idle_ns
        for cause in (INPUT_WAIT, CALLBACKS):
            assert shared.idle_ns.get(cause, 0) <= parts.waits.get(cause, 0)


class TestAWaitWhileAnotherGpuOfTheRunWorked:
    @given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 500), st.integers(-9, 1500))
    def test_keeps_the_length_of_the_window(
        self, wait: int, gross: int, step: int, hidden: int
    ) -> None:
        parts = WindowParts(waits={INPUT_WAIT: wait}, gross_input_wait_ns=gross, step_ns=step)
        hide_input_wait(parts, hidden)

        visible = parts.waits[INPUT_WAIT], parts.gross_input_wait_ns, parts.step_ns
        assert sum(visible) == wait + gross + step
        assert min(*visible, parts.hidden_input_wait_ns) >= 0


class TestTheIdleTimeOfTwoRunsOnOneGpu:
    @pytest.mark.parametrize("name", [one.name for one in fields(WindowParts)][1:-1])
    def test_is_split_between_them_and_no_more_than_there_was(self, name: str) -> None:
        one, other = WindowParts(), WindowParts()
        setattr(one, name, 400)
        setattr(other, name, 400)

        merged = merge_parts([one, other], 1_000)

        assert merged == one

    def test_is_split_by_the_time_of_each_run(self) -> None:
        long = WindowParts(waits={INPUT_WAIT: 500}, step_ns=300, outside_ns=200)
        short = WindowParts(waits={INPUT_WAIT: 100, CALLBACKS: 100}, outside_ns=800)

        merged = merge_parts([long, short], 1_000)

        assert merged.waits == {INPUT_WAIT: 480, CALLBACKS: 80}
        assert (merged.step_ns, merged.outside_ns) == (240, 200)

    @given(st.lists(st.tuples(lengths, lengths, lengths, lengths), max_size=4))
    def test_fills_the_window_and_no_more(self, runs: list[tuple[int, int, int, int]]) -> None:
        window_ns = 5 * 10**9
        parts = [
            WindowParts(
                waits={INPUT_WAIT: wait, CALLBACKS: callback},
                step_ns=step,
                validation_ns=validation,
                outside_ns=window_ns - (wait + callback + step + validation),
            )
            for wait, callback, step, validation in runs
        ]

        merged = merge_parts(parts, window_ns)

        total_ns = sum(merged.waits.values()) + merged.step_ns + merged.validation_ns
        longest_ns = max((window_ns - part.outside_ns for part in parts), default=0)
        assert merged.outside_ns == window_ns - longest_ns
        assert longest_ns - 5 * len(parts) <= total_ns <= longest_ns
