"""A recording: blocks of JSON lines that can be read alone, each block a gzip member.

The first line of the first block is the header (schema, who recorded what, when), the first line
of every block its number; then comes one line a tick, and a last line marks the end. Timestamps
are CLOCK_MONOTONIC nanoseconds of the machine that was recorded.

``zcat`` reads a recording, and what was written before a process was killed stays readable. Each
member has its own length in gzip's extra field, so that a reader finds the next block behind a
damaged one, and recognises a recording by its first bytes. Only one block is in memory.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.codecs.field_codec import (
    KEPT,
    FieldCodec,
    MalformedError,
    bounded,
    encode_document,
    items,
    mapping,
    number,
    text,
    whole,
)
from gpumon.core.codecs.recorded_frames import DEVICE, MAX_GPUS, FrameReader, FrameWriter
from gpumon.core.codecs.recorded_rings import RingsReader, RingsWriter, decode_host, encode_host
from gpumon.core.reading import Reading
from gpumon.core.ring_format.events import RingEvent
from gpumon.core.ring_format.facts import refuse_constant
from gpumon.core.sample import Device, Tick

RECORDING_SCHEMA: Final = "gpumon.recording/1"
_FAMILY: Final = RECORDING_SCHEMA.rpartition("/")[0]

_YEAR_3000_S: Final = 32_503_680_000.0
_MAX_FRAMES: Final = 1_024
_MAX_DIGITS: Final = 21
_MIN_PERIOD_NS: Final = NS_PER_S // 1_000
_MAX_PERIOD_NS: Final = 86_400 * NS_PER_S

MAGIC: Final = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x08\0GM\x04\0"
"""Gzip, with one extra field of 4 bytes called ``GM``: how long the member is."""
HEAD_BYTES: Final = len(MAGIC) + 4
_MAX_PACKED_BYTES: Final = 16 << 20
MAX_BLOCK_BYTES: Final = 16 << 20
"""Bytes of a block's text. Unpacking stops there, whatever a block claims."""

_LENGTH: Final = struct.Struct("<I")
_TRAILER: Final = struct.Struct("<II")
_MIN_BYTES: Final = HEAD_BYTES + 2 + _TRAILER.size
_LEVEL: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingHeader:
    """The first line of a recording; the source is as in ``MonitorState``.

    Attributes:
        version: Version of gpumon that recorded.
        host: Name of the machine; empty: unknown.
        started_wall_time_s: Seconds since the epoch when it began.
        started_ns: CLOCK_MONOTONIC of the same time.
        note: Free text from ``--note``.
        devices: The GPUs of its first frame.
    """

    version: str
    source: str
    simulated: bool
    boot_id: str
    started_wall_time_s: float
    started_ns: int
    period_ns: int
    host: str = ""
    note: str = ""
    devices: tuple[Device, ...] = ()


class OtherSchemaError(MalformedError):
    """A recording with a schema that this version does not know."""


class DamagedBlockError(ValueError):
    """Bytes that are not a complete block, or a block that is too large."""


class RecordedBlock(NamedTuple):
    """One block.

    Attributes:
        missing: How many blocks before it are missing.
    """

    missing: int
    header: RecordingHeader | None
    readings: tuple[Reading, ...]
    is_end: bool


_HEADER: Final = FieldCodec(
    RecordingHeader,
    KEPT,
    "version source simulated boot_id started_wall_time_s started_ns period_ns host? note?"
    " devices?",
    {Device: DEVICE},
)


class BlockWriter:
    """Writes the lines of successive blocks."""

    def __init__(self, header: RecordingHeader) -> None:
        self._header: RecordingHeader | None = header
        self._present: dict[str, RingEvent] = {}
        self._number = 0
        self._begin()

    def begin_block(self) -> list[bytes]:
        """The first lines of the next block."""
        lines = []
        if self._header is not None:
            header = _HEADER.encode(self._header)
            lines.append(encode_document({"schema": RECORDING_SCHEMA, **header}))
            self._header = None
        lines.append(encode_document({"block": self._number}))
        self._number += 1
        self._begin()
        return lines

    def line(self, reading: Reading) -> bytes:
        tick = reading.tick
        document: dict[str, Any] = {"at_ns": tick.at_ns, "wall_time_s": reading.wall_time_s}
        if tick.late_ns:
            document["late_ns"] = tick.late_ns
        if tick.missed_count:
            document["missed"] = tick.missed_count
        if tick.error is not None:
            document["error"] = bounded(tick.error)
        document["took_s"] = tick.duration_seconds
        document["rings_took_s"] = reading.rings_seconds
        frames = [self._frames.encode(frame, tick.at_ns) for frame in tick.frames]
        if frames:
            document["frames"] = frames
        document.update(self._rings.encode(reading.rings, tick.at_ns))
        if host := encode_host(reading.host):
            document["host"] = host
        return encode_document(document)

    @staticmethod
    def end_line(why: str) -> bytes:
        """The last line of a recording that was not cut off."""
        return encode_document({"end": why})

    def _begin(self) -> None:
        self._frames = FrameWriter()
        self._rings = RingsWriter(self._present)


