"""Specification of the recorder's pen: what it has written is whole, whatever happens next."""

from __future__ import annotations

import errno
import os
import stat
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import AF_UNIX, socket

import pytest

from gpumon.core.sample import Moment
from gpumon.errors import GpumonError
from gpumon.outlets.recording import RecordingWriter
from gpumon.sources.recording import RecordingFile
from tests.builders.recording import header, moment, plain_moments, record, training_moments

MOMENTS = plain_moments(12)


def read(path: Path) -> list[Moment]:
    with RecordingFile(path) as recording:
        return list(recording.moments())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "night.gpumon"


@pytest.fixture
def writer(path: Path) -> Iterator[RecordingWriter]:
    with RecordingWriter(path) as writer:
        yield writer


class TestWhatIsKept:
    def test_is_in_the_file_from_the_first_tick_on(
        self, path: Path, writer: RecordingWriter
    ) -> None:
        writer.keep(MOMENTS[0], header())

        assert read(path) == MOMENTS[:1]

    def test_is_in_the_file_five_seconds_later(self, path: Path, writer: RecordingWriter) -> None:
        for one in MOMENTS[:7]:
            writer.keep(one, header())

        assert read(path) == MOMENTS[:6]
        assert writer.written_bytes == path.stat().st_size

    def test_is_all_there_once_it_is_closed(self, path: Path) -> None:
        record(path, MOMENTS)

        assert read(path) == MOMENTS

    def test_is_a_block_a_tick_where_ticks_are_far_apart(
        self, path: Path, writer: RecordingWriter
    ) -> None:
        slow = [moment(60.0 * n) for n in range(1, 5)]
        for one in slow:
            writer.keep(one, header(period_s=60.0))

        assert read(path) == slow[:3]

    def test_names_the_boards_of_the_first_frame(self, path: Path) -> None:
        record(path, MOMENTS)

        with RecordingFile(path) as recording:
            assert [device.name for device in recording.header.devices] == ["NVIDIA H100"]

    def test_is_closed_once_however_often_it_is_asked(self, path: Path) -> None:
        writer = RecordingWriter(path)
        writer.keep(MOMENTS[0], header())
        writer.close("ended")
        size_bytes = path.stat().st_size
        with path.open("rb") as other:  # has the descriptor that just became free
            writer.close("ended")

            assert len(other.read()) == size_bytes

    def test_is_its_owners_alone(self, path: Path) -> None:
        record(path, MOMENTS)

        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_of_nothing_leaves_no_file(self, path: Path) -> None:
        with RecordingWriter(path):
            assert path.exists()

        assert not path.exists()

    def test_without_what_rings_overflow_with(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gpumon.outlets.recording._MOST_EVENTS", 3)
        (told,) = training_moments(seed=2, seconds=1)
        record(path, [told])

        for ring, kept in zip(told.rings.rings, read(path)[0].rings.rings, strict=True):
            assert (len(kept.events), kept.phase_ns) == (0, ring.phase_ns)
            assert kept.lost_events == ring.lost_events + len(ring.events)

    def test_takes_no_more_memory_the_longer_it_is(self, tmp_path: Path) -> None:
        def keep(writer: RecordingWriter, first: int, last: int) -> int:
            for second in range(first, last):
                writer.keep(moment(second), header())
            return tracemalloc.get_traced_memory()[0]

        with RecordingWriter(tmp_path / "long") as writer:
            tracemalloc.start()
            early = keep(writer, 1, 300)
            late = keep(writer, 300, 3_600)
            tracemalloc.stop()

        assert late - early < 20_000


class TestAFileThatIsThere:
    def test_is_left_alone(self, path: Path) -> None:
        path.write_text("dear diary")

        with pytest.raises(GpumonError, match="--force"):
            RecordingWriter(path)
        assert path.read_text() == "dear diary"

    @pytest.mark.parametrize("is_empty", [False, True])
    def test_is_replaced_where_that_is_wished(self, path: Path, is_empty: bool) -> None:
        record(path, MOMENTS)
        if is_empty:
            path.write_bytes(b"")
        with RecordingWriter(path, replaces=True) as writer:
            writer.keep(MOMENTS[3], header())

        assert read(path) == [MOMENTS[3]]

    @pytest.mark.parametrize("link", [False, True])
    def test_is_never_replaced_where_it_is_no_recording(
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

    def test_is_not_replaced_by_a_recording_of_nothing(self, path: Path) -> None:
        record(path, MOMENTS)
        with RecordingWriter(path, replaces=True):
            pass

        assert read(path) == MOMENTS

    def test_is_not_replaced_while_another_writes_it(
        self, path: Path, writer: RecordingWriter
    ) -> None:
        writer.keep(MOMENTS[0], header())

        with pytest.raises(GpumonError):
            RecordingWriter(path, replaces=True)
        assert read(path) == MOMENTS[:1]

    def test_and_is_removed_meanwhile_is_missed_with_the_next_block_not_in_the_morning(
        self, path: Path, writer: RecordingWriter
    ) -> None:
        writer.keep(MOMENTS[0], header())
        path.unlink()
        for one in MOMENTS[1:6]:
            writer.keep(one, header())

        with pytest.raises(GpumonError, match="was removed"):
            writer.keep(MOMENTS[6], header())


class TestAPlaceThatIsNone:
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


class TestADiskThatIsFull:
    @pytest.fixture
    def has_room_for(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
        """From now on for so many bytes."""
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

    def test_keeps_what_was_written_whole_and_says_how_much_that_is(
        self, path: Path, has_room_for: Callable[[int], None]
    ) -> None:
        has_room_for(900)
        many = plain_moments(60)
        with pytest.raises(GpumonError, match="No space") as refusal:
            record(path, many)

        kept = read(path)
        assert 1 < len(kept) < 60
        assert kept == many[: len(kept)]
        assert f"about {len(kept) - 1} s: " in str(refusal.value)
        assert path.stat().st_size <= 900

    def test_from_the_beginning_leaves_no_empty_file(
        self, path: Path, has_room_for: Callable[[int], None]
    ) -> None:
        has_room_for(0)

        with pytest.raises(GpumonError, match="No space"), RecordingWriter(path) as writer:
            writer.keep(MOMENTS[0], header())
        assert not path.exists()

    def test_at_the_very_end_is_told_too(
        self, path: Path, has_room_for: Callable[[int], None]
    ) -> None:
        writer = RecordingWriter(path)
        writer.keep(MOMENTS[0], header())
        writer.keep(MOMENTS[1], header())
        has_room_for(0)

        with pytest.raises(GpumonError, match="No space"):
            writer.close("ended")
        assert read(path) == MOMENTS[:1]
