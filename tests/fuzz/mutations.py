"""Damage: to bytes, to lines, and to what stands in a line. Each mutator is one idea."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

Mutator = Callable[[Random, bytes], bytes]

MOST_BYTES: Final = 1 << 20
"""No input gets longer: what is larger is another question than what is broken."""
_MOST_TIMES: Final = (2, 3, 10, 200)
_NUMBER: Final = re.compile(rb"[-+]?\d+(?:\.\d+)?")
NUMBERS: Final = (
    b"0", b"-0", b"-1", b"1", b"100", b"101", b"1e3", b"1e308", b"1e309", b"-1e308", b"1e-320",
    b"nan", b"NaN", b"inf", b"-Infinity", b"9" * 19, b"9" * 400, b"9" * 5_000, b"0x10", b"1_000",
    b"18446744073709551616", b"9223372036854775807", b"1.7976931348623157e308", b"0.1", b"1,5", b"",
    b"\xd9\xa3", b"\xc2\xb2", b"1e999999999", b"-" + b"1" * 30, b"4294967296", b"253402300800",
)  # fmt: skip
"""What a number may turn into; two of them are digits that are no ASCII."""
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
    """One of the numbers, or every one that is alike, is another one."""
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    one, new = random.choice(found), random.choice(NUMBERS)
    if random.random() < 0.2:
        return data.replace(one[0], new, random.choice((2, 20, 2_000)))
    return data[: one.start()] + new + data[one.end() :]


def of_lines(change: Callable[[Random, list[bytes]], list[bytes]]) -> Mutator:
    """A mutator of the lines of a text."""

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


def drop_alike(random: Random, lines: list[bytes]) -> list[bytes]:
    """All that begin as one of them does are gone."""
    start = random.choice(lines)[:4]
    return [line for line in lines if line[:4] != start]


def double_alike(random: Random, lines: list[bytes]) -> list[bytes]:
    start = random.choice(lines)[:9]
    return [again for line in lines for again in [line] * (1 + (line[:9] == start))]


def swap_lines(random: Random, lines: list[bytes]) -> list[bytes]:
    swapped = list(lines)
    for _ in range(random.choice((1, 1, 20))):
        one, other = random.randrange(len(lines)), random.randrange(len(lines))
        swapped[one], swapped[other] = swapped[other], swapped[one]
    return swapped


def join_lines(random: Random, lines: list[bytes]) -> list[bytes]:
    """Some line ends, or all of them, are another sign: a line without an end, in the end."""
    sign, share = random.choice((b"", b" ", b"\r", b"\0", b"\xe2\x80\xa8")), random.random() ** 2
    return [line.rstrip(b"\r\n") + sign if random.random() < share else line for line in lines]


def splice_lines(random: Random, lines: list[bytes]) -> list[bytes]:
    """The beginning of one line with the end of another."""
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
        drop_lines, double_lines, drop_alike, double_alike, swap_lines, join_lines, splice_lines,
    )
)  # fmt: skip


def mutated(random: Random, data: bytes, mutators: Sequence[Mutator]) -> bytes:
    """Some of them, one after the other; never longer than ``MOST_BYTES``."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        data = random.choice(mutators)(random, data)[:MOST_BYTES]
    return data
