"""What is known by sight and not read: whose it is, and what to do instead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import BEST_QUERY, Mark, line_like

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
_AT_A_PLACE: Final = r"\x1b\[\d+;\d+[Hf]|\x1b\[\d+[dG]|\x1b\[\?1049h"
"""How a program writes at some place of a terminal."""


def _first_line_like(pattern: str) -> Mark:
    """A mark: the first line that is not blank, if ``pattern`` matches its beginning."""
    sought = re.compile(pattern, re.I)

    def mark(head: Sequence[str]) -> int | None:
        filled = next((at for at, line in enumerate(head, start=1) if line.strip()), None)
        return filled if filled is not None and sought.match(head[filled - 1]) else None

    return mark


def _screen_with(pattern: str) -> Mark:
    """A mark: a screen of a terminal, if ``pattern`` is found on it."""
    sought, at_a_place = line_like(pattern), line_like(_AT_A_PLACE)

    def mark(head: Sequence[str]) -> int | None:
        number = sought(head)
        return number if at_a_place(head) is not None else None

    return mark


_TABLE: Final = (
    ("the XML of nvidia-smi -q -x", line_like(r"<nvidia_smi_log\b"), _ADVICE),
    (
        "a page of HTML",
        _first_line_like(r"\ufeff?\s*<(?:!DOCTYPE html|html|head|body)\b"),
        "save what the page shows as CSV or JSON, or " + _ADVICE,
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
        "the output of powermetrics, for Apple GPUs",
        line_like(
            r"\bpowermetrics\b|\*\*\* Sampled system activity|\*\*\*\* GPU usage"
            r"|\bGPU (?:HW )?active (?:residency|frequency):"
        ),
        _AS_CSV,
    ),
    ("a screen of asitop, for Apple GPUs", line_like(r"\basitop\b|\bE-CPU Usage:"), _AS_CSV),
    ("a screen of a terminal", line_like(_AT_A_PLACE), _SCREEN),
)


def refuse_what_is_not_read(head: Sequence[str], name: str, *, before: int | None) -> None:
    """Refuse what another tool wrote, in a sentence that names it and says what to do.

    Args:
        head: The first lines.
        name: Of the log.
        before: The line from which on the log is known; ``None``: it is not.

    Raises:
        UnreadableLogError: The head is of such a tool.
    """
    for title, mark, advice in _TABLE:
        number = mark(head)
        if number is not None and (before is None or number <= before):
            raise UnreadableLogError(
                f"{name}: line {number}: this is {title}, which gpumon does not read; {advice}"
            )
