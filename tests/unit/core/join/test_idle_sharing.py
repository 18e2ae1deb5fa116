"""Specification of sharing: idle time of one window, split between what the host was doing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.join.idle_sharing import WindowParts, hide_input_wait, merge_parts, share_idle
from gpumon.core.phase import IdleCause

INPUT_WAIT, CALLBACKS, WITHIN_STEP, VALIDATION, IMBALANCE = (
    IdleCause.INPUT_WAIT,
    IdleCause.CALLBACKS,
    IdleCause.WITHIN_STEP,
    IdleCause.VALIDATION,
    IdleCause.IMBALANCE,
)


class TestIdleTimeGoes:
    def test_first_to_the_phases_in_which_the_host_kept_the_device_waiting(self) -> None:
        parts = WindowParts(waits={INPUT_WAIT: 300}, step_ns=700)

        assert share_idle(200, parts).idle_ns == {INPUT_WAIT: 200}

    def test_to_several_of_them_in_proportion_to_their_length(self) -> None:
        parts = WindowParts(waits={INPUT_WAIT: 300, CALLBACKS: 100}, step_ns=600)

        assert share_idle(200, parts).idle_ns == {INPUT_WAIT: 150, CALLBACKS: 50}

    def test_never_to_a_phase_beyond_its_length(self) -> None:
        parts = WindowParts(waits={INPUT_WAIT: 300}, step_ns=700)

        assert share_idle(500, parts).idle_ns == {INPUT_WAIT: 300, WITHIN_STEP: 200}

    def test_then_to_validation_up_to_its_length(self) -> None:
        parts = WindowParts(waits={INPUT_WAIT: 100}, validation_ns=200, step_ns=700)

        shared = share_idle(500, parts).idle_ns

        assert shared == {INPUT_WAIT: 100, VALIDATION: 200, WITHIN_STEP: 200}

    def test_then_to_imbalance_as_far_as_a_peer_was_busier(self) -> None:
        parts = WindowParts(waits={INPUT_WAIT: 100}, step_ns=900)

        shared = share_idle(500, parts, peer_excess_ns=250).idle_ns

        assert shared == {INPUT_WAIT: 100, IMBALANCE: 250, WITHIN_STEP: 150}

    def test_to_a_wait_beside_the_step_only_as_far_as_the_device_was_idle(self) -> None:
        parts = WindowParts(gross_input_wait_ns=900, step_ns=100)

        assert share_idle(200, parts).idle_ns == {INPUT_WAIT: 200}
        assert share_idle(0, parts).idle_ns == {}
        assert share_idle(200, parts).hidden_input_wait_ns == 700

    def test_to_such_a_wait_after_all_that_the_device_felt_for_certain(self) -> None:
        parts = WindowParts(waits={CALLBACKS: 100}, gross_input_wait_ns=800, step_ns=100)

        assert share_idle(200, parts).idle_ns == {CALLBACKS: 100, INPUT_WAIT: 100}

    def test_to_no_such_wait_beyond_its_length(self) -> None:
        parts = WindowParts(gross_input_wait_ns=300, step_ns=700)

        assert share_idle(500, parts).idle_ns == {INPUT_WAIT: 300, WITHIN_STEP: 200}

    def test_to_nobody_where_no_phase_was(self) -> None:
        parts = WindowParts(waits={INPUT_WAIT: 400}, outside_ns=600)

        assert share_idle(1000, parts).idle_ns == {INPUT_WAIT: 400}


class TestResolved:
    def test_is_no_window_with_a_wait_beside_the_step(self) -> None:
        parts = WindowParts(gross_input_wait_ns=900, step_ns=100)

        assert share_idle(1000, parts, wholly_idle=True).resolved_ns == 0

    def test_is_a_wholly_idle_window_wholly_in_one_phase(self) -> None:
        parts = WindowParts(waits={INPUT_WAIT: 1000})

        assert share_idle(990, parts, wholly_idle=True).resolved_ns == 990

    def test_is_not_a_window_with_two_phases(self) -> None:
        parts = WindowParts(waits={INPUT_WAIT: 900}, step_ns=100)

        assert share_idle(1000, parts, wholly_idle=True).resolved_ns == 0

    def test_is_not_a_window_that_was_partly_busy(self) -> None:
        assert share_idle(400, WindowParts(waits={INPUT_WAIT: 1000})).resolved_ns == 0

    def test_is_not_a_phase_that_says_nothing(self) -> None:
        parts = WindowParts(waits={IdleCause.UNKNOWN: 1000})

        assert share_idle(1000, parts, wholly_idle=True).resolved_ns == 0


class TestAHiddenWait:
    def test_is_what_the_device_did_not_feel(self) -> None:
        parts = WindowParts(waits={INPUT_WAIT: 300}, step_ns=400, hidden_input_wait_ns=300)

        assert share_idle(100, parts).hidden_input_wait_ns == 500

    def test_is_of_no_first_batch_and_no_validation_where_none_of_it_was_felt(self) -> None:
        hidden = WindowParts(
            gross_input_wait_ns=900,
            step_ns=100,
            first_input_wait_ns=300,
            validation_input_wait_ns=300,
        )

        shared = share_idle(0, hidden)

        assert (shared.first_input_wait_ns, shared.validation_input_wait_ns) == (0, 0)


lengths = st.integers(0, 10**9)


class TestLaws:
    @given(
        st.dictionaries(st.sampled_from(list(IdleCause)), lengths),
        lengths, lengths, lengths, lengths, lengths, st.floats(0.0, 1.0),
    )  # fmt: skip
    def test_what_is_shared_and_what_fell_into_no_phase_is_the_whole(
        self,
        waits: dict[IdleCause, int],
        validation_ns: int,
        step_ns: int,
        silent_ns: int,
        outside_ns: int,
        peer_ns: int,
        idle_share: float,
    ) -> None:
        parts = WindowParts(
            waits=waits,
            validation_ns=validation_ns,
            step_ns=step_ns,
            silent_ns=silent_ns,
            outside_ns=outside_ns,
        )
        uncovered_ns = silent_ns + outside_ns
        window_ns = sum(waits.values()) + validation_ns + step_ns + uncovered_ns
        idle_ns = round(window_ns * idle_share)

        shared = share_idle(idle_ns, parts, peer_excess_ns=peer_ns)

        total_ns = sum(shared.idle_ns.values())
        assert idle_ns - uncovered_ns <= total_ns <= idle_ns
        assert all(amount_ns > 0 for amount_ns in shared.idle_ns.values())
        if not uncovered_ns:
            assert total_ns == idle_ns
        for cause in (INPUT_WAIT, CALLBACKS):
            assert shared.idle_ns.get(cause, 0) <= waits.get(cause, 0)


class TestAWaitForInputWhileAnotherGpuOfTheRunHadWork:
    def test_is_hidden_and_the_rest_stays_exposed(self) -> None:
        parts = WindowParts(waits={INPUT_WAIT: 400, CALLBACKS: 100}, step_ns=500)
        hide_input_wait(parts, 300)

        assert parts.waits == {INPUT_WAIT: 100, CALLBACKS: 100}
        assert (parts.step_ns, parts.hidden_input_wait_ns) == (800, 300)

    def test_inside_the_step_is_hidden_first(self) -> None:
        parts = WindowParts(waits={INPUT_WAIT: 100}, gross_input_wait_ns=200, step_ns=700)
        hide_input_wait(parts, 250)

        assert parts.waits == {INPUT_WAIT: 50}
        assert (parts.gross_input_wait_ns, parts.step_ns) == (0, 950)

    @given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 500), st.integers(-9, 1500))
    def test_keeps_the_length_of_the_window(
        self, wait: int, gross: int, step: int, hidden: int
    ) -> None:
        parts = WindowParts(waits={INPUT_WAIT: wait}, gross_input_wait_ns=gross, step_ns=step)
        hide_input_wait(parts, hidden)

        left = parts.waits[INPUT_WAIT], parts.gross_input_wait_ns, parts.step_ns
        assert sum(left) == wait + gross + step
        assert min(*left, parts.hidden_input_wait_ns) >= 0


class TestTheIdleTimeOfTwoRunsOnOneGpu:
    @pytest.mark.parametrize(
        "name",
        [
            "validation_ns", "step_ns", "gross_input_wait_ns", "first_input_wait_ns",
            "validation_input_wait_ns", "hidden_input_wait_ns", "silent_ns",
        ],
    )  # fmt: skip
    def test_is_split_between_them_and_no_more_than_there_was(self, name: str) -> None:
        one, other = WindowParts(), WindowParts()
        setattr(one, name, 400)
        setattr(other, name, 400)

        merged = merge_parts([one, other], 1_000)

        assert merged == one

    def test_is_split_by_the_time_that_each_was_there(self) -> None:
        long = WindowParts(waits={INPUT_WAIT: 500}, step_ns=300, outside_ns=200)
        short = WindowParts(waits={INPUT_WAIT: 100, CALLBACKS: 100}, outside_ns=800)

        merged = merge_parts([long, short], 1_000)

        assert merged.waits == {INPUT_WAIT: 480, CALLBACKS: 80}
        assert (merged.step_ns, merged.outside_ns) == (240, 200)

    def test_is_of_no_phase_where_no_run_was_and_where_each_was_silent(self) -> None:
        silent = WindowParts(step_ns=300, silent_ns=300, outside_ns=400)
        other = WindowParts(step_ns=600, outside_ns=400)

        merged = merge_parts([silent, other], 1_000)

        assert (merged.step_ns, merged.uncovered_ns) == (450, 400 + 150)

    def test_is_of_no_phase_where_there_was_no_run(self) -> None:
        assert merge_parts([], 1_000) == WindowParts(outside_ns=1_000)
        nothing = WindowParts(outside_ns=1_000)
        assert merge_parts([nothing], 1_000) == nothing

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
