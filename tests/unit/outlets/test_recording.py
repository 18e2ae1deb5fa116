"""Tests of writing a recording: everything written is readable, whatever happens next."""

from __future__ import annotations

import errno
import os
import stat
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import AF_UNIX, socket

import pytest

from gpumon.core.reading import Reading
from gpumon.errors import GpumonError
from gpumon.outlets.recording import RecordingWriter
from gpumon.sources.recording import RecordingFile
from tests.builders.recording import header, plain_readings, reading, record, training_readings

READINGS = plain_readings(12)


def read(path: Path) -> list[Reading]:
    with RecordingFile(path) as recording:
        return list(recording.readings())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "night.gpumon"


@pytest.fixture
def writer(path: Path) -> Iterator[RecordingWriter]:
    with RecordingWriter(path) as writer:
        yield writer


class TestATick:
    def test_is_written_at_once_if_it_is_the_first(
        self, path: Path, writer: RecordingWriter
    ) -> None:
        writer.keep(READINGS[0], header())

        assert read(path) == READINGS[:1]

    def test_is_written_five_seconds_later(self, path: Path, writer: RecordingWriter) -> None:
        for one in READINGS[:7]:
            writer.keep(one, header())

        assert read(path) == READINGS[:6]
        assert writer.written_bytes == path.stat().st_size

    def test_is_written_when_the_recording_is_closed(self, path: Path) -> None:
        record(path, READINGS)

        assert read(path) == READINGS

    def test_has_its_own_block_where_ticks_are_far_apart(
        self, path: Path, writer: RecordingWriter
    ) -> None:
        slow = [reading(60.0 * n) for n in range(1, 5)]
        for one in slow:
            writer.keep(one, header(period_s=60.0))

        assert read(path) == slow[:3]


