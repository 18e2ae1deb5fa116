"""Both options together: rows of a file add up, rows on the screen fit and agree.

A loss without tags is counted when a pause ends, or hours later if it did not look like a wait at
first. No printed row can be changed then. So the screen shows what passed in a row, and the file
what was counted in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from tests.builders.cycles import late_waves, on_and_off
from tests.builders.dstat import (
    Document,
    Row,
    as_read,
    documents,
    gpu,
    rows_of,
    square,
    state_of,
    strayed_seconds,
    tagged_documents,
)

SLOW, FAST = square(4, 4), square(1.5, 1.5)
STORIES = {
    "short pauses": FAST,
    "long bursts": square(30, 10),
    "bursts that vary": lambda at_s: on_and_off(late_waves(90))[int(at_s)] if at_s < 751 else 1.0,
    "a job that ends": lambda at_s: SLOW(at_s) if at_s < 300 else 0.0,
    "a checkpoint every 300 s": lambda at_s: SLOW(at_s) if at_s < 200 else float(at_s % 300 >= 45),
    "a pause of ten minutes": lambda at_s: SLOW(at_s) if not 100 <= at_s < 700 else 0.0,
}


@cache
def shown_rows(story: str, delay: int = 1) -> list[Row]:
    return list(rows_of(documents(STORIES[story], seconds=900), delay=delay))


def known(values: list[float]) -> list[float]:
    return [max(0.0, value) for value in values]


def assert_they_fit_and_agree(row: Row) -> None:
    use, _, starved, lost, main, cause = row.shown
    assert (starved < 0) == (lost < 0)
    assert (cause == "pending") == (lost < 0 <= use)
    use, starved, lost, main = known([use, starved, lost, main])
    assert use + lost <= 100 + 1e-6
    assert starved <= lost + 1e-6
    assert main <= lost + 1e-6


@pytest.mark.parametrize("delay", [1, 5])
@pytest.mark.parametrize("story", STORIES)
def test_any_loop_adds_up_in_a_file_and_fits_and_agrees_on_the_screen(
    story: str, delay: int
) -> None:
    assert max(strayed_seconds(shown_rows(story, delay))) < 0.01
    for row in shown_rows(story, delay):
        assert_they_fit_and_agree(row)


class TestAFile:
    def test_has_what_was_held_back_in_the_row_in_which_it_is_counted(self) -> None:
        # Nothing is suspected of the first pauses: then all of them are, at once.
        rows = shown_rows("bursts that vary")
        (row,) = [row for row in rows if float(row.filed[2]) > 1000]

        assert float(row.filed[2]) % 300 == pytest.approx(0, abs=1)
        assert row.shown[2] == pytest.approx(0)

    def test_has_two_hours_of_it_in_one_row_which_the_screen_does_not(self) -> None:
        states = (
            gpu(observed_s=7200, busy_s=6480),
            gpu(observed_s=7201, busy_s=6480.5, suspected_s=720, starved_now=True),
        )
        _, row = rows_of(as_read(state_of(state)) for state in states)

        assert float(row.filed[2]) == pytest.approx(72_000)
        assert (row.shown[0], row.shown[2]) == pytest.approx((50, 50))

    def test_has_what_was_settled_without_a_new_sample_in_the_next_row(self) -> None:
        states = (
            gpu(observed_s=100, busy_s=100),
            gpu(observed_s=100, busy_s=100, starved_s=2.5),
            gpu(observed_s=101, busy_s=100.5, starved_s=3.0),
        )
        _, _, row = rows_of(as_read(state_of(state)) for state in states)

        assert float(row.filed[2]) == pytest.approx(300)
        assert (row.shown[0], row.shown[2]) == pytest.approx((50, 50))

    def test_has_all_of_a_gpu_that_was_away_when_it_is_back(self) -> None:
        rows = list(rows_of(away(documents(SLOW, seconds=300), 100, 150)))

        assert rows[120].filed == [""] * 6
        assert max(strayed_seconds(rows)) < 0.01

    def test_has_of_a_total_what_its_gpus_lost_together(self) -> None:
        rows = list(rows_of(documents(SLOW, FAST, seconds=600), group="total"))
        gpus = rows[-1].document["gpus"].values()
        counted_s = sum(gpu["starved_ns"] + gpu["suspected_ns"] for gpu in gpus) / 1e9

        assert sum(float(row.filed[2]) / 100 * 2 for row in rows) == pytest.approx(counted_s)


def away(states: Iterator[Document], from_row: int, until_row: int) -> Iterator[Document]:
    """The same, but for some rows the GPU does not answer."""
    for place, document in enumerate(states):
        document["gpus"]["0"]["present"] = not from_row <= place < until_row
        yield document


class TestTheScreen:
    def test_shows_a_pause_while_it_lasts(self) -> None:
        rows = shown_rows("bursts that vary")
        paused = [row for row in rows[600:] if row.shown[0] == 0]

        assert paused
        assert {row.shown[2] for row in paused} == {100}
        assert {tuple(row.shown[3:]) for row in paused} == {(100, 100, "input?")}

    def test_has_a_dash_for_a_pause_without_a_diagnosis(self) -> None:
        rows = shown_rows("long bursts")

        assert rows[45].shown == [0, rows[45].shown[1], -1, -1, -1, "pending"]
        assert [float(cell or 0) for cell in rows[45].filed[2:5]] == [0, 0, 0]

    def test_repeats_a_row_while_no_sample_is_fetched(self) -> None:
        rows = list(rows_of(documents(lambda _: 0.4, seconds=60, drained_every=5)))

        assert [row.shown[0] for row in rows[4:]] == pytest.approx([40] * 56)
        assert max(strayed_seconds(rows)) < 0.01

    def test_has_in_a_total_all_gpus_though_not_all_samples_are_fetched_at_once(self) -> None:
        loops = [lambda _: 0.2, lambda _: 0.4, lambda _: 0.9]
        states = documents(*loops, seconds=60, drained_every=5, is_staggered=True)
        rows = list(rows_of(states, group="total"))
        filed_ns = observed_before_ns = 0.0
        for row in rows:
            gpus = row.document["gpus"].values()
            observed_ns = sum(gpu["observed_ns"] for gpu in gpus)
            filed_ns += float(row.filed[0] or 0) / 100 * (observed_ns - observed_before_ns)
            observed_before_ns = observed_ns

        assert [row.shown[0] for row in rows[8:]] == pytest.approx([50] * 52)
        assert filed_ns == pytest.approx(sum(gpu["busy_ns"] for gpu in gpus))


@pytest.mark.parametrize("seed", range(6))
def test_idle_time_with_any_tags_adds_up_fits_and_agrees(seed: int) -> None:
    rows = list(rows_of(tagged_documents(seed), delay=(1, 5)[seed % 2]))

    for row in rows:
        assert_they_fit_and_agree(row)
    assert max(strayed_seconds(rows)) < 0.01
