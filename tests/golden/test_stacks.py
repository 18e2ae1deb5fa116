"""Reports on GPUs whose idle time stack samples explain, pinned word for word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpumon.core.accounting.suspicion import Suspicion
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport
from gpumon.core.stacks.evidence import PlaceCount, StackFinding, UserFunction
from gpumon.core.stacks.stack import StackFrame
from gpumon.core.verdict import LikelyCause
from gpumon.outlets.text.report_text import render_report
from tests.builders.report import gpu, report, with_totals
from tests.builders.time import s
from tests.golden_files import Chapters, golden_story
from tests.unit.outlets.report_lines import PLAIN

INPUT, SAVE, UNKNOWN = IdleCause.INPUT_WAIT, IdleCause.CHECKPOINT, IdleCause.UNKNOWN
PACKAGES = "/opt/env/lib/python3.11/site-packages"
LOADER = StackFrame("_BaseDataLoaderIter.__next__", f"{PACKAGES}/torch/utils/data/dataloader.py")
SAVES = StackFrame("save", f"{PACKAGES}/torch/serialization.py")
TRAIN, VALIDATE = (
    StackFrame("train", "/home/ann/job/train.py", 41),
    StackFrame("validate", "/home/ann/job/train.py", 77),
)
RESIZE = StackFrame("resize", "/home/ann/job/dataset.py", 88)


def looked_at(
    one: GpuReport, finding: StackFinding, seen_s: dict[IdleCause, float], **totals: Any
) -> GpuReport:
    seen_ns = {cause: s(seconds) for cause, seconds in seen_s.items()}
    return replace(with_totals(one, seen_ns=seen_ns, **totals), stacks=finding)


def finding(
    cause: IdleCause,
    frame: StackFrame | None,
    caller: StackFrame,
    samples: int,
    function: UserFunction | None = None,
) -> StackFinding:
    what = {LOADER: "DataLoader.__next__", SAVES: "torch.save"}.get(frame or caller, "")
    place = PlaceCount(cause, what, frame, caller, samples)
    return StackFinding(idle_samples=samples, busy_samples=12, places=(place,), function=function)


@golden_story
def test_reports_by_stacks() -> Chapters:
    in_resize = UserFunction(RESIZE, TRAIN, 31, 0, is_compared=True)
    in_validate = UserFunction(VALIDATE, TRAIN, 17, 1, is_compared=True)
    loads = finding(INPUT, LOADER, TRAIN, 31, in_resize)
    bare = gpu(40, {INPUT: 12, UNKNOWN: 8}, suspected_s=7, pauses=40)
    whole = gpu(40, {INPUT: 20}, pauses=40)
    few = gpu(40, {INPUT: 5, UNKNOWN: 15}, suspected_s=14, pauses=40)
    likely = Suspicion(0.78, (LikelyCause.LATE_INPUT, LikelyCause.OTHER_MACHINES))
    other = Suspicion(0.12, (LikelyCause.EVERY_N_STEPS, LikelyCause.OTHER_MACHINES))
    pages = {
        "a part of the pauses was sampled": looked_at(
            bare, loads, {INPUT: 12}, seen_samples={INPUT: 31}, sampled_pauses=33,
            seen_input_pauses=31, suspicion=likely,
        ),
        "a part of the wait is tagged": looked_at(
            whole, loads, {INPUT: 5}, seen_samples={INPUT: 14}, sampled_pauses=14,
            seen_input_pauses=14,
        ),
        "too few samples for a verdict": looked_at(
            few, finding(INPUT, LOADER, TRAIN, 7), {INPUT: 5}, seen_samples={INPUT: 7},
            sampled_pauses=7, seen_input_pauses=7, suspicion=likely,
        ),
        "checkpoints": looked_at(
            gpu(40, {SAVE: 12, UNKNOWN: 1}, pauses=6), finding(SAVE, SAVES, TRAIN, 19),
            {SAVE: 12}, seen_samples={SAVE: 19}, sampled_pauses=6, suspicion=other,
        ),
        "no pattern knows the function": looked_at(
            gpu(40, {UNKNOWN: 20}, pauses=10), finding(UNKNOWN, None, VALIDATE, 18, in_validate),
            {}, sampled_pauses=9, suspicion=other,
        ),
    }  # fmt: skip
    return {title: render_report(report(one), PLAIN) for title, one in pages.items()}
