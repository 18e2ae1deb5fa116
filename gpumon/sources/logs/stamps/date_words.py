"""Dates in words, in any order and the languages of ``_MONTHS``: of nvidia-smi, ``date``, Excel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from gpumon.sources.logs.stamps.date_shapes import WrittenTime, time_of_parts

_MONTHS: Final = (
    "january february march april may june july august september october november december",
    "januar februar märz april mai juni juli august september oktober november dezember",
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "januari februari maart april mei juni juli augustus september oktober november december",
    "januari februari mars april maj juni juli augusti september oktober november desember",
    "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada "
    "grudnia",
    "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "ocak şubat mart nisan mayıs haziran temmuz ağustos eylül ekim kasım aralık",  # noqa: RUF001
    "jänner feber mrz apr май jun jul aug set okt nov dez",
    "jan feb mrt apr mei jun jul aug sep okt nov dec",
)
"""Of each language, and two rows of names that are no beginnings of those."""
_SHORTEST_MONTH: Final = 3
_TIME: Final = re.compile(
    r"(?P<hour>\d{1,2}):(?P<minute>[0-5]\d):(?P<second>[0-5]\d|60)(?:[.,](?P<fraction>\d{1,9}))?",
    re.ASCII,
)
_PART: Final = re.compile(
    r"(?P<year>(?:19|20)\d\d)[年년.]?|(?P<day>[0-3]?\d)[日일.]?|(?P<half>[APap])\.?[Mm]\.?"
    r"|\(?(?P<zone>(?:UTC|GMT)?[+-](?:0\d|1[0-4]):?[0-5]\d|Z|[A-Z]{2,5})\)?",
    re.ASCII,
)
_MONTH_NUMBER: Final = re.compile(r"(\d{1,2})[月월]", re.ASCII)
_WORD: Final = re.compile(r"\(?[^\W\d_]{1,12}[.]?\)?")
_CLOCK: Final = re.compile(
    r"(?:(上午|오전)|(下午|오후))? ?(\d\d?)[:时時시] ?(\d\d)[:分분] ?(\d\d)[秒초]?", re.ASCII
)
_DATE_SIGN: Final = re.compile(r"(?<=\d)([年月日년월일])", re.ASCII)
_HYPHEN: Final = re.compile(r"(?<=\d)-(?=[^\W\d_])|(?<=[^\W\d_])-(?=\d)")
_BETWEEN: Final = frozenset("de of den the à um at kl".split())  # noqa: SIM905


def spaced(text: str) -> str:
    """A text whose date is in blanks and whose time in colons, as most languages have them.

    >>> spaced("2026年03月02日 09时00分05秒"), spaced("오후 09시 00분 05초"), spaced("13-Jun-2025")
    ('2026年 03月 02日  09:00:05', '09:00:05 PM', '13 Jun 2025')
    """
    if not text.isascii():
        text = _CLOCK.sub(
            lambda at: f" {at[3]}:{at[4]}:{at[5]} " + ("AM" if at[1] else "PM" if at[2] else ""),
            text,
        )
        text = _DATE_SIGN.sub(r"\1 ", text)
    return _HYPHEN.sub(" ", text).strip()


def time_of_words(
    written: Sequence[str], *, is_all: bool = True
) -> tuple[WrittenTime, tuple[str, ...]] | None:
    """The moment around the first time of day among words, and what its parts are, in their order.

    ``None``: there is none, or it is not all that the words say, and ``is_all``.
    """
    words = [bare for word in written if (bare := word.strip(",")) not in _BETWEEN]
    at = next((i for i, word in enumerate(words) if _TIME.fullmatch(word)), None)
    if at is None:
        return None
    date = _Date(words[at])
    first = at
    if first and not words[first - 1].isascii():
        first -= 1
        date.adds(words[first])  # or the day of the week, which is none of the parts
    while first and date.adds(words[first - 1]):
        first -= 1
    end = at + 1
    while end < len(words) and date.adds(words[end]):
        end += 1
    before, after = words[:first], words[end:]
    is_weekday = len(before) == 1 and _WORD.fullmatch(before[0]) is not None
    if is_weekday and month_of(before[0]) and before[0].lower().rstrip(".") != "mar":
        is_weekday = False  # in four languages Tuesday is written as March is
    if is_all and (after or (before and not is_weekday)):
        return None
    moment = time_of_parts(date.parts) if {"month", "day"}.issubset(date.kinds) else None
    return None if moment is None else (moment, tuple(date.kinds))


class _Date:
    """The parts of a date, each of which comes once.

    Attributes:
        parts: What is said, by the names of ``time_of_parts``.
        kinds: What was added, in that order.
    """

    def __init__(self, time: str) -> None:
        found = _TIME.fullmatch(time)
        self.parts: dict[str, str | None] = dict(found.groupdict()) if found else {}
        self.kinds: list[str] = ["time"]

    def adds(self, word: str) -> bool:
        """Take note of a word beside the others; whether it is a part of the date."""
        month = _MONTH_NUMBER.fullmatch(word)
        number = int(month[1]) if month else month_of(word)
        found = _PART.fullmatch(word)
        kind, said = "month", f"{number or ''}"
        if not number:
            if found is None or found.lastgroup is None:
                return False
            kind, said = found.lastgroup, found[found.lastgroup]
        if kind == "day" and kind in self.kinds:
            kind = "month"  # 2026. 03. 02.: the numbers are read from the time backwards
        if kind in self.kinds:
            return False
        self.kinds.append(kind)
        self.parts[kind] = said.removeprefix("UTC").removeprefix("GMT") or said
        return True


@lru_cache(256)
def month_of(word: str) -> int | None:
    """Number of a month by its name, or the beginning of it, in the languages of ``_MONTHS``.

    >>> month_of("janv."), month_of("Mär"), month_of("сент"), month_of("Mayor"), month_of("jui")
    (1, 3, 9, None, None)
    """
    bare = word.rstrip(".").casefold()
    if len(bare) < _SHORTEST_MONTH or not bare.isalpha():
        return None
    found = {
        number
        for names in _MONTHS
        for number, name in enumerate(names.split(), start=1)
        if name.startswith(bare)
    }
    return found.pop() if len(found) == 1 else None
