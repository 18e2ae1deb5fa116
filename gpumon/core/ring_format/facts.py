"""A run's statements about itself: bounded JSON in page 0 of its ring."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import replace
from sys import intern
from typing import Any, Final, NoReturn

from gpumon.core.ring_format.events import LoaderFacts, RunFacts
from gpumon.core.ring_format.format import COUNT_LIMIT, FACTS_MAX_BYTES, FACTS_OFFSET, RingHeader
from gpumon.core.wording import is_truncated, label_text
from gpumon.errors import RingError

MAX_VISIBLE_TEXT: Final = 2_560
"""Characters of ``$CUDA_VISIBLE_DEVICES``: sixty-two UUIDs."""
MAX_GPUS: Final = 256
MAX_LOADER_FACTS: Final = 32
"""Facts about two loaders, for training and validation."""
MAX_CALLBACK_CLASSES: Final = 17
"""Sixteen by name, and one for the rest."""
MAX_CLASS_NAME: Final = 48
INPUT_WAIT_FACT: Final = "input_wait"
GROSS: Final = "gross"
"""A loader's waits that may have passed in part while the GPU computed."""
VALIDATION_FACTS: Final = "validation_"
"""Prefix of each fact about the validation loader."""
MAX_WORLD: Final = 1 << 24
_NOTHING: Final[dict[str, Any]] = {}
"""Most runs have few facts: one object for all, as hundreds of runs may be listed."""
MAX_PID: Final = 1 << 31
_MAX_NUMBER: Final = 1 << 63
_ROUNDING: Final = 1e-6
_LEFT_OUT_IN_ORDER: Final[tuple[dict[str, Any], ...]] = (
    {}, {"callback_ns": {}}, {"loader": {}}, {"shares": {}}, {"visible_devices": None},
    {"gpus": None},
)  # fmt: skip
"""What is left out, one after the other, if there is no room for it."""


def encode_facts(facts: RunFacts, *, wall_ns: int = 0) -> bytes:
    """The facts as JSON of at most ``FACTS_MAX_BYTES`` bytes.

    Long texts are truncated. A list of GPUs or shares is complete or left out: a part of it
    would mean that the run has fewer GPUs.

    Args:
        facts: What to encode.
        wall_ns: Wall clock at ``facts.started_ns``, nanoseconds since the epoch, by which a
            reader can date the run.
    """
    for left_out in _LEFT_OUT_IN_ORDER:
        facts = replace(facts, **left_out)
        text = json.dumps(_as_json(facts, wall_ns), ensure_ascii=False, separators=(",", ":"))
        raw = text.encode("utf-8")
        if len(raw) <= FACTS_MAX_BYTES:
            return raw
    raise RingError("the facts of this run do not fit the first page of its ring")


def have_room_for_gpus(facts: RunFacts) -> bool:
    """Whether the GPUs that the facts name fit into the ring."""
    read = parse_facts(encode_facts(facts))
    if facts.gpus is not None:
        return read.gpus is not None
    return facts.visible_devices is None or read.visible_devices is not None


def has_gross_waits(loader: Mapping[str, object]) -> bool:
    """Whether some of the run's waits for input may have passed while the GPU computed."""
    return loader.get(INPUT_WAIT_FACT) == GROSS


def facts_of_page(page: bytes, header: RingHeader) -> RunFacts | None:
    """The facts in page 0 of a ring; ``None`` if they were read while they were written.

    Raises:
        RingError: They are complete, but not what ``encode_facts`` writes.
    """
    raw = page[FACTS_OFFSET : FACTS_OFFSET + header.facts_bytes]
    return parse_facts(raw) if zlib.crc32(raw) == header.facts_crc else None


