"""Notes on logs of other tools, pinned word for word: what was done to rows, or a refusal."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.log_sample import LogOptions
from tests.builders.logs import NO_OPTIONS, read_log, rows, smi_log, smi_stamp
from tests.golden_files import Chapters, golden_story

HOUR = 3_600


def at(times_s: Sequence[float], *odd: str) -> str:
    """A log of rows at these times, and of odd rows."""
    stamped = (f"{smi_stamp(time_s)}, 0, 50 %" for time_s in times_s)
    return rows("timestamp, index, utilization.gpu [%]", *stamped, *odd)


def unnamed(cells: str, count: int = 30) -> str:
    return rows(*(f"{smi_stamp(second)}, {cells}" for second in range(count)))


def query(*series: tuple[dict[str, str], Sequence[object]]) -> str:
    results = [
        {
            "metric": labels,
            "values": [[1_780_000_000 + n, str(one)] for n, one in enumerate(values)],
        }
        for labels, values in series
    ]
    return json.dumps({"resultType": "matrix", "result": results})


BUSY, USED = {"__name__": "DCGM_FI_DEV_GPU_UTIL"}, {"__name__": "DCGM_FI_DEV_FB_USED"}
ACTIVE = {"__name__": "DCGM_FI_PROF_GR_ENGINE_ACTIVE"}


@golden_story
def test_words_on_logs() -> Chapters:
    def notes_on(log: str, options: LogOptions = NO_OPTIONS) -> str:
        try:
            _, facts = read_log(log, options)
        except (UnreadableLogError, UsageError) as refusal:
            return f"refused: {refusal}"
        return "\n".join(facts.notes)

    return {
        "a late row": notes_on(at([0.5, 1.5, 3.5, 2.5, 4.5])),
        "a duplicate row": notes_on(at([0.5, 1.5, 1.5, 2.5])),
        "a duplicate row with another value": notes_on(
            at([0.5, 1.5, 2.5], f"{smi_stamp(2.5)}, 0, 7 %")
        ),
        "a row that is too late": notes_on(at([0.5, *range(2, 9_000), 1, *range(9_000, 9_900)])),
        "whole seconds": notes_on(at([second // 5 for second in range(50)])),
        "the same time in every row": notes_on(at([7] * 99)),
        "a time of no known form": notes_on(at([], "noon, 0, 50 %")),
        "the end of summer time": notes_on(
            at([*range(HOUR, 3 * HOUR), *range(2 * HOUR, 3 * HOUR)])
        ),
        "a clock that is set back": notes_on(at([*range(1_000), *range(880, 2_000)])),
        "a part of an earlier time": notes_on(at([*range(5 * HOUR, 5 * HOUR + 500), *range(500)])),
        "what stands before each line": notes_on(
            "".join(f"[worker-0] {line}\n" for line in smi_log([5, 6]).splitlines())
        ),
        "no header": notes_on(unnamed("0, 50 %")),
        "no header, and memory": notes_on(unnamed("50 %, 9 MiB")),
        "no header, and several of memory": notes_on(unnamed("50 %, 9 MiB, 9 MiB")),
        "words, and no header": notes_on(rows(*(f"{n} INFO loss 0.5" for n in range(9)))),
        "days or months": notes_on(rows("time,gpu0,gpu1", "11/06/2025 10:00:00,97,98")),
        "percent, after shares": notes_on(
            rows("time,gpu_util", *(f"{n},0.5" for n in range(600)), "600,97")
        ),
        "a query of two metrics": notes_on(query((BUSY, [96]), (ACTIVE, [0.5]))),
        "a query of the better one last": notes_on(query((ACTIVE, [0.5]), (BUSY, [96]))),
        "a query of memory afterwards": notes_on(query((BUSY, [96]), (USED, [12_000]))),
        "a query of one GPU in two pods": notes_on(
            query(*(({**BUSY, "gpu": "0", "pod": pod}, [9, 9]) for pod in "ab"))
        ),
        "a query without names": notes_on(query(({}, [0.9, 1.01]))),
        "a query of 0 and 1": notes_on(query(({}, [0, 1]))),
        "a query of a counter": notes_on(query(({"__name__": "gpu_busy_seconds_total"}, [1, 2]))),
        "a query of something else": notes_on(query(({"__name__": "node_load1"}, [1]))),
        "a query twice": notes_on(query((BUSY, [96, 9])) * 2),
    }
