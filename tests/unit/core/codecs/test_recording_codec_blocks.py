"""Tests of a recording's gzip members."""

from __future__ import annotations

import gzip
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.codecs import recording_codec
from gpumon.core.codecs.recording_codec import (
    HEAD_BYTES,
    MAGIC,
    DamagedBlockError,
    pack_block,
    packed_length,
    unpack_block,
)

TEXT = b'{"block":0}\n{"at_ns":1}\n'


class TestABlock:
    @given(st.binary(max_size=2_000))
    def test_is_read_back(self, text: bytes) -> None:
        assert unpack_block(pack_block(text)) == text

    def test_is_a_member_that_zcat_reads(self) -> None:
        assert gzip.decompress(pack_block(TEXT) + pack_block(b"more\n")) == TEXT + b"more\n"

    def test_has_its_length_in_its_first_bytes(self) -> None:
        block = pack_block(TEXT)

        assert packed_length(block[:HEAD_BYTES]) == len(block)

    @pytest.mark.parametrize(
        "head",
        [b"", MAGIC, b"\x1f\x8b\x08\0" + bytes(HEAD_BYTES), MAGIC + b"\xff\xff\xff\xff",
         MAGIC + b"\0\0\0\0"],
        ids=["nothing", "cut", "other gzip", "4 GB", "no bytes"],
    )  # fmt: skip
    def test_does_not_begin_otherwise(self, head: bytes) -> None:
        assert packed_length(head) is None


class TestADamagedBlock:
    def test_is_noticed_at_any_wrong_bit(self) -> None:
        block = pack_block(TEXT)
        noticed = 0
        for at in range(HEAD_BYTES, len(block)):
            damaged = block[:at] + bytes([block[at] ^ 0x10]) + block[at + 1 :]
            try:
                assert unpack_block(damaged) == TEXT  # the last bits of the last byte mean nothing
            except DamagedBlockError:
                noticed += 1

        assert noticed >= len(block) - HEAD_BYTES - 1

    def test_is_noticed_where_bytes_are_missing(self) -> None:
        block = pack_block(TEXT)

        with pytest.raises(DamagedBlockError):
            unpack_block(block[:-12] + block[-8:])


class TestATooLargeBlock:
    def test_is_one_above_the_largest_size_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = b"x" * 100
        monkeypatch.setattr(recording_codec, "MAX_BLOCK_BYTES", len(text))

        assert unpack_block(pack_block(text)) == text

    def test_is_not_unpacked_completely(self) -> None:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        zeros = bytes(1 << 20)
        body = b"".join(packer.compress(zeros) for _ in range(64)) + packer.flush()
        bomb = MAGIC + struct.pack("<I", 0) + body + struct.pack("<II", 0, 64 << 20)

        assert len(bomb) < 100_000
        with pytest.raises(DamagedBlockError, match="too large"):
            unpack_block(bomb)

    def test_is_not_written(self) -> None:
        with pytest.raises(DamagedBlockError, match="too large"):
            pack_block(bytes((16 << 20) + 1))
