"""What `gpumon why` prints, pinned word for word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpumon.core.diagnosis.stack_advice import SeenIdle, SeenProcess, held_up_by, stack_advice
from gpumon.core.phase import IdleCause, InputWaitReason
from gpumon.core.sample import Device
from gpumon.core.stacks.evidence import StackEvidence, StackFinding
from gpumon.core.stacks.place import STOPPED, Place
from gpumon.core.stacks.sample_join import SampleKind
from gpumon.core.stacks.sleeping import kernel_place_of
from gpumon.core.stacks.stack import ProcessStack, StackFrame, StackSample, ThreadStack
from gpumon.core.waits.reasons import WaitFigures, WaitReason
from gpumon.core.waits.wait_rules import LoaderPlace, ShortOf
from gpumon.outlets.text.stack_text import stacks_text, state_sentence
from gpumon.outlets.text.why_text import Why, why_text
from gpumon.pipeline.stack_watch import Ending, WatchedTime
from tests.builders.time import s
from tests.golden_files import Chapters, golden_story

IDLE, BUSY = SampleKind.IDLE, SampleKind.BUSY
PACKAGES = "/opt/env/lib/python3.11/site-packages"
GPU = Device(uuid="GPU-0", index=0, name="NVIDIA H100")
NEXT = StackFrame("_BaseDataLoaderIter.__next__", f"{PACKAGES}/torch/utils/data/dataloader.py", 725)
RESIZE = StackFrame("Image.resize", f"{PACKAGES}/PIL/Image.py", 2300)
LOADS = StackFrame("Shots.__getitem__", "/job/dataset.py", 88)
LOOP = StackFrame("main", "/job/train.py", 41)
STEP = Place(caller=StackFrame("main", "/job/train.py", 44), user_frames=(LOOP,))
LOADER = Place(IdleCause.INPUT_WAIT, NEXT, LOOP, (LOOP,), "DataLoader.__next__")
SAVES = Place(
    IdleCause.CHECKPOINT,
    StackFrame("save", f"{PACKAGES}/torch/serialization.py", 900),
    StackFrame("keep", "/job/train.py", 60),
    (LOOP, StackFrame("keep", "/job/train.py", 60)),
    "torch.save",
)
VALIDATES = Place(
    caller=StackFrame("validate", "/job/train.py", 30),
    user_frames=(LOOP._replace(line=77), StackFrame("validate", "/job/train.py", 30)),
)
LINES = {41: "for batch in loader:", 60: "torch.save(model, path)", 30: "score(model, rows)"}
WORKER_LOOP = StackFrame("_worker_loop", f"{PACKAGES}/torch/utils/data/_utils/worker.py", 374)
WAITS = StackFrame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 113)
FETCH = StackFrame("_MapDatasetFetcher.fetch", f"{PACKAGES}/torch/utils/data/_utils/fetch.py", 52)
WORKERS = tuple(
    ProcessStack(pid, 7, "python train.py", (ThreadStack(pid, (*calls, WORKER_LOOP)),))
    for pid, calls in [
        (8, (RESIZE, LOADS, FETCH)),
        (9, (RESIZE, LOADS, FETCH)),
        (10, (RESIZE, LOADS, FETCH)),
        (11, (WAITS,)),
    ]
)
FIGURES = WaitFigures(4.0, 3.9, 2.0, 2.0, None, None, None, None, None, None)
CPU = WaitReason(
    IdleCause.INPUT_WAIT, InputWaitReason.CPU_BOUND, s(21), 1.0, LoaderPlace.WORKERS,
    ShortOf.CORES, figures=FIGURES,
)  # fmt: skip


def found(*samples: tuple[SampleKind, Place, int], workers: Any = ()) -> StackFinding:
    evidence = StackEvidence()
    for kind, place, count in samples:
        for _ in range(count):
            evidence.add(kind, place, workers)
    return evidence.finding()


def watched(finding: StackFinding, idle_s: float = 21.4, **changes: Any) -> WatchedTime:
    time = WatchedTime(
        device=GPU, pid=4711, observed_ns=s(60), busy_ns=s(60 - idle_s), lowest_ratio=0.0,
        window_ns=s(1) // 6, ending=Ending.TIME, finding=finding, seen_idle_ns=s(idle_s),
        passed_ns=s(60),
    )  # fmt: skip
    return replace(time, **changes)


def printed(time: WatchedTime, *reasons: WaitReason, is_python: bool = True) -> str:
    process = SeenProcess("train.py", time.pid, reasons)
    advice = None
    if time.finding.is_enough:
        idle = SeenIdle(time.idle_ns, time.seen_idle_ns)
        advice = stack_advice(GPU, time.busy_ns, idle, time.finding, process)
    return why_text(
        Why(
            time, "train.py", advice, lambda frame: LINES.get(frame.line or 0, ""),
            held_up_by(time.finding, process), "gpumon why 4711 --for 120", is_python,
        )
    )  # fmt: skip


@golden_story
def test_why() -> Chapters:
    loads = found((IDLE, LOADER, 38), (IDLE, STEP, 3), (BUSY, STEP, 9), workers=WORKERS)
    one_process = LOADER._replace(user_frames=(LOOP, LOADS), inside=LOADS)
    in_threads = LOADER._replace(inside=LOADS)
    mixed = SampleKind.MIXED
    short = found((mixed, LOADER, 48), (mixed, STEP, 72))
    few = found((IDLE, LOADER, 4), (BUSY, STEP, 9))
    reads = ThreadStack(7, sleeps_in="nfs_wait", state="D")
    asleep = StackSample(0, 1, 7, (ProcessStack(7, None, "trainer", (reads,)),))
    saves = found((IDLE, SAVES, 30), (IDLE, LOADER, 10), (BUSY, STEP, 9))
    main = ThreadStack(7, (WAITS, NEXT, LOOP), is_active=False)
    failed = StackEvidence()
    failed.add_failure("the stacks of process 4711 changed while py-spy read them")
    return {
        "workers of a DataLoader are short of cores": printed(watched(loads), CPU),
        "nothing is known of the machine": printed(watched(loads)),
        "the training thread loads": printed(
            watched(found((IDLE, one_process, 40), (BUSY, STEP, 9)))
        ),
        "other threads load": printed(watched(found((IDLE, in_threads, 40), (BUSY, STEP, 9)))),
        "a checkpoint": printed(watched(saves)),
        "a function that no pattern knows": printed(
            watched(found((IDLE, VALIDATES, 41), (BUSY, STEP, 9)))
        ),
        "no function stands out": printed(watched(found((IDLE, STEP, 41), (BUSY, STEP, 9)))),
        "few samples": printed(watched(few, idle_s=4.0)),
        "fewer than ten samples agree": printed(
            watched(found((IDLE, LOADER, 8), (IDLE, STEP, 4), (BUSY, STEP, 9)))
        ),
        "no sample could be read": printed(watched(failed.finding())),
        "short pauses, and the stacks show less": printed(
            watched(short, idle_s=42.0, lowest_ratio=0.1)
        ),
        "short pauses": printed(watched(short, idle_s=24.0, lowest_ratio=0.4)),
        "short pauses, cause unknown": printed(
            watched(found((mixed, STEP, 90)), idle_s=24.0, lowest_ratio=0.4)
        ),
        "most of its pauses are too short to see": printed(watched(saves, seen_idle_ns=s(8))),
        "it never worked": printed(watched(found((IDLE, VALIDATES, 41)), idle_s=60.0)),
        "it is stopped": printed(watched(found((IDLE, Place(what=STOPPED), 41)))),
        "the GPU was lost meanwhile": printed(
            watched(saves, idle_s=21.4, passed_ns=s(90), trouble="GPU 0 is lost")
        ),
        "it was busy": printed(watched(few, idle_s=0.9)),
        "the process ended": printed(watched(few, idle_s=4.0, ending=Ending.PROCESS_ENDED)),
        "the GPU fell off the bus": printed(
            watched(StackFinding(), observed_ns=0, busy_ns=0, trouble="GPU 0 is lost")
        ),
        "a program without Python": printed(
            watched(found((IDLE, kernel_place_of(asleep), 30), (BUSY, Place(), 9))), is_python=False
        ),
        "its threads, where stacks may not be read": state_sentence(asleep),
        "stacks now": stacks_text(
            StackSample(
                0, 1, 7,
                (
                    ProcessStack(7, None, "python train.py", (main,)),
                    *WORKERS,
                ),
            )
        ),
    }  # fmt: skip
