"""Tests of a recording's lines: every tick is read back, and malformed lines are refused."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.codecs.field_codec import MalformedError
from gpumon.core.codecs.recording_codec import (
    RECORDING_SCHEMA,
    BlockReader,
    BlockWriter,
    OtherSchemaError,
    RecordingHeader,
)
from gpumon.core.phase import PHASES
from gpumon.core.reading import Reading
from gpumon.core.ring_format.events import RingKind, RingRecords, RingsReading
from gpumon.core.sample import Frame, GpuSample
from gpumon.core.waits.evidence import NO_READING, HostReading
from tests.builders.recording import (
    BEGAN_NS,
    DEVICES,
    full_sample,
    header,
    plain_readings,
    reading,
    training_readings,
)
from tests.builders.report import evidence, gil_threads, task

TRAINING = list(training_readings(seed=1, seconds=40))


def blocks_of(readings: list[Reading], each: int = 4) -> list[bytes]:
    writer = BlockWriter(header())
    return [
        b"".join([*writer.begin_block(), *map(writer.line, readings[at : at + each])])
        for at in range(0, len(readings), each)
    ]


def read_all(blocks: list[bytes]) -> list[Reading]:
    reader = BlockReader()
    return [one for block in blocks for one in reader.read(block).readings]


class TestATick:
    def test_is_read_back_with_runs(self) -> None:
        assert read_all(blocks_of(TRAINING)) == TRAINING

    def test_is_read_back_with_every_field_of_a_sample(self) -> None:
        random = Random(3)
        frames = [
            Frame(
                taken_at_ns=BEGAN_NS + second,
                gpus=(full_sample(second, random),),
                rejected=second % 2,
                call_seconds=(("nvmlDeviceGetSamples", 0.125), ("nvmlDeviceGetPowerUsage", 0.25)),
                trouble="the second file is not there",
                call_counts=(("nvmlDeviceGetSamples", second),),
                call_errors=(("nvmlDeviceGetPowerUsage", 999, second // 2 + 1),),
            )
            for second in range(1, 9)
        ]
        readings = [
            reading(second, frames=(frame,)) for second, frame in enumerate(frames, start=1)
        ]
        default, sample = GpuSample(device=DEVICES[0]), frames[0].gpus[0]
        left_out = {n for n in GpuSample._fields if getattr(sample, n) == getattr(default, n)}
        missing = {n for n in Frame._fields if not getattr(frames[2], n)}

        assert left_out == {"device", "error"}
        # A recording reads everything in each tick, and no stacks.
        assert missing == {"is_quiet", "present_ratios"}
        assert read_all(blocks_of(readings)) == readings

    def test_keeps_a_value_of_all_64_bits(self) -> None:
        ring = TRAINING[0].rings.rings[0]
        stamps_ns = [ring.facts.started_ns + 5, ring.facts.started_ns + 4]
        events = RingRecords(b"\x07\x07", b"\x00\x01", stamps_ns, array("Q", [2**64 - 1, 0]))
        ticks = [reading(1, rings=RingsReading(rings=(ring._replace(events=events),)))]

        (read,) = read_all(blocks_of(ticks))

        assert read == ticks[0]
        assert read.rings.rings[0].events[0].value == 2**64 - 1

    def test_is_read_back_with_host_evidence(self) -> None:
        seen = evidence(task(0.3), threads=gil_threads(2), workers=(task(1.0, 0.5),) * 3, at_s=1)
        hosts = [
            HostReading(of_run={"a.ring": seen}, took_seconds=0.001),
            NO_READING,
            HostReading(message="resnet is hidden"),
        ]
        ticks = [reading(at)._replace(host=host) for at, host in enumerate(hosts, start=1)]

        assert read_all(blocks_of(ticks)) == ticks

    def test_keeps_the_owners_of_rings_that_were_left_out(self) -> None:
        greedy = ((65_534, 45), (None, 3))
        ticks = [
            reading(1, rings=RingsReading()),
            reading(2, rings=RingsReading(message="45 are not read", left_out=greedy)),
            reading(3, rings=RingsReading(left_out=greedy[:1], is_whole=False)),
            reading(4, rings=RingsReading()),
        ]

        assert read_all(blocks_of(ticks)) == ticks
        assert read_all(blocks_of(ticks, each=1)) == ticks

    def test_follows_a_header_with_the_gpus(self) -> None:
        written_header = replace(header(note="two workers"), devices=DEVICES)
        block = b"".join(BlockWriter(written_header).begin_block())
        written = json.loads(block.splitlines()[0])

        assert BlockReader().read(block).header == written_header
        assert written["schema"] == RECORDING_SCHEMA
        assert {field.name for field in fields(RecordingHeader)} <= written.keys()


class TestABlock:
    def test_can_be_read_alone(self) -> None:
        blocks = blocks_of(TRAINING)
        alone = BlockReader().read(blocks[3]).readings

        whole = [one._replace(rings=RingsReading()) for one in alone]
        assert whole == [one._replace(rings=RingsReading()) for one in TRAINING[12:16]]
        assert [r.facts for r in alone[0].rings.rings] == [
            r.facts for r in TRAINING[12].rings.rings
        ]

    def test_after_a_missing_one_has_the_present_phase_of_each_run(self) -> None:
        blocks = blocks_of(TRAINING)
        reader = BlockReader()
        reader.read(blocks[0])
        block = reader.read(blocks[2])

        for ring, before in zip(
            block.readings[0].rings.rings, TRAINING[7].rings.rings, strict=True
        ):
            entered = [event for event in before.events if event.kind is RingKind.ENTER]
            assert block.missing == 1
            assert ring.events[0] == entered[-1]
            assert ring.lost_events > 0

    def test_may_have_fields_of_a_later_version(self) -> None:
        lines = blocks_of(plain_readings(1))[0].splitlines()
        added = [{**json.loads(line), "new": {"of": ["a later version"]}} for line in lines]

        block = BlockReader().read(b"\n".join(json.dumps(one).encode() for one in added))

        assert list(block.readings) == plain_readings(1)


Change = Callable[[Any], object]


def first_block(change: Change) -> bytes:
    """A block of a header, a number and two ticks, with one change."""
    lines = [json.loads(line) for line in blocks_of(TRAINING[:2])[0].splitlines()]
    change(lines)
    return b"\n".join(json.dumps(line).encode() for line in lines)


def line(number: int, **values: Any) -> Change:
    return lambda lines: lines[number].update(values)


def without(number: int, name: str) -> Change:
    return lambda lines: lines[number].pop(name)


def of_gpu(**values: Any) -> Change:
    return lambda lines: lines[2]["frames"][0]["gpus"][0].update(values)


def of_ring(**values: Any) -> Change:
    return lambda lines: lines[2]["rings"][0].update(values)


def of_record(column: str, first: Any) -> Change:
    return lambda lines: lines[2]["rings"][0]["events"][column].__setitem__(0, first)


HOST_SAMPLE = {"start_ns": 1, "end_ns": NS_PER_S, "waiting_ratio": 1.0}


def of_host(**values: Any) -> Change:
    return line(2, host={"runs": {"a.ring": {**HOST_SAMPLE, **values}}})


CHANGES: dict[str, Change] = {
    "no header and no number": lambda lines: lines.__delitem__(slice(0, 2)),
    "a header of something else": line(0, schema="other/1"),
    "a period of nothing": line(0, period_ns=0),
    "a year after 3000": line(0, started_wall_time_s=1e300),
    "a device without a UUID": line(0, devices=[{"index": 0}]),
    "a negative number": line(1, block=-1),
    "a tick without a timestamp": without(2, "at_ns"),
    "a timestamp beyond all bounds": line(2, at_ns=2**63),
    "a tick before the one before it": line(3, at_ns=1),
    "a frame that is null": line(2, frames=[None]),
    "a GPU without a device": of_gpu(gpu=7),
    "a busy ratio of 255 %": of_gpu(busy=[[0, 5, 2.55]]),
    "a sample of no length": of_gpu(busy=[[0, 0, 0.5]]),
    "a sample that is too short": of_gpu(busy=[[0, 5]]),
    "a sample of years": of_gpu(busy=[[0, 2**60, 1.0]]),
    "a sample that ends before it starts": of_gpu(busy=[[0, -5, 1]]),
    "an XID without a count": of_gpu(xid_errors=[[31]]),
    "a text that is too long": of_gpu(error="x" * 5_000),
    "a ring with a wrong number": of_ring(ring=9),
    "a ring without facts": lambda lines: lines[2]["rings"][0].pop("facts"),
    "invalid facts": of_ring(facts={"run": 7}),
    "rings left out without an owner": line(2, rings_left_out=[True, [1]]),
    "columns of unequal length": lambda lines: lines[2]["rings"][0]["events"]["phase"].append(1),
    "an unknown phase": of_record("phase", len(PHASES)),
    "an unknown kind": of_record("kind", 0),
    "a value below zero": of_record("more", -1),
    "a timestamp of an event that is a text": of_record("after_ns", "1"),
    "rings read long after their tick": line(2, read_after_ns=2**53),
    "a ring that ended after it was read": of_ring(alive=False, ended_ns=2**53),
    "more time in a phase than has passed": of_ring(phase_ns={"input_wait": 2**53}),
    "host evidence of no length": of_host(end_ns=1),
    "host evidence of an hour": of_host(end_ns=3_600 * NS_PER_S),
    "empty host evidence": line(2, host={"runs": {"a.ring": {}}}),
    "host evidence of many runs": line(
        2, host={"runs": {str(at): HOST_SAMPLE for at in range(1_025)}}
    ),
    "an event before its run": of_record("after_ns", 0),
    "an event after its reading": of_record("after_ns", 2**60),
}


class TestAMalformedBlock:
    @pytest.mark.parametrize("what", CHANGES)
    def test_is_refused(self, what: str) -> None:
        with pytest.raises(MalformedError):
            BlockReader().read(first_block(CHANGES[what]))

    @pytest.mark.parametrize(
        "line",
        [b"[]", b"7", b"{", b"\xff\xfe", b'{"at_ns":NaN}', b'{"at_ns":' + b"9" * 5_000 + b"}",
         b"[" * 100_000, b'{"at_ns":1e999}', b"null"],
        ids=["list", "number", "cut", "not UTF-8", "NaN", "digits", "depth", "infinite", "null"],
    )  # fmt: skip
    def test_is_refused_for_a_line_that_is_no_object(self, line: bytes) -> None:
        with pytest.raises(MalformedError):
            BlockReader().read(blocks_of(plain_readings(1))[0] + line + b"\n")

    def test_leaves_no_trace(self) -> None:
        reader = BlockReader()
        blocks = blocks_of(TRAINING)
        reader.read(blocks[0])
        with pytest.raises(MalformedError):
            reader.read(blocks[1][:-20] + b"\n")

        assert list(reader.read(blocks[1]).readings) == TRAINING[4:8]

    def test_has_its_own_error_if_of_another_schema(self) -> None:
        with pytest.raises(OtherSchemaError, match=r"gpumon\.recording/2"):
            BlockReader().read(first_block(line(0, schema="gpumon.recording/2")))

    def test_is_refused_when_it_comes_twice(self) -> None:
        reader, block = BlockReader(), blocks_of(plain_readings(2))[0]
        reader.read(block)

        with pytest.raises(MalformedError, match="order"):
            reader.read(block)


DAY_NS = 86_400 * 10**9
BOUNDS: dict[str, tuple[Callable[[int], bytes], int, int]] = {
    "frames of a tick": (
        lambda count: blocks_of([reading(1, frames=(Frame(BEGAN_NS),) * count)])[0], 1_024, 1_025,
    ),
    "functions of the driver": (
        lambda count: blocks_of([reading(1, frames=(
            Frame(BEGAN_NS, call_counts=tuple((f"nvml{number}", 1) for number in range(count))),
        ))])[0], 1_024, 1_025,
    ),
    "GPUs of a header": (
        lambda count: b"".join(
            BlockWriter(replace(header(), devices=DEVICES[:1] * count)).begin_block()
        ), 1_024, 1_025,
    ),
    "a minute from a tick to the reading of its rings": (
        lambda after_ns: first_block(line(2, read_after_ns=after_ns)), 60 * 10**9, 60 * 10**9 + 1,
    ),
    "threads of a host sample": (
        lambda count: first_block(of_host(
            threads=[{"on_cpu_cores": 0.1, "queued_cores": 0.0}] * count
        )), 64, 65,
    ),
    "a day of a period": (
        lambda period_ns: first_block(line(0, period_ns=period_ns)), DAY_NS, DAY_NS + 1,
    ),
    "a millisecond of a period": (
        lambda period_ns: first_block(line(0, period_ns=period_ns)), 1_000_000, 999_999,
    ),
}  # fmt: skip
"""A block with this number, the last valid one, and the first invalid one."""


@pytest.mark.parametrize("what", BOUNDS)
def test_a_limit_is_accepted_and_one_more_is_refused(what: str) -> None:
    block_with, accepted, refused = BOUNDS[what]

    assert BlockReader().read(block_with(accepted)).missing == 0
    with pytest.raises(MalformedError):
        BlockReader().read(block_with(refused))
