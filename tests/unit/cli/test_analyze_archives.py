"""Specification of archives: each file in one is a log of its own, and nothing else is touched.

What is said of those that cannot be read is in ``tests/golden``.
"""

from __future__ import annotations

import gzip
import os
import random
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.builders_logs import member, smi_log, tar_of
from tests.command_line import Ended, Shell

BUSY, IDLE = smi_log([97] * 40), smi_log([0] * 40)
TWO = {"a.csv": BUSY, "b.csv": IDLE}
Pack: TypeAlias = Callable[[bytes], bytes]


def reports(ended: Ended) -> list[dict[str, Any]]:
    found = ended.document if ended.out else []
    return found if isinstance(found, list) else [found]


def sources(ended: Ended) -> list[str]:
    """The names of the files that were read, without that of the archive."""
    return [str(report["source"]).rpartition(": ")[2] for report in reports(ended)]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "logs.tar.gz"


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.sources.logs.archives.MOST_FILES", 20)


LONG_NAME = "/".join(["a-folder-with-a-long-name"] * 12) + "/gpu.csv"


class TestAnArchive:
    @pytest.mark.parametrize(
        ("files", "pack"),
        [
            ({"run/a.csv": BUSY, "run/b.csv": IDLE}, bytes),
            ({"run/a.csv": BUSY, "run/b.csv": IDLE}, gzip.compress),
            ({"a.csv.gz": gzip.compress(BUSY.encode())}, bytes),
            ({LONG_NAME: BUSY}, bytes),
        ],
        ids=["tar", "tar.gz", "a log that is packed", "a long name"],
    )
    def test_has_a_report_for_each_file_in_it(
        self, archive: Path, gpumon: Shell, files: dict[str, str | bytes], pack: Pack
    ) -> None:
        archive.write_bytes(pack(tar_of(files)))

        ended = gpumon("analyze", "--json", archive)

        assert (ended.code, ended.err) == (0, "")
        assert [one["source"] for one in reports(ended)] == [f"{archive}: {name}" for name in files]
        assert {one["observed_seconds"] for one in reports(ended)} == {40.0}

    def test_is_told_in_words_with_the_name_of_each_file(
        self, archive: Path, gpumon: Shell
    ) -> None:
        archive.write_bytes(tar_of(TWO))

        out = gpumon("analyze", archive).out

        assert [line for line in out.splitlines() if line.startswith("== ")] == [
            f"== {archive}: a.csv", f"== {archive}: b.csv"
        ]  # fmt: skip

    def test_may_stand_beside_logs(self, archive: Path, tmp_path: Path, gpumon: Shell) -> None:
        archive.write_bytes(tar_of({"a.csv": BUSY}))
        log = tmp_path / "gpu.csv"
        log.write_text(IDLE)

        assert sources(gpumon("analyze", "--json", archive, log)) == ["a.csv", str(log)]

    def test_may_come_from_the_standard_input(self, gpumon: Shell) -> None:
        ended = gpumon("analyze", "--json", "-", stdin=gzip.compress(tar_of(TWO)))

        assert sources(ended) == ["a.csv", "b.csv"]
        assert reports(ended)[0]["source"].startswith("standard input: ")

    def test_may_come_through_a_pipe_with_a_name(self, tmp_path: Path, gpumon: Shell) -> None:
        path = tmp_path / "fifo"
        os.mkfifo(path)
        writer = threading.Thread(target=lambda: path.write_bytes(tar_of(TWO)))
        writer.start()
        try:
            assert sources(gpumon("analyze", "--json", path)) == ["a.csv", "b.csv"]
        finally:
            writer.join()


