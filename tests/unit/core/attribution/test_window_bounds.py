"""Specification of the bounds of one window alone."""

from __future__ import annotations

import random

import pytest

from gpumon.core.attribution.bounds import Bounds, window_bounds
from gpumon.core.attribution.idle_sharing import WindowParts, share_idle
from gpumon.core.phase import IdleCause

INPUT_WAIT, CALLBACKS, WITHIN_STEP, VALIDATION, UNKNOWN = (
    IdleCause.INPUT_WAIT,
    IdleCause.CALLBACKS,
    IdleCause.WITHIN_STEP,
    IdleCause.VALIDATION,
    IdleCause.UNKNOWN,
)


def bounds_of(idle_ns: int, parts: WindowParts, *, peer_excess_ns: int = 0) -> Bounds:
    """Bounds of one window of 1000 ns."""
    shared = share_idle(idle_ns, parts, peer_excess_ns=peer_excess_ns)
    return window_bounds(idle_ns, 1000, parts, shared)


class TestOneWindow:
    def test_gives_a_cause_at_least_what_does_not_fit_elsewhere(self) -> None:
        bounds = bounds_of(500, WindowParts(waits={INPUT_WAIT: 600}, step_ns=400))

        assert bounds == ({INPUT_WAIT: 500}, {INPUT_WAIT: 400}, {WITHIN_STEP: 400})

    def test_counts_time_that_no_phase_explains_as_unknown(self) -> None:
        bounds = bounds_of(400, WindowParts(waits={INPUT_WAIT: 300}, silent_ns=300, outside_ns=400))

        assert bounds.best_ns == {INPUT_WAIT: 120, UNKNOWN: 280}
        assert bounds.less_ns == {INPUT_WAIT: 120, UNKNOWN: 180}
        assert bounds.more_ns == {INPUT_WAIT: 180, UNKNOWN: 120}

    def test_gives_imbalance_no_more_than_a_peer_was_busier(self) -> None:
        bounds = bounds_of(500, WindowParts(step_ns=1000), peer_excess_ns=200)

        assert bounds == ({IdleCause.IMBALANCE: 200, WITHIN_STEP: 300}, {}, {})

    @pytest.mark.parametrize("seed", range(50))
    def test_has_bounds_for_every_distribution_of_the_idle_time(self, seed: int) -> None:
        draw = random.Random(seed)
        causes = (INPUT_WAIT, CALLBACKS, VALIDATION, WITHIN_STEP, UNKNOWN)
        cuts = sorted(draw.randint(0, 1000) for _ in causes[1:])
        pairs = zip([0, *cuts], [*cuts, 1000], strict=True)
        room_ns = {cause: end - start for cause, (start, end) in zip(causes, pairs, strict=True)}
        idle_in = [cause for cause, ns in room_ns.items() for _ in range(draw.randint(0, ns))]
        parts = WindowParts(
            waits={INPUT_WAIT: room_ns[INPUT_WAIT], CALLBACKS: room_ns[CALLBACKS]},
            validation_ns=room_ns[VALIDATION],
            step_ns=room_ns[WITHIN_STEP],
            outside_ns=room_ns[UNKNOWN],
        )

        best_ns, less_ns, more_ns = bounds_of(len(idle_in), parts)

        for cause in causes:
            share_ns = best_ns.get(cause, 0)
            least_ns, most_ns = share_ns - less_ns.get(cause, 0), share_ns + more_ns.get(cause, 0)
            assert 0 <= least_ns <= idle_in.count(cause) <= most_ns
