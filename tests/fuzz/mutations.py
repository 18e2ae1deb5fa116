"""Mutations of bytes, of lines, and of values in JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

Mutator = Callable[[Random, bytes], bytes]

MOST_BYTES: Final = 1 << 20
"""Size limit of inputs."""
_MOST_TIMES: Final = (2, 3, 10, 200)
_NUMBER: Final = re.compile(rb"[-+]?\d+(?:\.\d+)?")
NUMBERS: Final = (
    b"0", b"-0", b"-1", b"1", b"100", b"101", b"1e3", b"1e308", b"1e309", b"-1e308", b"1e-320",
    b"nan", b"NaN", b"inf", b"-Infinity", b"9" * 19, b"9" * 400, b"9" * 5_000, b"0x10", b"1_000",
    b"18446744073709551616", b"9223372036854775807", b"1.7976931348623157e308", b"0.1", b"1,5", b"",
    b"\xd9\xa3", b"\xc2\xb2", b"1e999999999", b"-" + b"1" * 30, b"4294967296", b"253402300800",
)  # fmt: skip
"""Replacements of numbers; two have digits beyond ASCII."""
SIGNS: Final = (
    b"\0", b"\n", b"\r", b"\r\n", b"\x0b", b"\x0c", b"\x1b[31m", b"\x1c", b"\x85", b"\xc2\x85",
    b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\xff\xfe", b"\xff", b"\xed\xa0\x80", b"\t", b" ", b",",
    b";", b"|", b":", b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b"%", b"=", b"#", b"\xe2\x80\xae",
)  # fmt: skip


def flip_bytes(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8, 64)) if data else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def put_signs(random: Random, data: bytes) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + random.choice(SIGNS) * random.choice((1, 1, 1, 3, 5_000)) + data[at:]


def cut_out(random: Random, data: bytes) -> bytes:
    start, end = sorted((random.randint(0, len(data)), random.randint(0, len(data))))
    return data[:start] + data[end:]


def cut_off(random: Random, data: bytes) -> bytes:
    return data[: random.randint(0, len(data))]


def repeat_part(random: Random, data: bytes) -> bytes:
    start = random.randint(0, len(data))
    part = data[start : start + random.choice((1, 5, 80, 2_000))]
    return data[:start] + part * random.choice(_MOST_TIMES) + data[start:]


def change_numbers(random: Random, data: bytes) -> bytes:
    """Replace one number, or all equal ones."""
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    one, new = random.choice(found), random.choice(NUMBERS)
    if random.random() < 0.2:
        return data.replace(one[0], new, random.choice((2, 20, 2_000)))
    return data[: one.start()] + new + data[one.end() :]


def of_lines(change: Callable[[Random, list[bytes]], list[bytes]]) -> Mutator:
    def mutate(random: Random, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        return b"".join(change(random, lines)) if lines else data

    return mutate


def drop_lines(random: Random, lines: list[bytes]) -> list[bytes]:
    at = random.randrange(len(lines))
    return lines[:at] + lines[at + random.choice((1, 1, 3, 50)) :]


def double_lines(random: Random, lines: list[bytes]) -> list[bytes]:
    at = random.randrange(len(lines))
    part = lines[at : at + random.choice((1, 2, 30))]
    return lines[:at] + part * random.choice(_MOST_TIMES) + lines[at:]


def swap_lines(random: Random, lines: list[bytes]) -> list[bytes]:
    swapped = list(lines)
    for _ in range(random.choice((1, 1, 20))):
        one, other = random.randrange(len(lines)), random.randrange(len(lines))
        swapped[one], swapped[other] = swapped[other], swapped[one]
    return swapped


def join_lines(random: Random, lines: list[bytes]) -> list[bytes]:
    """Replace some or all line ends."""
    sign, share = random.choice((b"", b" ", b"\r", b"\0", b"\xe2\x80\xa8")), random.random() ** 2
    return [line.rstrip(b"\r\n") + sign if random.random() < share else line for line in lines]


def splice_lines(random: Random, lines: list[bytes]) -> list[bytes]:
    """Insert the beginning of one line with the end of another."""
    one, other = random.choice(lines), random.choice(lines)
    spliced = one[: random.randint(0, len(one))] + other[random.randint(0, len(other)) :]
    at = random.randrange(len(lines))
    return [*lines[:at], spliced, *lines[at:]]


BYTES: Final[Sequence[Mutator]] = (
    flip_bytes, put_signs, cut_out, cut_off, repeat_part, change_numbers,
)  # fmt: skip
LINES: Final[Sequence[Mutator]] = tuple(
    of_lines(change)
    for change in (
        drop_lines, double_lines, swap_lines, join_lines, splice_lines,
    )
)  # fmt: skip


def mutated(random: Random, data: bytes, mutators: Sequence[Mutator]) -> bytes:
    """Apply some mutators, up to ``MOST_BYTES``."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        data = random.choice(mutators)(random, data)[:MOST_BYTES]
    return data


HONEST: Final = "honest"
"""Name of the valid run, which others may take, too."""
_SIGNS: Final = tuple(sign.decode("utf-8", "surrogateescape") for sign in SIGNS)
JUNK: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 7, 1 << 39, 1 << 53, 1 << 62, 1 << 63, 1 << 64, -(1 << 62),
    10**300, 10**400, 0.5, -0.5, 0.999, 1.5, 1e308, -1e308, 5e-324, float("nan"), float("inf"),
    "", "0", "1", "0:1", "0,1", "GPU-0", "a" * 2_900, "x" * 4_000, "é" * 9, "é" * 128,
    "\ud800", "\\ud800", "_other", HONEST, "lie", *_SIGNS, *(sign * 50 for sign in _SIGNS[:8]),
    [], {}, [[]], [[[]]], [1, None], [0, 1, 0.5], ["0"], ["0", "1"], ["0"] * 300,
    {"": None}, {"a": 1}, {"0": 0.5, "1": 0.5}, {"0": 1, "1": -1}, {"0": float("nan")},
    {"a" * 200: 1, "a" * 201: 2}, {"": "", "b": 1e308}, {"x": 1 << 62, "y": 1 << 62},
    *({sign: 1} for sign in _SIGNS),
)  # fmt: skip
"""Any JSON values, and some beyond JSON."""


def with_other_value(random: Random, document: Any) -> Any:
    """Replace one value of a document, at any depth."""
    if not isinstance(document, (dict, list)) or not document or random.random() < 0.1:
        return random.choice(JUNK)
    keys = list(document) if isinstance(document, dict) else range(len(document))
    key = random.choice(keys)
    if isinstance(document, dict) and random.random() < 0.1:
        return {name: value for name, value in document.items() if name != key}
    changed: Any = document.copy()
    changed[key] = with_other_value(random, document[key])
    return changed