class TestAFileInIt:
    @pytest.mark.parametrize(
        "data",
        [bytes(range(256)) * 40, b"", b"no log at all\n" * 9, tar_of({"a.csv": BUSY})],
        ids=["binary", "empty", "no log", "an archive"],
    )
    def test_that_cannot_be_read_is_a_sentence_and_the_others_go_on(
        self, archive: Path, gpumon: Shell, data: bytes
    ) -> None:
        archive.write_bytes(gzip.compress(tar_of({"x": data, **TWO})))

        ended = gpumon("analyze", "--json", archive)

        assert (ended.code, sources(ended)) == (1, ["a.csv", "b.csv"])
        assert ended.is_refused_in_a_sentence
        assert ended.err.startswith(f"gpumon: {archive}: x: ")

    @pytest.mark.parametrize(
        "kind",
        [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE],
    )  # fmt: skip
    def test_that_is_none_is_passed_over(
        self, archive: Path, tmp_path: Path, gpumon: Shell, kind: bytes
    ) -> None:
        secret = tmp_path / "secret.csv"
        secret.write_text(IDLE)
        other = member("other", kind=kind)
        other.linkname = str(secret)
        archive.write_bytes(tar_of({"a.csv": BUSY}, other))

        assert sources(gpumon("analyze", "--json", archive)) == ["a.csv"]

    def test_is_never_written(
        self, tmp_path: Path, gpumon: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "here"
        folder.mkdir()
        monkeypatch.chdir(folder)
        archive = tmp_path / "logs.tar"
        archive.write_bytes(tar_of({"../up.csv": BUSY, str(tmp_path / "root.csv"): IDLE}))
        before = sorted(tmp_path.rglob("*"))

        assert len(reports(gpumon("analyze", "--json", archive))) == 2
        assert sorted(tmp_path.rglob("*")) == before


class TestABadArchive:
    def is_refused(self, gpumon: Shell, archive: Path, *read: str) -> bool:
        """Whether one sentence says so after what could be read."""
        ended = gpumon("analyze", "--json", archive)
        assert (ended.code, sources(ended)) == (1, [*read])
        return ended.is_refused_in_a_sentence

    @pytest.mark.parametrize("share", [0.4, 0.6, 0.9])
    @pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["tar", "tar.gz"])
    def test_is_one_that_is_cut_short(
        self, archive: Path, gpumon: Shell, share: float, pack: Pack
    ) -> None:
        values = random.Random(1)
        logs = {f"{at}.csv": smi_log(values.choices(range(101), k=2_000)) for at in range(4)}
        whole = pack(tar_of(logs).rstrip(b"\0"))
        archive.write_bytes(whole[: int(len(whole) * share)])

        read = [f"{at}.csv" for at in range(int(share * 4) + 1)]
        assert self.is_refused(gpumon, archive, *read)

    @pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
    def test_is_one_whose_names_would_fill_the_memory(
        self, archive: Path, gpumon: Shell, kind: bytes
    ) -> None:
        whole = tar_of({"a.csv": BUSY}).rstrip(b"\0")
        info = member("x", kind=kind)
        info.size = 1 << 17  # it could be held, and more could not
        name = info.tobuf() + b"x" * info.size
        archive.write_bytes(whole + bytes(-len(whole) % 512) + name + tar_of({"b.csv": BUSY}))

        assert self.is_refused(gpumon, archive, "a.csv")

    @pytest.mark.usefixtures("few_files")
    def test_is_one_of_files_without_end(self, archive: Path, gpumon: Shell) -> None:
        archive.write_bytes(tar_of({f"{at}.csv": BUSY for at in range(30)}))

        assert self.is_refused(gpumon, archive, *(f"{at}.csv" for at in range(20)))

    @pytest.mark.usefixtures("few_files")
    def test_is_one_of_folders_without_end(self, archive: Path, gpumon: Shell) -> None:
        folders = [member(str(at), kind=tarfile.DIRTYPE) for at in range(30)]
        archive.write_bytes(tar_of({}, *folders))

        assert self.is_refused(gpumon, archive)

    @pytest.mark.parametrize(
        ("free", "line"), [("FREE_BYTES", b"x" * 4_095 + b"\n"), ("FREE_LINES", b"\n")]
    )
    def test_is_one_that_unpacks_to_very_much(
        self, archive: Path, gpumon: Shell, monkeypatch: pytest.MonkeyPatch, free: str,
        line: bytes,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(f"gpumon.sources.logs.log_text.{free}", 1 << 16)
        bomb = BUSY.encode() + line * ((1 << 22) // len(line))
        archive.write_bytes(gzip.compress(tar_of({"a.csv": bomb, "b.csv": IDLE})))

        assert self.is_refused(gpumon, archive, "a.csv")
