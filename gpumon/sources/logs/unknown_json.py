"""JSON that no format knows: said in one sentence, with what is in it and what is needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.json_pieces import JsonDocuments
from gpumon.sources.logs.utilization_cells import SkippedLines

_BEGINNING: Final = re.compile(
    r'\ufeff?\s*(?:\{\s*(?:["}]|$)|\[\s*(?:[{\["]|$|-?\d[\d.]*\s*,))'
)  # fmt: skip
_NAMED_KEYS: Final = 8
_NEEDED: Final = (
    "gpumon reads the JSON of `gpustat --json`, of nvitop's collector, of W&B's system metrics and "
    "of Prometheus' range queries; or log with `nvidia-smi --query-gpu=timestamp,index,"
    "utilization.gpu --format=csv -l 1`"
)


def refuse_json(head: Sequence[str], *, name: str) -> None:
    """Refuse a log that is JSON. To be asked where no format knows it.

    Args:
        head: Its first lines.
        name: What to call it in sentences.

    Raises:
        UnreadableLogError: It is JSON; says what it holds and what is needed.
    """
    first_line = next((line for line in head if line.strip()), "")
    if _BEGINNING.match(first_line) is None:
        return
    documents = JsonDocuments(iter(head), name=name, skipped=SkippedLines())
    _, first = next(iter(documents), (0, {}))
    keys = [key[:60] for key in islice(first, _NAMED_KEYS)]
    if "gpus" in first and "query_time" not in first:
        found = "has `gpus` and no `query_time`"
    elif keys:
        more = ", ..." if len(first) > len(keys) else ""
        found = f"tells {', '.join(keys)}{more}, and no utilisation of a GPU that gpumon knows"
    else:
        found = "holds no complete object"
    raise UnreadableLogError(f"{name}: line 1: this is JSON that {found}; {_NEEDED}")
