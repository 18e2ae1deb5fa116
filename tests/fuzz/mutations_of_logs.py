"""Mutations of logs."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz.mutations import BYTES, LINES, MOST_BYTES, Mutator, mutated

_UNITS: Final = (b" %", b"%", b" MiB", b"MiB", b" W", b"", b" ms", b" s", b" GB", b" [%]", b" C")
_SEPARATORS: Final = (b",", b";", b"\t", b"|", b" ", b", ", b" ; ")
_ABSENT: Final = (b"N/A", b"[N/A]", b"-", b"ERR!", b"[Unknown Error]", b"null", b"nan", b"")
_STAMP: Final = re.compile(rb"\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?")
_STAMPS: Final = (
    b"0000-00-00 00:00:00", b"0001-01-01 00:00:00", b"9999-12-31 23:59:59.999999999",
    b"2026-02-30 25:61:61", b"2024-02-29 23:59:60", b"1970-01-01T00:00:00Z", b"2026/03/29 02:30:00",
    b"2026-01-01T00:00:00+99:99", b"12:00:00", b"1767225600", b"1767225600000", b"-1", b"",
)  # fmt: skip
_PREFIXES: Final = (
    b"[2026-05-11 14:00:00] INFO ", b"2026-05-11T14:00:00.123456789Z ",
    b"May 11 14:00:00 host a[1]: ", b"INFO:root:", b"gpu-1 | ", b"0: ", b"[pod/a b] ", b"> ",
    b"2026-05-11T14:00:00Z stdout F ",
)  # fmt: skip
_DEEPEST: Final = 50_000


def other_units(random: Random, data: bytes) -> bytes:
    return data.replace(random.choice(_UNITS[:5]), random.choice(_UNITS), random.choice((1, 9, -1)))


def other_separators(random: Random, data: bytes) -> bytes:
    old, new = random.sample(_SEPARATORS, 2)
    return data.replace(old, new, random.choice((1, 40, -1)))


def missing_cells(random: Random, data: bytes) -> bytes:
    cells = re.split(rb"([,;\t|]|  +)", data)
    for _ in range(random.choice((1, 5, 100))):
        cells[random.randrange(len(cells))] = random.choice(_ABSENT)
    return b"".join(cells)


def other_stamps(random: Random, data: bytes) -> bytes:
    """Replace some or all stamps, also by those of other lines."""
    found = _STAMP.findall(data)
    if not found:
        return data
    new, share = random.choice((*_STAMPS, *found[:20])), random.choice((0.02, 0.3, 1.0))
    return _STAMP.sub(lambda old: new if random.random() < share else old[0], data)


def prefixed(random: Random, data: bytes) -> bytes:
    before, share = random.choice(_PREFIXES), random.choice((1.0, 1.0, 0.9, 0.5))
    lines = data.splitlines(keepends=True)
    return b"".join(before + line if random.random() < share else line for line in lines)


def lines_that_count(random: Random, data: bytes) -> bytes:
    """Add or insert the output of a training run, with a number in each line."""
    before, between = random.choice(_PREFIXES), random.choice((b"step=", b"loss ", b"", b"a|"))
    count = random.choice((3, 300, 3_000))
    printed = b"".join(before + between + b"%d\n" % number for number in range(count))
    return random.choice((printed, printed + data, data + printed))


def deep_json(random: Random, data: bytes) -> bytes:
    deep = random.choice((b"[", b'{"a":', b'[{"a":')) * random.choice((10, 900, _DEEPEST))
    return random.choice((deep, deep + data, data + deep, b'{"data":' + deep))


def endless_line(random: Random, data: bytes) -> bytes:
    line = random.choice((b"a", b" ", b"9", b",", b'"', b"1,", b"[", b"- ", b"\0", b"a\r"))
    at = random.randint(0, len(data))
    return data[:at] + line * (random.choice((70_000, 400_000)) // len(line)) + data[at:]


def other_encoding(random: Random, data: bytes) -> bytes:
    text = data.decode("utf-8", errors="replace")
    encoding = random.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "latin-1", "utf-32"))
    return text.encode(encoding, errors="replace")


def two_logs(first: bytes, second: bytes) -> Mutator:
    def mutate(random: Random, data: bytes) -> bytes:
        return random.choice((data + first, data + b"\n" + second, first[:2_000] + data))

    return mutate


_OF_TEXT: Final[Sequence[Mutator]] = (
    *BYTES, *LINES, other_units, other_separators, missing_cells, other_stamps, prefixed,
    lines_that_count, deep_json, endless_line,
)  # fmt: skip


def packed(random: Random, data: bytes) -> bytes:
    """Pack or archive, and often damage that."""
    pack: Callable[[bytes], bytes] = random.choice(
        (gzip.compress, gzip.compress, bz2.compress, lzma.compress, _tar, _tar)
    )
    whole = pack(data)
    if random.random() < 0.3:
        whole = gzip.compress(whole)
    return whole if random.random() < 0.3 else mutated(random, whole, BYTES)


def _tar(data: bytes) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in (("gpu.csv", data), ("a" * 200, data[: len(data) // 2]), ("b", b"")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def mutated_log(random: Random, samples: Sequence[Path]) -> bytes:
    """A mutated sample."""
    data, other = (random.choice(samples).read_bytes() for _ in range(2))
    mutators = (*_OF_TEXT, *_OF_TEXT, two_logs(other, data))
    data = mutated(random, data, mutators)
    if random.random() < 0.1:
        data = other_encoding(random, data)
        data = mutated(random, data, BYTES) if random.random() < 0.5 else data
    return (packed(random, data) if random.random() < 0.1 else data)[:MOST_BYTES]
