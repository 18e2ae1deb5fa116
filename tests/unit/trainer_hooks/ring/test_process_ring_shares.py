"""Specification of how a training says which part of each batch each GPU is given."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from gpumon.core.ring.events import RingKind, RunFacts
from gpumon.core.ring.facts import parse_facts
from gpumon.core.ring.format import (
    FACTS_OFFSET,
    parse_header,
)
from tests.ring_contents import records_in
from trainer_hooks.ring import process_ring
from trainer_hooks.ring.quiet_warning import QuietWarningOnce
from trainer_hooks.ring.ring_writer import RingWriter


@pytest.fixture(autouse=True)
def nothing_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_ring, "_warn_of_shares", QuietWarningOnce())


def tell(shares: dict[str, float]) -> None:
    process_ring.process_ring().tell_shares(shares)


def page(writer: RingWriter) -> bytes:
    return writer._memory.path.read_bytes()


def facts_told(writer: RingWriter) -> RunFacts:
    raw = page(writer)
    return parse_facts(raw[FACTS_OFFSET : FACTS_OFFSET + parse_header(raw).facts_bytes])


def marks(writer: RingWriter) -> list[int]:
    return [event.value for event in records_in(page(writer)) if event.kind == RingKind.EVENT]


class TestSharesThatAreTold:
    def test_are_in_the_ring_before_training_begins(self, writer: RingWriter) -> None:
        tell({"0": 0.6, "1": 0.4})

        facts = facts_told(writer)
        assert (facts.shares, facts.ratio_changes) == ({"0": 0.6, "1": 0.4}, 0)
        assert marks(writer) == []

    def test_are_counted_and_marked_where_they_are_others_than_before(
        self, writer: RingWriter
    ) -> None:
        tell({"0": 0.5, "1": 0.5})
        tell({"1": 0.4, "0": 0.6})
        tell({"0": 0.6, "1": 0.4})
        tell({"0": 0.7, "1": 0.3})

        assert facts_told(writer).ratio_changes == 2
        assert marks(writer) == [1, 2]

    def test_may_be_forgotten_which_is_no_change(self, writer: RingWriter) -> None:
        tell({"0": 0.5, "1": 0.5})
        tell({})
        tell({"0": 0.6, "1": 0.4})

        assert facts_told(writer).ratio_changes == 0

    def test_stay_when_the_run_says_more_of_itself(self, writer: RingWriter) -> None:
        tell({"0": 0.5, "1": 0.5})
        tell({"0": 0.6, "1": 0.4})
        process_ring.describe_run(run="named", gpus=[0, 1], framework="keras/tensorflow")

        facts = facts_told(writer)
        assert (facts.shares, facts.ratio_changes) == ({"0": 0.6, "1": 0.4}, 1)

    def test_leave_the_run_there_when_a_tagger_is_refused(
        self, writer: RingWriter, tmp_path: Path
    ) -> None:
        tell({"0": 0.5, "1": 0.5})
        process_ring.withdraw_run()

        assert len(list((tmp_path / "phases").glob("*.ring"))) == 1

    @pytest.mark.parametrize(
        "shares", [{"0": 0.9, "1": 0.9}, {"0": float("nan")}, {"0": "much"}, None]
    )
    def test_and_are_none_are_warned_of_once_and_never_told(
        self, writer: RingWriter, shares: dict[str, float]
    ) -> None:
        tell({"0": 0.5, "1": 0.5})

        with pytest.warns(RuntimeWarning, match="how batches are split"):
            tell(shares)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tell(shares)

        assert facts_told(writer).shares == {"0": 0.5, "1": 0.5}
        assert writer.enabled

    def test_are_told_to_nobody_where_there_is_no_ring(self, writer: RingWriter) -> None:
        ringless = process_ring.ProcessRing(None)

        ringless.tell_shares({"0": 1.0})

        assert facts_told(writer).shares == {}
