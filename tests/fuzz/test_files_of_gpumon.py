"""Damaged files of gpumon: recordings, saved reports, and the state that dstat reads."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

import pytest

from gpumon.core.codecs.recording_codec import pack_block, unpack_block
from tests.builders.dstat import Table, gpu, publish
from tests.builders.recording import blocks_of
from tests.fuzz.checks import check_report, checked_output, parsed
from tests.fuzz.fuzzing import Case, Fuzz, for_seconds_and_minutes, fuzz_here
from tests.fuzz.mutations import BYTES, LINES, mutated, with_other_value
from tests.waiting import no_hang

_CI_SECONDS = 1.5
_MOST_GROWTH_KIB = 32_768
_RECORDINGS = sorted((Path(__file__).parents[1] / "recordings").glob("*.gpumon"))
_LOGS = Path(__file__).parents[1] / "logs" / "samples"


class TestARecording:
    @for_seconds_and_minutes(_CI_SECONDS)
    def test_is_replayed_or_refused(self, tmp_path: Path, seconds: float) -> None:
        fuzz_here(Fuzz(tmp_path, seconds), play, most_kib=_MOST_GROWTH_KIB)


class TestASavedReport:
    @for_seconds_and_minutes(_CI_SECONDS)
    def test_is_shown_or_refused(self, tmp_path: Path, seconds: float) -> None:
        fuzz_here(Fuzz(tmp_path, seconds), show_a_saved_report, most_kib=_MOST_GROWTH_KIB)


class TestAStateFile:
    @for_seconds_and_minutes(_CI_SECONDS)
    def test_is_shown_by_dstat_or_as_dashes(
        self, tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
        fuzz_here(Fuzz(tmp_path, seconds), show_a_state, most_kib=_MOST_GROWTH_KIB)


def play(case: Case) -> None:
    recording = case.folder / "night.gpumon"
    recording.write_bytes(case.tries(a_recording(case.random)))
    words = ("--json",) if case.random.random() < 0.8 else ()
    with no_hang():
        out = checked_output("replay", str(recording), *words)
    if words and out:
        check_report(parsed(out))


def a_recording(random: Random) -> bytes:
    """A recording with damaged bytes, or with other values in its blocks."""
    blocks = list(texts_of(random.choice(_RECORDINGS)))
    if random.random() < 0.3:
        return mutated(random, b"".join(map(pack_block, blocks)), BYTES)
    for _ in range(random.choice((1, 1, 3))):
        at = random.randrange(len(blocks))
        if random.random() < 0.5:
            blocks[at] = mutated(random, blocks[at], (*BYTES, *LINES))
        else:
            blocks[at] = with_other_values(random, blocks[at])
    if random.random() < 0.2:
        random.shuffle(blocks)
    return b"".join(map(pack_block, blocks))


@cache
def texts_of(path: Path) -> tuple[bytes, ...]:
    return tuple(map(unpack_block, blocks_of(path.read_bytes())))


def with_other_values(random: Random, block: bytes) -> bytes:
    lines = block.splitlines() or [b""]
    at = random.randrange(len(lines))
    with contextlib.suppress(ValueError, RecursionError):  # it was damaged before
        lines[at] = json.dumps(with_other_value(random, json.loads(lines[at]))).encode()
    return b"\n".join(lines)


def show_a_saved_report(case: Case) -> None:
    random, damaged, valid = case.random, case.folder / "one.json", case.folder / "two.json"
    damaged.write_bytes(case.tries(a_saved_report(random)))
    valid.write_bytes(saved("analyze", _LOGS / "wide_csv--plain.csv"))
    compared = random.choice(((), (damaged, valid), (valid, damaged)))
    files = ("--compare", *map(str, compared)) if compared else (str(damaged),)
    as_json = ("--json",) if random.random() < 0.5 else ()
    with no_hang():
        out = checked_output("report", *files, *as_json)
    assert out.replace("\n", "").isprintable()
    if as_json and out:
        parsed(out)


@cache
def saved(command: str, path: Path) -> bytes:
    return checked_output(command, str(path), "--json").encode()


def a_saved_report(random: Random) -> bytes:
    made_of = random.choice([*_RECORDINGS, _LOGS / "nvidia_smi_dmon--csv.txt"])
    raw = saved("replay" if made_of in _RECORDINGS else "analyze", made_of)
    return with_damage(random, raw, ("gpus", "gpus", "gpus", "runs", "advice"))


def show_a_state(case: Case) -> None:
    random, folder = case.random, case.folder
    with no_hang(), contextlib.redirect_stderr(io.StringIO()) as complaints:
        publish(folder, gpu(0, busy_s=40), gpu(1, starved_s=20))
        table = Table(full=random.random() < 0.5)
        for _ in range(random.choice((1, 3))):
            publish(folder, gpu(0, observed_s=101, busy_s=41), gpu(1, observed_s=101))
            state = folder / "state.json"
            state.write_bytes(case.tries(with_damage(random, state.read_bytes(), ("gpus",) * 4)))
            row = table.row()
            assert row.isascii()
            assert "nan" not in row.lower()
            assert "inf" not in row.lower()
        Table(full=random.random() < 0.5).row()  # a table that starts now
    for line in complaints.getvalue().splitlines():
        assert line.startswith("gpumon: ")
        assert line.isprintable()


def with_damage(random: Random, raw: bytes, often: Sequence[str]) -> bytes:
    """Damage the bytes of a document, or its fields, ``often`` more than others."""
    if random.random() < 0.3:
        return mutated(random, raw, BYTES)
    document = json.loads(raw)
    for _ in range(random.choice((1, 1, 4))):
        at = random.choice((*document, *often))
        if at in document:
            document[at] = with_other_value(random, document[at])
    return json.dumps(document).encode()