class TestTheFile:
    def test_has_the_gpus_of_the_first_frame_and_is_private(self, path: Path) -> None:
        record(path, READINGS)

        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with RecordingFile(path) as recording:
            assert [device.name for device in recording.header.devices] == ["NVIDIA H100"]

    def test_is_closed_once(self, path: Path) -> None:
        writer = RecordingWriter(path)
        writer.keep(READINGS[0], header())
        writer.close("ended")
        size_bytes = path.stat().st_size
        with path.open("rb") as other:  # has the descriptor that just became free
            writer.close("ended")

            assert len(other.read()) == size_bytes

    def test_is_removed_without_a_tick(self, path: Path) -> None:
        with RecordingWriter(path):
            assert path.exists()

        assert not path.exists()

    def test_loses_ring_events_that_are_too_many_for_a_block(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gpumon.outlets.recording._MAX_EVENTS", 3)
        (tick,) = training_readings(seed=2, seconds=1)
        record(path, [tick])

        for ring, kept in zip(tick.rings.rings, read(path)[0].rings.rings, strict=True):
            assert (len(kept.events), kept.phase_ns) == (0, ring.phase_ns)
            assert kept.lost_events == ring.lost_events + len(ring.events)

    def test_needs_constant_memory(self, tmp_path: Path) -> None:
        def keep(writer: RecordingWriter, first: int, last: int) -> int:
            for second in range(first, last):
                writer.keep(reading(second), header())
            return tracemalloc.get_traced_memory()[0]

        with RecordingWriter(tmp_path / "long") as writer:
            tracemalloc.start()
            early = keep(writer, 1, 300)
            late = keep(writer, 300, 3_600)
            tracemalloc.stop()

        assert late - early < 20_000


class TestAnExistingFile:
    def test_is_not_replaced_by_default(self, path: Path) -> None:
        path.write_text("dear diary")

        with pytest.raises(GpumonError, match="--force"):
            RecordingWriter(path)
        assert path.read_text() == "dear diary"

    @pytest.mark.parametrize("is_empty", [False, True])
    def test_is_replaced_on_request(self, path: Path, is_empty: bool) -> None:
        record(path, READINGS)
        if is_empty:
            path.write_bytes(b"")
        with RecordingWriter(path, replaces=True) as writer:
            writer.keep(READINGS[3], header())

        assert read(path) == [READINGS[3]]

    @pytest.mark.parametrize("link", [False, True])
    def test_is_never_replaced_unless_it_is_a_recording(
        self, path: Path, tmp_path: Path, link: bool
    ) -> None:
        diary = tmp_path / "train.py" if link else path
        diary.write_text("dear diary")
        diary.chmod(0o644)
        if link:
            path.symlink_to(diary)

        with pytest.raises(GpumonError):
            RecordingWriter(path, replaces=True)
        assert diary.read_text() == "dear diary"
        assert stat.S_IMODE(diary.stat().st_mode) == 0o644

    def test_is_not_replaced_without_a_tick(self, path: Path) -> None:
        record(path, READINGS)
        with RecordingWriter(path, replaces=True):
            pass

        assert read(path) == READINGS

    def test_is_not_replaced_while_another_process_writes_it(
        self, path: Path, writer: RecordingWriter
    ) -> None:
        writer.keep(READINGS[0], header())

        with pytest.raises(GpumonError):
            RecordingWriter(path, replaces=True)
        assert read(path) == READINGS[:1]

    def test_that_is_removed_meanwhile_is_noticed_with_the_next_block(
        self, path: Path, writer: RecordingWriter
    ) -> None:
        writer.keep(READINGS[0], header())
        path.unlink()
        for one in READINGS[1:6]:
            writer.keep(one, header())

        with pytest.raises(GpumonError, match="was removed"):
            writer.keep(READINGS[6], header())


class TestAnUnusablePath:
    @pytest.mark.parametrize("replaces", [False, True])
    @pytest.mark.parametrize(
        "name", [".", "none/file", "file/below", "x" * 300, "pipe", "socket", "/dev/null", "-"]
    )
    def test_is_refused(
        self, tmp_path: Path, name: str, replaces: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)  # the whole name would be too long for a socket
        with socket(AF_UNIX) as bound:
            bound.bind("socket")
        os.mkfifo("pipe")
        Path("file").touch()
        before = sorted(tmp_path.iterdir())

        with pytest.raises(GpumonError):
            RecordingWriter(Path(name), replaces=replaces)
        assert sorted(tmp_path.iterdir()) == before


class TestAFullDisk:
    @pytest.fixture
    def has_room_for(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
        """Limit the bytes that can still be written."""
        real_write = os.write

        def has_room_for(room: int) -> None:
            def write(descriptor: int, data: bytes | memoryview) -> int:
                nonlocal room
                if room == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                taken = real_write(descriptor, bytes(data)[:room])
                room -= taken
                return taken

            monkeypatch.setattr(os, "write", write)

        return has_room_for

    def test_leaves_complete_blocks_and_names_their_length(
        self, path: Path, has_room_for: Callable[[int], None]
    ) -> None:
        has_room_for(900)
        many = plain_readings(60)
        with pytest.raises(GpumonError, match="No space") as refusal:
            record(path, many)

        kept = read(path)
        assert 1 < len(kept) < 60
        assert kept == many[: len(kept)]
        assert f"about {len(kept) - 1} s: " in str(refusal.value)
        assert path.stat().st_size <= 900

    def test_leaves_no_empty_file(self, path: Path, has_room_for: Callable[[int], None]) -> None:
        has_room_for(0)

        with pytest.raises(GpumonError, match="No space"), RecordingWriter(path) as writer:
            writer.keep(READINGS[0], header())
        assert not path.exists()

    def test_is_reported_also_at_the_end(
        self, path: Path, has_room_for: Callable[[int], None]
    ) -> None:
        writer = RecordingWriter(path)
        writer.keep(READINGS[0], header())
        writer.keep(READINGS[1], header())
        has_room_for(0)

        with pytest.raises(GpumonError, match="No space"):
            writer.close("ended")
        assert read(path) == READINGS[:1]
