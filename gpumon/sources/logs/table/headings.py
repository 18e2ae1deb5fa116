"""The meaning of a column's heading, whichever tool wrote the log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.logs.prometheus_metrics import is_known, metric_of, owner_of
from gpumon.sources.logs.stamps.stamp_parsers import UNITS_NS
from gpumon.sources.logs.table.cell_values import MIB
from gpumon.sources.logs.table.column_names import (
    BYTES_OF_NAME,
    KINDS,
    Column,
    Heading,
    HeadingGpu,
    WordKind,
    folded,
)

_UNSPACED: Final = re.compile(
    "|".join(sorted((word for word in KINDS if word > "\u1100"), key=len, reverse=True))
)
"""Words of languages without blanks between words."""
_CAMELS: Final = re.compile(
    r"(?<=[a-z])(?<![KMGT]i)(?=[A-Z])|(?<=GPU)(?=[A-Z][a-z])|(?<=\d)(?=[A-Z][a-z])"
)
_TOKENS: Final = re.compile(r"[^\W_]+|%|[^\w\s.:/()\[\]#',;°-]")
_WORD_AND_NUMBER: Final = re.compile(r"([^\W\d]+)(\d{1,4})")
_LONGEST: Final = 1_000
"""Longest heading with a meaning; it may contain the names of a run and a node."""
_LONGEST_PLAIN: Final = 120
_LABELS: Final = re.compile(r"\s*([^{}]*?)\s*\{([^{}]*)\}\s*")
_LABEL: Final = re.compile(r'([A-Za-z_]\w*)\s*[=:]\s*"?([^",}]*)"?')
_GPU_IN_PATH: Final = re.compile(r"(?:gpu|cuda|device)(?:[ _:.#-]|id|index)*(\d{1,4})")
_OF_A_GPU: Final = re.compile(r"gpu|cuda|device")
_OF_SOMETHING_ELSE: Final = re.compile(r"cpu|mem|disk|net|process|pid|power|temp")
_RELATIVE: Final = frozenset(("relative", "since", "run", "start", "t", "second", "seconds"))
LAST_STAMP_RANK: Final = 900
"""The rank of ``epoch``, which may also be the epoch of a training run."""
_OWN: Final = tuple(
    (re.compile(pattern, re.ASCII), meanings)
    for pattern, meanings in (
        # Weights & Biases
        (r"(?:(?P<run>.+) - )?(?:system[./])?gpu\.(?P<gpu>\d{1,4})\."
         r"(?P<what>gpu|memoryAllocatedBytes)(?:/l:(?P<node>.+))?",
         {"gpu": (Column.UTILIZATION, 1), "memoryAllocatedBytes": (Column.MEMORY_USED, 1)}),
        # nvitop's ResourceMetricCollector
        (r"(?P<tag>.+?)/(?:cuda:\d+ \()?gpu:(?:(?P<gpu>\d{1,4})(?::(?P<part>\d+))?"
         r"|\((?P<mig_gpu>\d{1,4}), (?P<mig_part>\d+)\))\)?/"
         r"(?P<what>gpu_utilization \(%\)|memory_used \(MiB\)|memory_total \(MiB\))"
         r"(?:/(?P<how>mean|last))?",
         {"gpu_utilization (%)": (Column.UTILIZATION, 1), "memory_used (MiB)":
          (Column.MEMORY_USED, MIB), "memory_total (MiB)": (Column.MEMORY_TOTAL, MIB)}),
        (r"(?P<tag>.+)/(?P<what>timestamp|duration \(s\))(?:/(?P<how>mean|last))?",
         {"timestamp": (Column.STAMP, NS_PER_S), "duration (s)": (Column.STAMP, NS_PER_S)}),
        # gpumon's own plugin in dstat and dool
        (r"gpu(?P<gpu>\d{1,4})(?::(?P<part>\d+))?(?:-sim|-rec)?:(?P<what>use)",
         {"use": (Column.UTILIZATION, 1)}),
    )
)  # fmt: skip
"""Headings of single tools: their pattern, and the meaning of its words."""


@lru_cache(4_096)
def heading_of(text: str) -> Heading | None:
    """Return the meaning of a heading; ``None``: not relevant.

    >>> heading_of("night-run - system/gpu.1.gpu").gpu
    HeadingGpu(owner='night-run', number=1, mig_index=None, uuid=None)
    >>> heading_of("night-run - system/gpu.1.gpu__MAX"), heading_of("system/cpu_utilization [%]")
    (None, None)
    >>> heading_of("显卡利用率(%)").column, heading_of('GPU load {gpu="1"}').gpu.number
    (<Column.UTILIZATION: 'utilization.gpu'>, 1)
    """
    bare = text.strip()
    if len(bare) > _LONGEST:
        return None
    own = _of_one_tool(bare)
    if own is not None or (len(bare) > _LONGEST_PLAIN and "{" not in bare):
        return own
    if "{" in bare:
        return _with_labels(bare)
    if is_known(bare):
        return metric_of(bare, None)
    path, _, name = bare.rpartition(":" if bare.startswith(":") and "/" not in bare else "/")
    if not path or "(" in path.rpartition(")")[2]:
        return _from_words(bare)
    return _in_path(folded(path), name)


def column_named(text: str) -> Column | None:
    """Return the column of a heading in a table with a row for each GPU; ``None``: none.

    >>> column_named("Utilisation du GPU (%)"), column_named("gpu0_util"), column_named("epoch")
    (<Column.UTILIZATION: 'utilization.gpu'>, None, None)
    """
    meant = heading_of(text) if len(text) <= _LONGEST_PLAIN else None
    if meant is None or meant.gpu is not None or meant.rank >= LAST_STAMP_RANK:
        return None
    return meant.column


def _of_one_tool(text: str) -> Heading | None:
    for pattern, meanings in _OWN:
        found = pattern.fullmatch(text)
        if found is None:
            continue
        named = found.groupdict()
        column, unit = meanings[named["what"]]
        rank = 2 * (named.get("tag") or "").count("/") + (named.get("how") == "last")
        if column is Column.STAMP:
            # Collections may be nested: the outer one has the shorter name.
            return Heading(column, rank=rank + 100 * (named["what"] != "timestamp"), unit=unit)
        owner = " on ".join(filter(None, (named.get("run"), named.get("node"))))
        index, part = (
            named.get("gpu") or named["mig_gpu"],
            named.get("part") or named.get("mig_part"),
        )
        gpu = HeadingGpu(owner, int(index or 0), int(part) if part else None)
        is_optional = "run" in named
        return Heading(column, gpu, rank=rank, unit=unit, is_optional=is_optional)
    return None


def _with_labels(text: str) -> Heading | None:
    """Read ``DCGM_FI_DEV_GPU_UTIL{gpu="0"}`` as Grafana writes it, or a legend before labels."""
    found = _LABELS.fullmatch(text)
    labels = dict(_LABEL.findall(found[2].replace('""', '"'))) if found else {}
    name = found[1] or labels.pop("__name__", "") if found else ""
    if not name or not labels:
        return None
    owner = owner_of(labels)
    gpu = HeadingGpu(owner.host, owner.gpu.index, owner.gpu.mig_index, owner.gpu.uuid)
    legend = None if is_known(name) else _from_words(name)
    if legend is not None and legend.column is Column.UTILIZATION and not legend.rank:
        return replace(legend, gpu=gpu, rank=1, is_worded=False)
    meant = metric_of(name, None)
    return None if meant is None else replace(meant, gpu=gpu, rank=min(meant.rank, 1))


def _in_path(path: str, name: str) -> Heading | None:
    """Read ``device_id: 0/utilization.gpu (%)``, where the GPU may stand in front."""
    meant = _from_words(name)
    if meant is None or _OF_SOMETHING_ELSE.search(path):
        return None
    if meant.column in (Column.STAMP, Column.DATE):
        return _from_words(f"{path} {name}")
    number = _GPU_IN_PATH.search(path)
    is_of_gpu = meant.gpu is not None or _OF_A_GPU.search(path) is not None
    if meant.column in (Column.INDEX, Column.NAME) or (meant.rank and not is_of_gpu):
        return None
    gpu = meant.gpu or HeadingGpu("", int(number[1]) if number else None)
    return replace(meant, gpu=gpu, is_worded=False)


def _from_words(text: str) -> Heading | None:
    """Read ``gpu_2_mem_used_mib``, ``GPU-Auslastung [%]``: known words and at most one number."""
    words: list[str] = []
    numbers: list[str] = []
    spaced = _CAMELS.sub(" ", text)
    spaced = folded(spaced)
    if not spaced.isascii():
        spaced = _UNSPACED.sub(r" \g<0> ", spaced)
    for token in _TOKENS.findall(spaced):
        joined = _WORD_AND_NUMBER.fullmatch(token)
        if joined is not None:
            words.append(joined[1])
            numbers.append(joined[2])
        else:
            (numbers if token.isdecimal() else words).append(token)
    if not words or len(numbers) > 1 or any(len(number) > 4 for number in numbers):
        return None
    words = [part for word in words for part in _parts_of(word)]
    if not all(word in KINDS for word in words):
        return None
    number = int(numbers[0]) if numbers else None
    return _Words(words).meaning(number, text.lower())


def _parts_of(word: str) -> tuple[str, ...]:
    rest = word.removeprefix("gpu")
    return ("gpu", rest) if rest != word and rest in KINDS and word not in KINDS else (word,)


class _Words:
    """The words of one heading, all of them known."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._kinds = set().union(*(KINDS[word] for word in words))

    def has(self, *kinds: WordKind) -> bool:
        return not self._kinds.isdisjoint(kinds)

    def are(self, *kinds: WordKind) -> bool:
        """Return whether each word is of one of the kinds."""
        return all(not KINDS[word].isdisjoint((*kinds, WordKind.FILLER)) for word in self._words)

    def meaning(self, number: int | None, text: str) -> Heading | None:
        gpu = None if number is None else HeadingGpu("", number)
        found = self._utilization(gpu, text) or self._memory(gpu)
        return found or (None if gpu is not None else self._stamp() or self._identity())

    def _utilization(self, gpu: HeadingGpu | None, text: str) -> Heading | None:
        numbered = () if gpu is None else (WordKind.ID, WordKind.INDEX)
        core = (WordKind.CORE,) if self.has(WordKind.GPU) else ()
        busy = (WordKind.SURELY_BUSY, WordKind.BUSY, WordKind.WEAKLY_BUSY)
        if not self.are(WordKind.GPU, *busy, WordKind.PERCENT, WordKind.RATIO, *numbered, *core):
            return None
        is_gpu, is_sure = self.has(WordKind.GPU), self.has(WordKind.SURELY_BUSY)
        is_busy = is_sure or self.has(WordKind.BUSY) or (is_gpu and self.has(WordKind.WEAKLY_BUSY))
        is_percent = True if self.has(WordKind.PERCENT) or "utilization.gpu" in text else None
        if self.has(WordKind.RATIO):
            is_percent = False
        if gpu is None:
            if not is_busy and not (is_gpu and self.has(WordKind.PERCENT)):
                return None
            rank = 0 if is_gpu else 1
            return Heading(Column.UTILIZATION, rank=rank, is_percent=is_percent, is_worded=True)
        if not (is_gpu or is_sure):
            return None
        rank = 0 if is_sure and is_gpu else 1 if is_busy or is_percent is not None else 2
        return Heading(Column.UTILIZATION, gpu, rank, is_percent=is_percent, is_worded=True)

    def _memory(self, gpu: HeadingGpu | None) -> Heading | None:
        known = (WordKind.MEMORY, WordKind.GPU, WordKind.USED, WordKind.TOTAL, WordKind.BYTES)
        if not self.has(WordKind.MEMORY) or not self.are(*known):
            return None
        units = [BYTES_OF_NAME[word] for word in self._words if word in BYTES_OF_NAME]
        is_total = self.has(WordKind.TOTAL) and not self.has(WordKind.USED)
        column = Column.MEMORY_TOTAL if is_total else Column.MEMORY_USED
        has_kind = self.has(WordKind.USED, WordKind.TOTAL) or bool(units)
        if gpu is None and not has_kind:
            has_kind = self.has(WordKind.GPU) or "vram" in self._words
        if not has_kind or (gpu is not None and not units):
            return None
        return Heading(column, gpu, unit=units[0] if units else MIB)

    def _stamp(self) -> Heading | None:
        times = (WordKind.STAMP, WordKind.TIME, WordKind.SINCE)
        units = [UNITS_NS[word] for word in self._words if word in UNITS_NS]
        if self._words == ["epoch"]:
            return Heading(Column.STAMP, rank=LAST_STAMP_RANK, unit=NS_PER_S)
        if self.are(WordKind.DAY):
            return Heading(Column.DATE, rank=230)
        has_time = self.has(*times, WordKind.DAY) or (len(self._words) > 1 and "at" in self._words)
        is_unit = len(self._words) == 1 and bool(units) and len(self._words[0]) > 3
        if not (has_time or is_unit) or not self.are(
            *times, WordKind.DAY, WordKind.WITH_TIME, WordKind.SECONDS
        ):
            return None
        is_since = is_unit or self.has(WordKind.SINCE) or not _RELATIVE.isdisjoint(self._words)
        rank = 260 if is_since else 200 if self.has(WordKind.STAMP) else 210
        return Heading(Column.STAMP, rank=rank, unit=units[0] if units else NS_PER_S)

    def _identity(self) -> Heading | None:
        words = set(self._words)
        if self.are(WordKind.GPU, WordKind.UUID) and self.has(WordKind.UUID):
            return Heading(Column.UUID)
        if self.are(WordKind.HOST, WordKind.NAME, WordKind.ID) and self.has(WordKind.HOST):
            return Heading(Column.HOST)
        if self.are(WordKind.GPU, WordKind.BUS) and "bus" in words:
            return Heading(Column.BUS_ID)
        if self.are(WordKind.GPU, WordKind.SERIAL) and "serial" in words:
            return Heading(Column.SERIAL)
        if self.are(WordKind.GPU, WordKind.INDEX, WordKind.ID) and self.has(
            WordKind.GPU, WordKind.INDEX
        ):
            return Heading(Column.INDEX, rank=0 if self.has(WordKind.INDEX, WordKind.ID) else 1)
        if self.are(WordKind.MIG) and "mig" in words:
            return Heading(Column.MIG)
        if self.are(WordKind.GPU, WordKind.NAME) and (len(words) > 1 or "name" in words):
            return Heading(Column.NAME)
        return None