def parse_facts(raw: bytes) -> RunFacts:
    """Read facts, which anyone may have written.

    Raises:
        RingError: Not what ``encode_facts`` writes, or out of bounds.
    """
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RingError("the facts of a phase ring are not JSON") from error
    if not isinstance(value, dict):
        raise RingError("the facts of a phase ring are not an object")
    rank = _whole(value, "rank", MAX_WORLD)
    return RunFacts(
        run=_text(value, "run") or "unnamed",
        job=_text(value, "job"),
        rank=rank,
        world_size=max(_whole(value, "world_size", MAX_WORLD), rank + 1),
        pid=_whole(value, "pid", MAX_PID),
        tid=None if value.get("tid") is None else _whole(value, "tid", MAX_PID),
        framework=intern(_text(value, "framework")),  # hundreds of runs may have the same
        gpus=_gpus(value.get("gpus")),
        visible_devices=_visible_devices(value.get("visible_devices")),
        boot_id=intern(_text(value, "boot_id")),
        started_ns=_whole(value, "started_ns", _MAX_NUMBER),
        loader=_loader(value.get("loader")) or _NOTHING,
        callback_ns=_callbacks(value.get("callback_ns")) or _NOTHING,
        shares=_shares(value.get("shares")) or _NOTHING,
        ratio_changes=_whole({"ratio_changes": 0, **value}, "ratio_changes", COUNT_LIMIT),
        on_cpu=value.get("on_cpu") is True,
    )


def _as_json(facts: RunFacts, wall_ns: int) -> dict[str, object]:
    return {
        "run": label_text(facts.run),
        "job": label_text(facts.job),
        "rank": facts.rank,
        "world_size": facts.world_size,
        "pid": facts.pid,
        "tid": facts.tid,
        "framework": label_text(facts.framework),
        "gpus": None if facts.gpus is None else _gpus([*facts.gpus]),
        "visible_devices": _visible_devices(facts.visible_devices),
        "boot_id": label_text(facts.boot_id),
        "started_ns": facts.started_ns,
        "started_wall_ns": wall_ns,
        "loader": _loader(facts.loader),
        "callback_ns": _callbacks(facts.callback_ns),
        "shares": _shares(facts.shares),
        "ratio_changes": min(facts.ratio_changes, COUNT_LIMIT - 1),
        "on_cpu": facts.on_cpu,
    }


def _text(value: Mapping[str, object], name: str) -> str:
    text = value.get(name, "")
    if not isinstance(text, str):
        raise RingError(f"a phase ring whose {name} is not text")
    return label_text(text)


def _whole(value: Mapping[str, object], name: str, limit: int) -> int:
    number = value.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < limit:
        raise RingError(f"a phase ring whose {name} is no number from 0 to {limit}")
    return number


def _gpus(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list) or len(value) > MAX_GPUS:
        return None
    return tuple(label_text(gpu) for gpu in value if isinstance(gpu, str))


def _visible_devices(value: object) -> str | None:
    """The list without blanks; ``None`` if it is too long or was truncated by its writer."""
    if not isinstance(value, str):
        return None
    text = label_text(",".join(name.strip() for name in value.split(",")), MAX_VISIBLE_TEXT)
    return None if is_truncated(text) else text


def _loader(value: object) -> LoaderFacts:
    if not isinstance(value, dict):
        return {}
    kept: LoaderFacts = {}
    for name, fact in list(value.items())[:MAX_LOADER_FACTS]:
        if isinstance(fact, str):
            kept[label_text(name)] = label_text(fact)
        elif fact is None or (isinstance(fact, (int, float)) and abs(fact) < _MAX_NUMBER):
            kept[label_text(name)] = fact  # leaves NaN out, too
    return kept


def _callbacks(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    return {
        label_text(name, MAX_CLASS_NAME): spent_ns
        for name, spent_ns in list(value.items())[:MAX_CALLBACK_CLASSES]
        if isinstance(spent_ns, int)
        and not isinstance(spent_ns, bool)
        and 0 <= spent_ns < _MAX_NUMBER
    }


def _shares(value: object) -> dict[str, float]:
    """All shares or none: a part of them would mean that the other GPUs have nothing."""
    if not isinstance(value, dict) or not are_shares(value):
        return {}
    named = {label_text(name): float(share) for name, share in value.items()}
    return named if len(named) == len(value) else {}


def are_shares(value: Mapping[str, object]) -> bool:
    """Whether these are named parts of one batch that sum to 1 at most."""
    return (
        len(value) <= MAX_GPUS
        and all(isinstance(name, str) for name in value)
        and math.fsum(map(_part, value.values())) <= 1 + _ROUNDING
    )


def _part(share: object) -> float:
    """The part; infinity if it is not valid."""
    if isinstance(share, bool) or not isinstance(share, (int, float)):
        return math.inf
    return float(share) if 0 <= share <= 1 else math.inf


def refuse_constant(name: str) -> NoReturn:
    """Refuse ``NaN`` and ``Infinity``, which ``json.loads`` accepts: ``ValueError``."""
    raise ValueError(f"{name} is not JSON")
