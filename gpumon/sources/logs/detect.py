"""Finds the format of a log by its content, never by its file name, or refuses it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.driver_errors import DriverErrors
from gpumon.sources.logs.formats.dmon import DcgmiDmonLog, NvidiaSmiDmonLog
from gpumon.sources.logs.formats.gpustat import GpustatJsonLog, GpustatTextLog
from gpumon.sources.logs.formats.keyed_csv import KeyedCsvLog
from gpumon.sources.logs.formats.nvidia_smi_csv import NvidiaSmiCsvLog
from gpumon.sources.logs.formats.nvidia_smi_q import NvidiaSmiQueryLog
from gpumon.sources.logs.formats.nvidia_smi_table import NvidiaSmiTableLog
from gpumon.sources.logs.formats.prometheus_json import PrometheusLog
from gpumon.sources.logs.formats.wide_table import WideCsvLog, WideJsonLog
from gpumon.sources.logs.gpu_log import GpuLog
from gpumon.sources.logs.json_documents import JsonDocuments
from gpumon.sources.logs.line_prefixes import prefix_of
from gpumon.sources.logs.log_sample import BEST_QUERY, LogOptions, Mark, line_like
from gpumon.sources.logs.log_text import head_of
from gpumon.sources.logs.stamps.row_order import OrderedLog
from gpumon.sources.logs.table.cell_values import SkippedLines
from gpumon.sources.logs.table.column_layout import looks_like_header, unknown_column
from gpumon.sources.logs.table.column_names import Column
from gpumon.sources.logs.table.csv_rows import CellSplitter, separator_of
from gpumon.sources.logs.table.headings import column_named, columns_by_meaning

_ADVICE: Final = f"log with {BEST_QUERY} instead"
_RANGE: Final = (
    "it shows a single moment; ask Prometheus for a range, `/api/v1/query_range?query="
    "DCGM_FI_DEV_GPU_UTIL&start=...&end=...&step=1`, or " + _ADVICE
)
_AS_CSV: Final = (
    "write its values to a CSV with the columns timestamp, index and "
    '"utilization.gpu [%]", and analyze that'
)
_SCREEN: Final = "it holds only what changed on the screen; log line by line, with " + BEST_QUERY
_CURSOR_MOVE: Final = r"\x1b\[\d+;\d+[Hf]|\x1b\[\d+[dG]|\x1b\[\?1049h"
"""How a program writes at a position of a terminal."""


def _first_line_like(pattern: str) -> Mark:
    """Return a mark: the first line that is not blank, if ``pattern`` matches its start."""
    sought = re.compile(pattern, re.I)

    def mark(head: Sequence[str]) -> int | None:
        filled = next((at for at, line in enumerate(head, start=1) if line.strip()), None)
        return filled if filled is not None and sought.match(head[filled - 1]) else None

    return mark


def _screen_with(pattern: str) -> Mark:
    """Return a mark: a screen of a terminal, if ``pattern`` is on it."""
    sought, cursor_move = line_like(pattern), line_like(_CURSOR_MOVE)

    def mark(head: Sequence[str]) -> int | None:
        number = sought(head)
        return number if cursor_move(head) is not None else None

    return mark


_OTHER_TOOLS: Final = (
    ("the XML of nvidia-smi -q -x", line_like(r"<nvidia_smi_log\b"), _ADVICE),
    (
        "a page of HTML",
        _first_line_like(r"\ufeff?\s*<(?:!DOCTYPE html|html|head|body)\b"),
        "save what the page shows as CSV or JSON, or " + _ADVICE,
    ),
    (
        "a table of Markdown or of a database",
        line_like(r"^\|? ?:?-{2,}:? ?\|[-:| ]*$|^-{2,}\+[-+]+$"),
        "save it as CSV, or " + _ADVICE,
    ),
    (
        "what an exporter serves as /metrics",
        _first_line_like(
            r"\ufeff?# (?:HELP|TYPE) [a-z_:][\w:]* |[a-z_:][\w:]*\{[a-z_]\w*=\"[^\n]*\} [-+.\dNI]"
        ),
        _RANGE,
    ),
    (
        "the total of all GPUs by dstat or dool (gpu-tot)",
        line_like(r"^(?!.*\bgpu\d[\w:-]*:use\b).*\bgpu-tot[\w-]*:use\b"),
        "a mean hides the pauses of each GPU: log again with DSTAT_GPU=all",
    ),
    (
        "the output of nvidia-smi pmon, of processes",
        line_like(r"^\s*#.*\bgpu\b.*\bpid\b"),
        "other users' processes may be missing, so a busy GPU looks idle: log with `nvidia-smi "
        "dmon -s um -o DT`, or " + BEST_QUERY,
    ),
    (
        "the output of nvitop",
        line_like(r"^(?:\x1b\[[0-9;]*m)*[│|] NVITOP \d"),
        "save what nvitop's ResourceMetricCollector collects, as JSON lines or CSV, or " + _ADVICE,
    ),
    ("a screen of watch", _screen_with(r"Every \d+[.,]\d+ ?s\b"), _SCREEN),
    (
        "the output of nvtop",
        line_like(r"\bDevice \d+ \[[^\]]+\].*\bPCIe GEN|\"gpu_util\"\s*:\s*\"\d+ ?%\""),
        _SCREEN,
    ),
    (
        "the output of tegrastats, for Jetson boards",
        line_like(r"\bGR3D_FREQ\s+\[?\d+%|\bRAM \d+/\d+MB \(lfb "),
        _AS_CSV,
    ),
    (
        "the output of rocm-smi, for AMD GPUs",
        line_like(
            r"ROCm System Management Interface|\bROCM-SMI\b|\brocm-smi\b|GPU\[\d+\]\s*:\s"
            r"|^device,.*\bGPU use \(%\)|\"card\d+\"\s*:\s*\{"
        ),
        _AS_CSV,
    ),
    (
        "the output of amd-smi, for AMD GPUs",
        line_like(r"(?i)\bamd-?smi\b|\bgfx_(?:util|activity)\b|\bGFX%|^(?:\w+,)?gpu,.*\bgfx"),
        _AS_CSV,
    ),
    (
        "the output of intel_gpu_top, for Intel GPUs",
        line_like(r"intel.gpu.top|\bRC6\b.*\b[RC]CS\b|\bIRQ\s+RC6\b|\"Render/3D(?:/\d+)?\"\s*:"),
        _AS_CSV,
    ),
    (
        "the output of powermetrics or asitop, for Apple GPUs",
        line_like(
            r"\bpowermetrics\b|\*\*\* Sampled system activity|\*\*\*\* GPU usage"
            r"|\bGPU (?:HW )?active (?:residency|frequency):|\basitop\b|\bE-CPU Usage:"
        ),
        _AS_CSV,
    ),
    ("a screen of a terminal", line_like(_CURSOR_MOVE), _SCREEN),
)


def _refuse_other_tools(head: Sequence[str], name: str, *, before: int | None) -> None:
    """Refuse the output of another tool, if it comes before the line of a known format."""
    for title, mark, advice in _OTHER_TOOLS:
        number = mark(head)
        if number is not None and (before is None or number <= before):
            raise UnreadableLogError(
                f"{name}: line {number}: this is {title}, which gpumon does not read; {advice}"
            )


FORMATS: Final[tuple[type[GpuLog], ...]] = (
    WideCsvLog,
    KeyedCsvLog,
    WideJsonLog,
    PrometheusLog,
    DcgmiDmonLog,
    GpustatJsonLog,
    GpustatTextLog,
    NvidiaSmiQueryLog,
    NvidiaSmiDmonLog,
    NvidiaSmiTableLog,
)
"""Formats with an identifying line. Every other log is read as a plain CSV."""
_BEGINNING: Final = re.compile(
    r'\ufeff?\s*(?:\{\s*(?:["}]|$)|\[\s*(?:[{\["]|$|-?\d[\d.]*\s*,))'
)  # fmt: skip
_NAMED_KEYS: Final = 8
_NEEDED: Final = (
    "gpumon reads the JSON of `gpustat --json`, of nvitop's collector, of W&B's system metrics and "
    f"of Prometheus' range queries; or log with {BEST_QUERY}"
)
_DATED_ROW: Final = re.compile(r"\s*\d{4}[-/]\d\d?[-/]\d\d?[ T]\d\d?:\d\d:\d\d[^,;\t]{0,20}[,;\t]")


def reader_for(lines: Iterator[str], *, name: str, options: LogOptions) -> OrderedLog:
    """Return the reader of a log; only its first lines are consumed here.

    Raises:
        UnreadableLogError: A known format that is not read, unknown JSON, or mixed logs.
        UsageError: ``options`` name a column that such a log does not have.
    """
    head = head_of(lines)
    if not head:
        raise UnreadableLogError(f"{name}: has no lines")
    prefix = prefix_of(head, lambda bare: _format_of(bare)[1], name=name)
    if prefix is not None:
        head, lines = list(prefix.without(iter(head))), prefix.without(lines)
    known, number = _format_of(head)
    _refuse_other_tools(head, name, before=number)
    errors, passed = DriverErrors(), 0
    if errors.are_all(head):
        head, passed = errors.pass_over(lines, len(head))
        if not head:
            raise UnreadableLogError(f"{name}: {errors.sentence()}")
    known, _ = _format_of(head)
    if known.yields_to_csv and Column.UTILIZATION in columns_by_meaning(options.columns):
        known = NvidiaSmiCsvLog
    if known is NvidiaSmiCsvLog:
        _refuse_json(head, name=name)
    _refuse_unused(options, known, name)
    reader = known(chain(head, lines), name=name, options=options)
    reader.begin_below(errors, passed)
    return OrderedLog(reader, name=name, notes=[] if prefix is None else [prefix.note])


def _refuse_unused(options: LogOptions, known: type[GpuLog], name: str) -> None:
    for name_given in options.columns:
        column = column_named(name_given)
        if column is None:
            raise unknown_column(name_given)
        if column not in known.settable:
            read = ", ".join(option.value for option in known.settable)
            raise UsageError(
                f"--column {name_given}: {name} is of the format {known.title}, "
                + (f"where only {read} can be named" if read else "whose columns are known")
                + "; leave it out"
            )


def _refuse_json(head: Sequence[str], *, name: str) -> None:
    """Refuse a log that is JSON of no known format: say what it holds and what is needed."""
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
        found = f"has {', '.join(keys)}{more}, and no utilisation of a GPU that gpumon knows"
    else:
        found = "holds no complete object"
    raise UnreadableLogError(f"{name}: line 1: this is JSON that {found}; {_NEEDED}")


def _format_of(head: Sequence[str]) -> tuple[type[GpuLog], int | None]:
    """Return the first format in a log, and the number of the line that identifies it."""
    marks = [(log_format, log_format.mark(head)) for log_format in FORMATS]
    found = [(number, one) for one, number in marks if number is not None]
    first, known = min(found, key=lambda pair: pair[0], default=(None, None))
    # A CSV may be followed by the output of another tool.
    before = head[: (first or len(head) + 1) - 1]
    csv_at = _csv_line(before)
    if known is not None and csv_at is None:
        return known, first
    return NvidiaSmiCsvLog, csv_at


def _csv_line(head: Sequence[str]) -> int | None:
    """Return the number of the first line of a CSV: a header above a row, or a dated row."""
    splitter = CellSplitter(separator_of(head))
    width = 0
    for number, line in enumerate(head, start=1):
        if _DATED_ROW.match(line):
            return number
        cells = splitter.split(line)
        if not any(cell.strip() for cell in cells):
            continue
        if width and len(cells) == width and not looks_like_header(cells):
            return number - 1
        width = len(cells) if len(cells) > 1 and looks_like_header(cells) else 0
    return None