def heading_is_percent(heading: str) -> bool | None:
    """Return whether a heading means percent, a ratio (``False``), or does not say."""
    meant = heading_of(heading)
    if meant is not None and meant.column is Column.UTILIZATION:
        return meant.is_percent
    return True if {"%", "percent", "pct"} & set(_TOKENS.findall(heading.lower())) else None


def columns_by_meaning(chosen: Mapping[str, int | str]) -> dict[Column, int | str]:
    """Return the columns that a user named, by meaning; unknown names are left out.

    >>> columns_by_meaning({"utilization.gpu [%]": 1, "mood": 2})
    {<Column.UTILIZATION: 'utilization.gpu'>: 1}
    """
    named = {column_named(name): place for name, place in chosen.items()}
    return {column: place for column, place in named.items() if column is not None}


def chosen_unit_is_percent(chosen: Mapping[str, int | str]) -> bool | None:
    """Return whether a user named the utilisation with percent or ratio (``False``), or neither.

    >>> names = ("utilization.gpu [%]", "utilization.gpu [ratio]", "utilization.gpu")
    >>> [chosen_unit_is_percent({name: 1}) for name in names]
    [True, False, None]
    """
    for name in chosen:
        if column_named(name) is Column.UTILIZATION:
            tokens = set(_TOKENS.findall(name.lower().replace("_", " ")))
            if tokens & {"percent", "pct", "%"}:
                return True
            if tokens & {"ratio", "share"}:
                return False
    return None
