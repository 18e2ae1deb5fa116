"""The files of a tar archive as logs: read as they come by, none written, no link followed."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Final

from gpumon.core.wording import counted
from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_text import STANDARD_INPUT, BrokenOffError, LogText, Stream

MOST_FILES: Final = 10_000
"""Files and folders of an archive. Who has more logs names them."""
_MOST_NAME_BYTES: Final = 1 << 16
_LOGS: Final = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
"""Files with their bytes in the archive: no links, no devices, none with holes."""
_NAMES: Final = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_CUT: Final = "the archive is cut short or damaged"


class LogArchive:
    """One tar archive, read once from front to end. Memory does not grow with it."""

    def __init__(self, stream: Stream, name: str) -> None:
        self._stream = stream
        self._name = name
        self._is_broken = False

    def logs(self) -> Iterator[Callable[[], LogText]]:
        """What opens each file, to be read before the next is asked for.

        It raises ``UnreadableLogError`` where a file is no text or an archive of its own.

        Raises:
            UnreadableLogError: The archive is cut short or damaged, holds no file or too many.
        """
        files = 0
        try:
            # Opened by a stream and read by one: no place in it is ever gone back to.
            with tarfile.open(fileobj=self._stream, mode="r|", tarinfo=_Entry) as archive:  # type: ignore[call-overload]
                for number, entry in enumerate(archive, start=1):
                    if number > MOST_FILES:
                        raise UnreadableLogError(
                            f"{self._name}: holds more than {MOST_FILES:,} files; those after them "
                            "were not read: name the logs, or archive fewer at a time"
                        )
                    data = archive.extractfile(entry) if entry.type in _LOGS else None
                    if data is None:
                        continue
                    files += 1
                    yield partial(self._opened, entry.name, data)
                    if self._is_broken:
                        return  # that was said of the file it broke off in
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            what = f"cannot be read: {error}" if isinstance(error, OSError) else _CUT
            after = counted(files, "file", "files")
            raise UnreadableLogError(f"{self._name}: {what} after {after}") from error
        if not files:
            raise UnreadableLogError(f"{self._name}: is an archive that holds no file")

    def _opened(self, member: str, data: IO[bytes]) -> LogText:
        name = f"{self._name}: {member}"
        text = LogText(STANDARD_INPUT, _Member(data, self._note_broken), name=name)
        if text.archive is not None:
            raise UnreadableLogError(f"{name}: is an archive within an archive: unpack it")
        return text

    def _note_broken(self) -> None:
        self._is_broken = True


class _Entry(tarfile.TarInfo):
    """A header that is damaged ends no archive in silence, and none fills the memory."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _Entry:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # it is in every Python
            raise  # the zeros that an archive ends with
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(_CUT) from error

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size < 0 or (self.type in _NAMES and self.size > _MOST_NAME_BYTES):
            raise tarfile.ReadError(_CUT)
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]  # made to be overridden


class _Member:
    def __init__(self, data: IO[bytes], note_broken: Callable[[], None]) -> None:
        self._data = data
        self._note_broken = note_broken

    def read(self, count: int) -> bytes:
        try:
            return self._data.read(count)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            self._note_broken()
            raise BrokenOffError(_CUT) from error
        except OSError:
            self._note_broken()
            raise
