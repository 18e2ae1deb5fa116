"""What gpumon itself left in files, and someone changed: recordings, reports, dstat's state."""

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
from tests.fuzz.command_output import check_output, command_output
from tests.fuzz.figures import check_report, parsed
from tests.fuzz.fuzzing import Case, Fuzz, for_seconds_and_minutes, fuzz_here
from tests.fuzz.mutations import BYTES, LINES, mutated
from tests.fuzz.mutations_of_documents import lied
from tests.patience import no_hang

_CI_SECONDS = 1.5
_MOST_GROWTH_KIB = 32_768
_RECORDINGS = sorted((Path(__file__).parents[1] / "recordings").glob("*.gpumon"))
_LOGS = Path(__file__).parents[1] / "logs" / "samples"


class TestARecording:
    @for_seconds_and_minutes(_CI_SECONDS)
    def test_is_played_or_refused_with_a_sentence(self, tmp_path: Path, seconds: float) -> None:
        fuzz_here(Fuzz(tmp_path, seconds), play, most_kib=_MOST_GROWTH_KIB)


class TestASavedReport:
    @for_seconds_and_minutes(_CI_SECONDS)
    def test_is_shown_or_refused_with_a_sentence(self, tmp_path: Path, seconds: float) -> None:
        fuzz_here(Fuzz(tmp_path, seconds), show_a_saved_report, most_kib=_MOST_GROWTH_KIB)


class TestAStateFile:
    @for_seconds_and_minutes(_CI_SECONDS)
    def test_is_shown_by_dstat_or_is_dashes(
        self, tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
        fuzz_here(Fuzz(tmp_path, seconds), show_a_state, most_kib=_MOST_GROWTH_KIB)


def play(case: Case) -> None:
    recording = case.folder / "night.gpumon"
    recording.write_bytes(case.tries(a_recording(case.random)))
    words = ("--json",) if case.random.random() < 0.8 else ()
    with no_hang():
        code, out, err = command_output("replay", str(recording), *words)
    check_output(code, out, err)
    if words and out:
        check_report(parsed(out))


def a_recording(random: Random) -> bytes:
    """One that was made, with its bytes damaged, or what its blocks say."""
    blocks = list(texts_of(random.choice(_RECORDINGS)))
    if random.random() < 0.3:
        return mutated(random, b"".join(map(pack_block, blocks)), BYTES)
    for _ in range(random.choice((1, 1, 3))):
        at = random.randrange(len(blocks))
        if random.random() < 0.5:
            blocks[at] = mutated(random, blocks[at], (*BYTES, *LINES))
        else:
            blocks[at] = with_lies(random, blocks[at])
    if random.random() < 0.2:
        random.shuffle(blocks)
    return b"".join(map(pack_block, blocks))


@cache
def texts_of(path: Path) -> tuple[bytes, ...]:
    """The text of each block."""
    return tuple(map(unpack_block, blocks_of(path.read_bytes())))


def with_lies(random: Random, block: bytes) -> bytes:
    """The same lines, with other values in some places."""
    lines = block.splitlines() or [b""]
    at = random.randrange(len(lines))
    try:
        printed_there = json.loads(lines[at])
    except (ValueError, RecursionError):
        return block  # damage before this broke it
    lines[at] = json.dumps(lied(random, printed_there)).encode()
    return b"\n".join(lines)


def show_a_saved_report(case: Case) -> None:
    random, one, whole = case.random, case.folder / "one.json", case.folder / "two.json"
    one.write_bytes(case.tries(a_saved_report(random)))
    whole.write_bytes(saved("analyze", _LOGS / "wide_csv--plain.csv"))
    compared = random.choice(((), (one, whole), (whole, one)))
    files = ("--compare", *map(str, compared)) if compared else (str(one),)
    as_json = ("--json",) if random.random() < 0.5 else ()
    with no_hang():
        code, out, err = command_output("report", *files, *as_json)
    check_output(code, out, err)
    assert out.replace("\n", "").isprintable()
    if as_json and out:
        parsed(out)


@cache
def saved(command: str, path: Path) -> bytes:
    """The report that it makes of that file."""
    code, out, _ = command_output(command, str(path), "--json")
    assert code == 0
    return out.encode()


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
            state.write_bytes(case.tries(a_state(random, state.read_bytes())))
            row = table.row()
            assert row.isascii()
            assert "nan" not in row.lower()
            assert "inf" not in row.lower()
        Table(full=random.random() < 0.5).row()  # one that starts now
    check_complaints(complaints.getvalue())


def check_complaints(err: str) -> None:
    """Each is one line that a terminal can show."""
    lines = err.splitlines()
    assert all(line.startswith("gpumon: ") and line.isprintable() for line in lines), err


def a_state(random: Random, raw: bytes) -> bytes:
    return with_damage(random, raw, ("gpus",) * 4)


def with_damage(random: Random, raw: bytes, often: Sequence[str]) -> bytes:
    """The bytes of a document damaged, or lies in its fields, in some of them more often."""
    if random.random() < 0.3:
        return mutated(random, raw, BYTES)
    document = json.loads(raw)
    for _ in range(random.choice((1, 1, 4))):
        at = random.choice((*document, *often))
        if at in document:
            document[at] = lied(random, document[at])
    return json.dumps(document).encode()