class BlockReader:
    """Reads successive blocks. A refused block leaves no trace."""

    def __init__(self) -> None:
        self._last_number, self._last_ns = -1, -1

    def read(self, raw: bytes) -> RecordedBlock:
        """The block with these lines.

        Raises:
            OtherSchemaError: It begins a recording of another schema.
            MalformedError: A line is malformed.
        """
        lines = [_parsed(line) for line in raw.split(b"\n") if line]
        header = None
        if lines and "schema" in lines[0]:
            header = _header(lines.pop(0))
        if not lines or "block" not in lines[0]:
            raise MalformedError("a block without a number")
        block_number = whole(lines.pop(0)["block"])
        is_end = bool(lines) and "end" in lines[-1]
        frames = FrameReader()
        rings = RingsReader(is_after_gap=block_number > self._last_number + 1)
        ticks = lines[:-1] if is_end else lines
        readings = tuple([_reading(fields, frames, rings) for fields in ticks])
        stamps_ns = [self._last_ns, *(reading.tick.at_ns for reading in readings)]
        if block_number <= self._last_number or stamps_ns != sorted(set(stamps_ns)):
            raise MalformedError("a block out of order")
        missing = block_number - self._last_number - 1
        self._last_number, self._last_ns = block_number, stamps_ns[-1]
        return RecordedBlock(missing, header, readings, is_end)


def _reading(fields: dict[str, object], frames: FrameReader, rings: RingsReader) -> Reading:
    at_ns = whole(fields.get("at_ns"))
    error = fields.get("error")
    in_tick = items(fields.get("frames", []), _MAX_FRAMES)
    tick = Tick(
        at_ns=at_ns,
        late_ns=whole(fields.get("late_ns", 0)),
        frames=tuple([frames.decode(frame, at_ns) for frame in in_tick]),
        missed_count=whole(fields.get("missed", 0)),
        error=None if error is None else text(error),
        duration_seconds=number(fields.get("took_s", 0.0)),
    )
    return Reading(
        tick,
        rings.decode(fields, at_ns),
        _wall_time(fields.get("wall_time_s")),
        number(fields.get("rings_took_s", 0.0)),
        decode_host(fields.get("host", {})),
    )


def _header(fields: dict[str, object]) -> RecordingHeader:
    schema = fields["schema"]
    if schema != RECORDING_SCHEMA:
        if isinstance(schema, str) and schema.rpartition("/")[0] == _FAMILY:
            raise OtherSchemaError(schema[:64])
        raise MalformedError("the header of something else")
    items(fields.get("devices", []), MAX_GPUS)
    header = _HEADER.decode(fields)
    if not _MIN_PERIOD_NS <= header.period_ns <= _MAX_PERIOD_NS:
        raise MalformedError("a period out of range")
    _wall_time(header.started_wall_time_s)
    return header


def _wall_time(value: object) -> float:
    wall_time_s = number(value)
    if not 0.0 <= wall_time_s <= _YEAR_3000_S:
        raise MalformedError("a wall-clock time out of range")
    return wall_time_s


def _parsed(line: bytes) -> dict[str, object]:
    try:
        value = json.loads(line, parse_constant=refuse_constant, parse_int=_whole_number)
    except (ValueError, RecursionError) as error:
        raise MalformedError("a line that is not JSON") from error
    return dict(mapping(value))


def _whole_number(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("a number out of range")
    return int(digits)


def devices_of(readings: Sequence[Reading]) -> tuple[Device, ...]:
    """The GPUs of the first frame in these ticks."""
    for reading in readings:
        for frame in reading.tick.frames:
            return tuple(sample.device for sample in frame.gpus)
    return ()


def pack_block(text: bytes) -> bytes:
    """A block as one gzip member.

    Raises:
        DamagedBlockError: It is larger than readers accept.
    """
    if len(text) > MAX_BLOCK_BYTES:
        raise DamagedBlockError("a block that is too large")
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
    packed = packer.compress(text) + packer.flush()
    trailer = _TRAILER.pack(zlib.crc32(text), len(text))
    length = HEAD_BYTES + len(packed) + len(trailer)
    return MAGIC + _LENGTH.pack(length) + packed + trailer


def packed_length(head: bytes) -> int | None:
    """The length of the member that begins with this head; ``None``: none does."""
    if len(head) < HEAD_BYTES or not head.startswith(MAGIC):
        return None
    (length,) = _LENGTH.unpack_from(head, len(MAGIC))
    return length if _MIN_BYTES <= length <= _MAX_PACKED_BYTES else None


def unpack_block(member: bytes) -> bytes:
    """The text of a block.

    Raises:
        DamagedBlockError: It is incomplete, damaged or too large.
    """
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    body = member[HEAD_BYTES : -_TRAILER.size]
    try:
        text = unpacker.decompress(body, MAX_BLOCK_BYTES + 1)
    except zlib.error as error:
        raise DamagedBlockError("damaged gzip data") from error
    if len(text) > MAX_BLOCK_BYTES:
        raise DamagedBlockError("a block that is too large")
    checks = _TRAILER.unpack_from(member, len(member) - _TRAILER.size)
    if not unpacker.eof or unpacker.unused_data or checks != (zlib.crc32(text), len(text)):
        raise DamagedBlockError("a block with a wrong checksum")
    return text
