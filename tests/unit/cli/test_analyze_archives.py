"""Specification of archives: each file in one is a log of its own, and nothing else is touched."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import sys
import tarfile
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpumon.cli.main import main
from tests.builders_logs import smi_log

BUSY, IDLE = smi_log([97] * 40), smi_log([0] * 40)
Captured = pytest.CaptureFixture[str]


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    return info


def tar_of(files: Mapping[str, str | bytes], *more: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for info in more:
            archive.addfile(info)
        for name, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            archive.addfile(member(name, data), io.BytesIO(data))
    return packed.getvalue()


def reports(capsys: Captured) -> list[dict[str, object]]:
    found = json.loads(capsys.readouterr().out)
    return found if isinstance(found, list) else [found]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "logs.tar.gz"


class TestAnArchive:
    @pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["tar", "tar.gz"])
    def test_has_a_report_for_each_file_in_it(
        self, archive: Path, capsys: Captured, pack: type[bytes]
    ) -> None:
        archive.write_bytes(pack(tar_of({"run/a.csv": BUSY, "run/b.csv": IDLE})))

        assert main(["analyze", "--json", str(archive)]) == 0

        found = reports(capsys)
        assert [one["source"] for one in found] == [
            f"{archive}: run/a.csv", f"{archive}: run/b.csv"
        ]  # fmt: skip
        assert [one["observed_seconds"] for one in found] == [40.0, 40.0]

    def test_of_many_logs_of_the_same_time_is_not_one_gpu(
        self, archive: Path, capsys: Captured
    ) -> None:
        rows = smi_log([97, 97, 0, 0] * 100).split("\n", 1)[1]
        archive.write_bytes(gzip.compress(tar_of({f"node{at}.csv": rows for at in range(143)})))

        assert main(["analyze", "--json", str(archive)]) == 0
        assert len(reports(capsys)) == 143

    def test_is_told_in_words_with_the_name_of_each_file(
        self, archive: Path, capsys: Captured
    ) -> None:
        archive.write_bytes(tar_of({"a.csv": BUSY, "b.csv": IDLE}))

        assert main(["analyze", str(archive)]) == 0

        out = capsys.readouterr().out
        assert f"== {archive}: a.csv\n" in out
        assert f"== {archive}: b.csv\n" in out

    def test_may_stand_beside_logs(self, archive: Path, tmp_path: Path, capsys: Captured) -> None:
        archive.write_bytes(tar_of({"a.csv": BUSY}))
        log = tmp_path / "gpu.csv"
        log.write_text(IDLE)

        assert main(["analyze", "--json", str(archive), str(log)]) == 0
        assert [one["source"] for one in reports(capsys)] == [f"{archive}: a.csv", str(log)]

    def test_may_come_from_the_standard_input(
        self, monkeypatch: pytest.MonkeyPatch, capsys: Captured
    ) -> None:
        packed = io.BytesIO(gzip.compress(tar_of({"a.csv": BUSY, "b.csv": IDLE})))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(packed))

        assert main(["analyze", "--json", "-"]) == 0
        assert [one["source"] for one in reports(capsys)] == [
            "standard input: a.csv", "standard input: b.csv"
        ]  # fmt: skip

    def test_may_come_through_a_pipe_with_a_name(self, tmp_path: Path, capsys: Captured) -> None:
        path = tmp_path / "fifo"
        os.mkfifo(path)
        packed = tar_of({"a.csv": BUSY, "b.csv": IDLE})
        writer = threading.Thread(target=lambda: path.write_bytes(packed))
        writer.start()
        try:
            assert main(["analyze", "--json", str(path)]) == 0
        finally:
            writer.join()
        assert len(reports(capsys)) == 2

    def test_may_hold_logs_that_are_packed(self, archive: Path, capsys: Captured) -> None:
        archive.write_bytes(tar_of({"a.csv.gz": gzip.compress(BUSY.encode())}))

        assert main(["analyze", "--json", str(archive)]) == 0
        assert reports(capsys)[0]["observed_seconds"] == 40.0

    def test_may_have_names_that_are_long(self, archive: Path, capsys: Captured) -> None:
        name = "/".join(["a-folder-with-a-long-name"] * 12) + "/gpu.csv"
        archive.write_bytes(tar_of({name: BUSY}))

        assert main(["analyze", "--json", str(archive)]) == 0
        assert reports(capsys)[0]["source"] == f"{archive}: {name}"


class TestAFileInIt:
    @pytest.mark.parametrize("data", [bytes(range(256)) * 40, b"", b"no log at all\n" * 9])
    def test_that_cannot_be_read_is_a_sentence_and_the_others_go_on(
        self, archive: Path, capsys: Captured, data: bytes
    ) -> None:
        archive.write_bytes(gzip.compress(tar_of({"x": data, "a.csv": BUSY, "b.csv": IDLE})))

        assert main(["analyze", "--json", str(archive)]) == 1

        out, err = capsys.readouterr()
        assert [one["source"][-5:] for one in json.loads(out)] == ["a.csv", "b.csv"]
        assert err.count("\n") == 1
        assert err.startswith(f"gpumon: {archive}: x: ")

    def test_that_is_an_archive_is_a_sentence(self, archive: Path, capsys: Captured) -> None:
        archive.write_bytes(tar_of({"in.tar": tar_of({"a.csv": BUSY})}))

        assert main(["analyze", str(archive)]) == 1
        assert "in.tar: is an archive within an archive" in capsys.readouterr().err

    @pytest.mark.parametrize(
        "kind",
        [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE],
    )  # fmt: skip
    def test_that_is_none_is_passed_over(
        self, archive: Path, tmp_path: Path, capsys: Captured, kind: bytes
    ) -> None:
        secret = tmp_path / "secret.csv"
        secret.write_text(IDLE)
        other = member("other", kind=kind)
        other.linkname = str(secret)
        archive.write_bytes(tar_of({"a.csv": BUSY}, other))

        assert main(["analyze", "--json", str(archive)]) == 0
        assert [one["source"] for one in reports(capsys)] == [f"{archive}: a.csv"]

    def test_is_never_written(
        self, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "here"
        folder.mkdir()
        monkeypatch.chdir(folder)
        archive = tmp_path / "logs.tar"
        archive.write_bytes(tar_of({"../up.csv": BUSY, str(tmp_path / "root.csv"): IDLE}))
        before = sorted(tmp_path.rglob("*"))

        assert main(["analyze", "--json", str(archive)]) == 0

        assert len(reports(capsys)) == 2
        assert sorted(tmp_path.rglob("*")) == before


class TestABadArchive:
    @pytest.mark.parametrize("share", [0.4, 0.6, 0.9])
    @pytest.mark.parametrize("is_packed", [True, False])
    def test_that_is_cut_short_is_one_sentence(
        self, archive: Path, capsys: Captured, share: float, is_packed: bool
    ) -> None:
        values = random.Random(1)
        logs = {f"{at}.csv": smi_log(values.choices(range(101), k=2_000)) for at in range(4)}
        whole = tar_of(logs).rstrip(b"\0")
        whole = gzip.compress(whole) if is_packed else whole
        archive.write_bytes(whole[: int(len(whole) * share)])

        assert main(["analyze", "--json", str(archive)]) == 1

        out, err = capsys.readouterr()
        assert err.count("\n") == 1
        assert "cut short" in err
        assert [one["source"] for one in json.loads(out)] == [
            f"{archive}: {at}.csv" for at in range(int(share * 4) + 1)
        ]

    def test_that_is_cut_within_the_name_of_a_file_is_one_sentence(
        self, archive: Path, capsys: Captured
    ) -> None:
        whole = tar_of({"a.csv": BUSY, "b.csv": IDLE})
        archive.write_bytes(whole[: 512 + (len(BUSY) // 512 + 1) * 512 + 100])

        assert main(["analyze", "--json", str(archive)]) == 1

        out, err = capsys.readouterr()
        assert json.loads(out)["source"] == f"{archive}: a.csv"
        assert err.count("\n") == 1
        assert "cut short or damaged after 1 file" in err

    def test_without_a_file_is_a_sentence(self, archive: Path, capsys: Captured) -> None:
        archive.write_bytes(tar_of({}, member("folder", kind=tarfile.DIRTYPE)))

        assert main(["analyze", str(archive)]) == 1
        assert "holds no file" in capsys.readouterr().err

    @pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
    def test_whose_names_would_fill_the_memory_is_a_sentence(
        self, archive: Path, capsys: Captured, kind: bytes
    ) -> None:
        whole = tar_of({"a.csv": BUSY})
        info = member("x", kind=kind)
        info.size = 1 << 40
        archive.write_bytes(whole.rstrip(b"\0") + bytes(-len(whole.rstrip(b"\0")) % 512)
                            + info.tobuf() + b"x" * 10_000)  # fmt: skip

        assert main(["analyze", str(archive)]) == 1
        assert "damaged after 1 file" in capsys.readouterr().err

    def test_of_files_without_end_is_a_sentence(
        self, archive: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gpumon.sources.logs.archives.MOST_FILES", 20)
        archive.write_bytes(tar_of({f"{at}.csv": BUSY for at in range(30)}))

        assert main(["analyze", "--json", str(archive)]) == 1

        out, err = capsys.readouterr()
        assert len(json.loads(out)) == 20
        assert "holds more than 20 files" in err

    def test_of_folders_without_end_is_a_sentence(
        self, archive: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gpumon.sources.logs.archives.MOST_FILES", 20)
        folders = [member(str(at), kind=tarfile.DIRTYPE) for at in range(30)]
        archive.write_bytes(tar_of({}, *folders))

        assert main(["analyze", str(archive)]) == 1
        assert "holds more than 20 files" in capsys.readouterr().err

    def test_that_unpacks_to_very_much_is_a_sentence(
        self, archive: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gpumon.sources.logs.log_text.FREE_BYTES", 1 << 20)
        bomb = BUSY.encode() + b"\n" * (1 << 24)
        archive.write_bytes(gzip.compress(tar_of({"a.csv": bomb, "b.csv": IDLE})))

        assert main(["analyze", str(archive)]) == 1

        err = capsys.readouterr().err
        assert "unpacks to more than 500 times its size" in err
        assert err.count("\n") == 1

    def test_cannot_be_drawn(self, archive: Path, capsys: Captured, tmp_path: Path) -> None:
        archive.write_bytes(tar_of({"a.csv": BUSY, "b.csv": IDLE}))

        assert main(["analyze", "--plot", str(tmp_path / "p.svg"), str(archive)]) == 2
        assert "one log" in capsys.readouterr().err


class TestAnotherKindOfArchive:
    def test_is_named(self, tmp_path: Path, capsys: Captured) -> None:
        path = tmp_path / "logs.zip"
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("a.csv", BUSY)

        assert main(["analyze", str(path)]) == 1
        assert "is a zip archive, which gpumon does not unpack" in capsys.readouterr().err

    @pytest.mark.parametrize("mode", ["w:bz2", "w:xz"])
    def test_is_named_where_a_tar_is_packed_with_it(
        self, tmp_path: Path, capsys: Captured, mode: str
    ) -> None:
        path = tmp_path / "logs.tar.x"
        with tarfile.open(path, mode) as packed:  # type: ignore[call-overload]
            packed.addfile(member("a.csv", BUSY.encode()), io.BytesIO(BUSY.encode()))

        assert main(["analyze", str(path)]) == 1
        assert "which gpumon does not unpack" in capsys.readouterr().err
