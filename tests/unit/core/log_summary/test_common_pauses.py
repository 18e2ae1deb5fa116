"""Specification of several GPUs together: what all pause is shared, what one idles is its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.log_summary.activity import ChangeBudget, StateChanges
from gpumon.core.log_summary.common_pauses import Together, together
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from tests.builders.time import s

HALF_A_PERIOD = s(0.5)


def changes_of(ratios: Sequence[float | None], offset_s: float = 0.0) -> StateChanges:
    """What a GPU did: a ratio a second, ``None`` if unknown."""
    changes = StateChanges(DEFAULT_SETTINGS, ChangeBudget())
    changes.observe(
        [
            BusySample(s(at + offset_s), s(at + offset_s + 1), ratio)
            for at, ratio in enumerate(ratios)
            if ratio is not None
        ]
    )
    changes.finish()
    return changes


def joined(*gpus: Sequence[float | None], offset_s: float = 0.0) -> Together:
    """GPUs whose stamps are that much apart from each other."""
    return together(
        [changes_of(ratios, offset_s * number) for number, ratios in enumerate(gpus)],
        HALF_A_PERIOD,
    )


RHYTHM = [1.0, 1.0, 1.0, 0.0, 0.0] * 12


class TestGpusThatPauseAtTheSameTime:
    def test_pause_together_and_not_beside_a_peer(self) -> None:
        found = joined([*RHYTHM, 1], [*RHYTHM, 1])

        assert found.all_paused_ns == s(24)
        assert found.all_pauses == 12
        assert found.in_use_ns == s(61)
        assert found.common_share == pytest.approx(1.0)
        assert found.idle_beside_peer_ns == (0, 0)

    def test_pause_together_if_their_stamps_are_milliseconds_apart(self) -> None:
        found = joined(*([*RHYTHM, 1] for _ in range(4)), offset_s=0.004)

        assert found.idle_beside_peer_ns == (0, 0, 0, 0)
        assert found.all_paused_ns == pytest.approx(s(24), rel=0.01)
        assert found.common_share > 0.98

    def test_pause_together_though_another_gpu_is_not_in_use(self) -> None:
        found = joined([*RHYTHM, 1], [*RHYTHM, 1], [0.0] * 61)

        assert found.all_paused_ns == s(24)
        assert found.in_use == (0, 1)


class TestIndependentGpus:
    def test_have_next_to_nothing_in_common_despite_chance_overlaps(self) -> None:
        chance = Random(7)
        one, other = ([float(chance.random() > 0.6) for _ in range(20_000)] for _ in range(2))

        found = joined(one, other)

        assert found.all_paused_ns == pytest.approx(s(7_200), rel=0.1)
        assert found.common_share == pytest.approx(0.0, abs=0.05)

    def test_have_less_than_nothing_in_common_if_they_take_turns(self) -> None:
        assert joined([1, 0] * 40, [0, 1] * 40).common_share < 0


ALWAYS, LATE = [1.0] * 10, [1, 1, 0, 0, 1]
BESIDE: dict[str, tuple[Sequence[float | None], Sequence[float | None], float]] = {
    "for as long as it pauses": ([1] * 61, [*RHYTHM, 1], 24),
    "all the time where it is never used": ([*RHYTHM, 1], [0.0] * 61, 37),
    "but while it is unobserved": (ALWAYS, [0.0, 0.0, None, None, 0.0], 3),
    "but beside one that worked at another time": (ALWAYS, [None] * 10 + [0.0] * 10, 0),
    "but for less than half a period": (LATE, [1, 0.7, 0, 0, 1], 0),
    "for half a period": (LATE, [1, 0.5, 0, 0, 1], 0.5),
    "for more than half a period": (LATE, [1, 0.4, 0, 0, 1], 0.6),
}


class TestAGpuWhosePeerWorks:
    @pytest.mark.parametrize(("peer", "gpu", "idle_s"), BESIDE.values(), ids=BESIDE)
    def test_idles(
        self, peer: Sequence[float | None], gpu: Sequence[float | None], idle_s: float
    ) -> None:
        assert joined(peer, gpu).idle_beside_peer_ns == (0, s(idle_s))


rows = st.lists(st.none() | st.sampled_from([0.0, 0.3, 0.5, 1.0]), max_size=60)
machines = st.lists(st.tuples(rows, st.sampled_from([0.0, 0.003, 0.4])), max_size=4)


class TestLaws:
    @given(machines, st.randoms(use_true_random=False))
    def test_the_order_of_the_gpus_changes_nothing(
        self, machine: list[tuple[list[float | None], float]], random: Random
    ) -> None:
        order = list(range(len(machine)))
        random.shuffle(order)

        one = together([changes_of(*gpu) for gpu in machine], HALF_A_PERIOD)
        other = together([changes_of(*machine[at]) for at in order], HALF_A_PERIOD)

        assert other.all_paused_ns == one.all_paused_ns
        assert other.by_chance_ns == one.by_chance_ns
        assert list(other.idle_beside_peer_ns) == [one.idle_beside_peer_ns[at] for at in order]
        assert [order[at] for at in other.in_use] == sorted(
            one.in_use, key=lambda at: order.index(at)
        )

    @given(machines)
    def test_the_parts_sum_up(self, machine: list[tuple[list[float | None], float]]) -> None:
        """Against every nanosecond's own question, asked where anything changes."""
        gpus = [list(changes_of(*gpu)) for gpu in machine]
        moments = sorted({at_ns for gpu in gpus for at_ns, _ in gpu})
        paused_ns = in_use_ns = all_ns = 0
        beside_ns = [0] * len(gpus)
        for at_ns, until_ns in pairwise(moments):
            states = [
                max(((at, n, state) for n, (at, state) in enumerate(gpu) if at <= at_ns),
                    default=(0, 0, 0))[2]
                for gpu in gpus
            ]  # fmt: skip
            working, used = states.count(3), sum(state >= 2 for state in states)
            if used > 1:
                in_use_ns += until_ns - at_ns
                paused_ns += (used - working) * (until_ns - at_ns)
                all_ns += (not working) * (until_ns - at_ns)
            for number, state in enumerate(states):
                if working and state in (1, 2):
                    beside_ns[number] += until_ns - at_ns

        found = together(gpus, tolerance_ns=0)

        assert (found.in_use_ns, found.all_paused_ns) == (in_use_ns, all_ns)
        assert (found.paused_gpu_ns, list(found.idle_beside_peer_ns)) == (paused_ns, beside_ns)
