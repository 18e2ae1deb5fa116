"""Specification of the GPUs in a run's facts: complete lists, or none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.ring_format.facts import encode_facts, have_room_for_gpus, parse_facts
from gpumon.core.ring_format.format import FACTS_MAX_BYTES
from tests.builders.ring import run_facts


def uuids(count: int, kind: str = "GPU") -> list[str]:
    return [f"{kind}-{n:08x}-d72c-4106-c12f-20bd9faed9f6" for n in range(count)]


LOADER: dict[str, str | int | float | bool | None] = {f"fact-{n}": "x" * 100 for n in range(20)}


class TestTheVisibleDevices:
    @pytest.mark.parametrize("names", [uuids(16), uuids(56, "MIG"), uuids(62)])
    def test_are_reported_to_the_last_name(self, names: list[str]) -> None:
        facts = replace(run_facts(), visible_devices=",".join(names), loader=LOADER)

        raw = encode_facts(facts)

        assert len(raw) <= FACTS_MAX_BYTES
        assert parse_facts(raw).visible_devices == ",".join(names)
        assert have_room_for_gpus(facts)

    def test_are_reported_without_the_blanks_between_them(self) -> None:
        facts = replace(run_facts(), visible_devices=f" {' , '.join(uuids(62))} ")

        assert parse_facts(encode_facts(facts)).visible_devices == ",".join(uuids(62))

    @pytest.mark.parametrize("text", ["", " ", "NoDevFiles", "-1"])
    def test_that_hide_every_gpu_still_do(self, text: str) -> None:
        read = parse_facts(encode_facts(replace(run_facts(), visible_devices=text)))

        assert read.visible_devices == text.strip()

    @pytest.mark.parametrize("names", [uuids(63), uuids(1000)])
    def test_are_left_out_and_not_cut_where_they_are_too_many(self, names: list[str]) -> None:
        facts = replace(run_facts(), visible_devices=",".join(names), loader=LOADER)

        assert parse_facts(encode_facts(facts)).visible_devices is None
        assert parse_facts(encode_facts(facts)).loader == LOADER
        assert not have_room_for_gpus(facts)

    def test_that_an_older_writer_truncated_are_ignored(self) -> None:
        raw = encode_facts(replace(run_facts(), visible_devices="0,GPU-8932"))
        cut = raw.replace(b"GPU-8932", "GPU-8932\N{HORIZONTAL ELLIPSIS}".encode())

        assert parse_facts(cut).visible_devices is None


class TestTheGpusThatTheUserNamed:
    def test_outlast_the_visible_devices_where_there_is_no_room_for_both(self) -> None:
        facts = replace(run_facts(), gpus=tuple(uuids(50)), visible_devices=",".join(uuids(50)))

        assert parse_facts(encode_facts(facts)).gpus == tuple(uuids(50))
        assert have_room_for_gpus(facts)

    def test_may_be_every_gpu_that_a_machine_can_have(self) -> None:
        everyone = tuple(str(index) for index in range(256))

        assert parse_facts(encode_facts(replace(run_facts(), gpus=everyone))).gpus == everyone

    @pytest.mark.parametrize("names", [uuids(80), [str(index) for index in range(257)]])
    def test_are_left_out_and_not_cut_where_they_are_too_many(self, names: list[str]) -> None:
        facts = replace(run_facts(), gpus=tuple(names))

        assert parse_facts(encode_facts(facts)).gpus is None
        assert not have_room_for_gpus(facts)


def test_facts_that_name_no_gpu_need_no_room() -> None:
    assert have_room_for_gpus(run_facts())
