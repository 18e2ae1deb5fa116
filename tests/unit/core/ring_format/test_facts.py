"""Specification of a run's facts: bounded, printable, and refused if invalid."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpumon.core.ring_format.events import RunFacts
from gpumon.core.ring_format.facts import encode_facts, have_room_for_gpus, parse_facts
from gpumon.core.ring_format.format import FACTS_MAX_BYTES
from gpumon.errors import RingError
from tests.builders.ring import run_facts

FACTS = RunFacts(
    run="resnet",
    job="7.0",
    rank=1,
    world_size=2,
    pid=42,
    tid=43,
    framework="keras/jax",
    gpus=("0", "GPU-8f1c2a"),
    visible_devices="0,1",
    boot_id="b007",
    started_ns=123,
    loader={"batch_size": 32, "adapter": "PyDatasetAdapter", "shuffle": True, "cost": 0.5},
    callback_ns={"TensorBoard": 1_200_000_000, "others": 5},
    shares={"0": 0.6, "GPU-8f1c2a": 0.4},
    ratio_changes=3,
    on_cpu=True,
)


def changed(*without: str, **values: object) -> bytes:
    written = {**json.loads(encode_facts(FACTS)), **values}
    return json.dumps({name: one for name, one in written.items() if name not in without}).encode()


class TestFacts:
    def test_are_read_as_they_were_written(self) -> None:
        assert parse_facts(encode_facts(FACTS)) == FACTS

    @given(st.text(max_size=400), st.lists(st.text(max_size=90), max_size=9))
    @example("\N{GRINNING FACE}" * 600, ["GPU"])
    def test_fit_the_first_page_whatever_their_length(self, text: str, gpus: list[str]) -> None:
        facts = replace(
            FACTS,
            run=text,
            job=text,
            gpus=tuple(gpus),
            visible_devices=text,
            loader={f"{text}{n}": text for n in range(40)},
            callback_ns={f"{n}{text}": n for n in range(40)},
        )

        raw = encode_facts(facts)

        assert len(raw) <= FACTS_MAX_BYTES
        assert parse_facts(raw).rank == FACTS.rank


def test_facts_of_an_older_writer_are_unknown() -> None:
    facts = parse_facts(changed("tid", "on_cpu", "shares", "ratio_changes"))

    assert (facts.tid, facts.on_cpu, facts.shares, facts.ratio_changes) == (None, False, {}, 0)


@pytest.mark.parametrize("value", [1, "true", None])
def test_a_model_is_on_the_cpu_only_if_that_is_exactly_true(value: object) -> None:
    assert not parse_facts(changed(on_cpu=value)).on_cpu


class TestTheSharesOfABatch:
    @pytest.mark.parametrize(
        "shares",
        [
            {"0": 0.7, "1": 0.4},
            {"0": 0.5, "1": "0.5"},
            {"0": 0.5, "1": True},
            {"0": 1.5, "1": -0.5},
            {"0": None},
            {str(gpu): 0.001 for gpu in range(257)},
            {"\n": 0.5, "\r": 0.5},
            [0.5, 0.5],
        ],
    )
    def test_are_left_out_completely_if_one_is_invalid(self, shares: object) -> None:
        assert parse_facts(changed(shares=shares)).shares == {}

    @pytest.mark.parametrize(("count", "have_room"), [(16, True), (45, False)])
    def test_are_left_out_before_the_gpus_if_there_is_no_room(
        self, count: int, have_room: bool
    ) -> None:
        gpus = tuple(f"GPU-{gpu:036}" for gpu in range(count))
        shares = dict.fromkeys(gpus, 1 / 50)

        read = parse_facts(encode_facts(replace(FACTS, gpus=gpus, shares=shares)))

        reported = shares if have_room else {}
        assert (read.gpus, read.shares, read.ratio_changes) == (gpus, reported, 3)


class TestUntrustedFacts:
    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"\xff\xfe",
            b"[" * FACTS_MAX_BYTES,
            b"[]",
            b'"text"',
            changed(pid="42"),
            changed(pid=-1),
            changed(pid=1 << 40),
            changed(tid=1 << 31),
            changed(rank=True),
            changed(rank=1.5),
            changed(started_ns=1 << 64),
            changed(ratio_changes=1 << 60),
            changed(run=["a"]),
            changed(loader={}).replace(b'"loader": {}', b'"loader": NaN'),
        ],
    )
    def test_are_refused_if_they_are_nonsense(self, raw: bytes) -> None:
        with pytest.raises(RingError):
            parse_facts(raw)

    def test_are_truncated_and_made_printable(self) -> None:
        run = parse_facts(changed(run="a\n\x1b[31m" + "b" * 500)).run

        assert run.isprintable()
        assert len(run) <= 128

    def test_have_at_most_17_callbacks_with_valid_times(self) -> None:
        many = {"a\n": 1, "b": -1, "c": True, "d": "1", **{f"e{n}": n for n in range(40)}}

        kept = parse_facts(changed(callback_ns=many)).callback_ns

        assert kept["a\N{REPLACEMENT CHARACTER}"] == 1
        assert not {"b", "c", "d"} & kept.keys()
        assert len(kept) <= 17

    def test_can_always_be_encoded_again(self) -> None:
        raw = changed(run="x").replace(b'"x"', b'"\\ud800"')

        assert parse_facts(raw).run.encode("utf-8")

    def test_have_the_valid_ones_of_the_first_32_loader_facts(self) -> None:
        many = {"deep": {"er": 1}, "huge": 10**30} | {f"fact{n}": n for n in range(33)}

        assert list(parse_facts(changed(loader=many)).loader) == [*many][2:32]

    @pytest.mark.parametrize("name", ["rank", "world_size"])
    def test_have_a_rank_below_16_million(self, name: str) -> None:
        most = (1 << 24) - 1

        assert parse_facts(changed(**{name: most})).world_size > most - 1
        with pytest.raises(RingError, match=name):
            parse_facts(changed(**{name: most + 1}))

    def test_never_have_fewer_ranks_than_their_own(self) -> None:
        assert parse_facts(changed(rank=5, world_size=2)).world_size == 6

    @given(
        st.dictionaries(
            st.sampled_from([*json.loads(encode_facts(FACTS))]),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(st.text(max_size=3), inner, max_size=3)
                ),
                max_leaves=5,
            ),
        )
    )
    def test_are_read_or_refused_whatever_their_values(self, values: dict[str, object]) -> None:
        try:
            facts = parse_facts(changed(**values))
        except RingError:
            return
        assert parse_facts(encode_facts(facts)) == facts


def uuids(count: int, kind: str = "GPU") -> list[str]:
    return [f"{kind}-{n:08x}-d72c-4106-c12f-20bd9faed9f6" for n in range(count)]


LOADER: dict[str, str | int | float | bool | None] = {f"fact-{n}": "x" * 100 for n in range(20)}


class TestTheVisibleDevices:
    @pytest.mark.parametrize("names", [uuids(56, "MIG"), uuids(62)])
    def test_are_reported_to_the_last_name(self, names: list[str]) -> None:
        facts = replace(run_facts(), visible_devices=" , ".join(names), loader=LOADER)

        raw = encode_facts(facts)

        assert len(raw) <= FACTS_MAX_BYTES
        assert parse_facts(raw).visible_devices == ",".join(names)
        assert have_room_for_gpus(facts)

    @pytest.mark.parametrize("names", [uuids(63), uuids(1000)])
    def test_are_left_out_and_not_truncated_if_they_are_too_many(self, names: list[str]) -> None:
        facts = replace(run_facts(), visible_devices=",".join(names), loader=LOADER)

        assert parse_facts(encode_facts(facts)).visible_devices is None
        assert parse_facts(encode_facts(facts)).loader == LOADER
        assert not have_room_for_gpus(facts)

    def test_are_ignored_if_an_older_writer_truncated_them(self) -> None:
        raw = encode_facts(replace(run_facts(), visible_devices="0,GPU-8932"))
        cut = raw.replace(b"GPU-8932", "GPU-8932\N{HORIZONTAL ELLIPSIS}".encode())

        assert parse_facts(cut).visible_devices is None


class TestTheGpusThatTheUserNamed:
    def test_stay_if_there_is_no_room_for_the_visible_devices_too(self) -> None:
        facts = replace(run_facts(), gpus=tuple(uuids(50)), visible_devices=",".join(uuids(50)))

        assert parse_facts(encode_facts(facts)).gpus == tuple(uuids(50))
        assert have_room_for_gpus(facts)

    @pytest.mark.parametrize("names", [uuids(80), [str(index) for index in range(257)]])
    def test_are_left_out_and_not_truncated_if_they_are_too_many(self, names: list[str]) -> None:
        facts = replace(run_facts(), gpus=tuple(names))

        assert parse_facts(encode_facts(facts)).gpus is None
        assert not have_room_for_gpus(facts)
