"""A plain torch loop that knows its own truth, with one tool in it, or none.

    python benchmarks/rivals/torch_training.py --case slow_data --tool gpumon --result /tmp/r.json

Truth comes from below every hook: the device is a layer that sleeps and notes
when, everything else that takes time is a sleep that times itself. Starts no
tool's processes: ``benchmarks.bench_hooks_torch_loop`` does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
from torch import nn

from benchmarks.rivals.torch_cases import CASES, Case
from benchmarks.rivals.torch_hooks import HOOKS, Bare
from trainer_hooks.examples.busy_spans import BusySpans

ROWS, WIDTH, PAIRS = 32, 64, 25
HOLD_S = 1.5


class Truth:
    """Seconds that the script itself measured, by what they went to."""

    def __init__(self, spans: BusySpans | None) -> None:
        self.seconds = dict.fromkeys(("input_wait", "callbacks", "checkpoint", "validation"), 0.0)
        self.device_s = 0.0
        self._spans = spans

    def device_works(self, seconds: float) -> None:
        """The device computes for so long, and the host waits for it."""
        start_ns = time.monotonic_ns()
        time.sleep(seconds)
        end_ns = time.monotonic_ns()
        self.device_s += (end_ns - start_ns) / 1e9
        if self._spans is not None:
            self._spans.note(start_ns, end_ns)

    def spend(self, what: str, act: Callable[[], object], at_least_s: float = 0.0) -> None:
        """Do something on the host, for ``at_least_s`` at least; the device is idle meanwhile."""
        start_s = time.monotonic()
        act()
        time.sleep(max(0.0, at_least_s - (time.monotonic() - start_s)))
        self.seconds[what] += time.monotonic() - start_s


class Device(nn.Module):
    """Passes its input on, and keeps the device at work on the way there and on the way back."""

    def __init__(self, case: Case, truth: Truth) -> None:
        super().__init__()

        class Work(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, rows: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
                truth.device_works(case.forward_s)
                return rows.clone()

            @staticmethod
            def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
                truth.device_works(case.backward_s)
                return gradient

        self._work = Work

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self._work.apply(rows)
        return result


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    """Batches that take their time."""

    def __init__(self, case: Case, truth: Truth) -> None:
        self._steps = case.epoch_steps or case.steps
        self._input_s, self._truth = case.input_s, truth
        self._rows = torch.ones(ROWS, WIDTH)

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._input_s:
            self._truth.spend("input_wait", lambda: None, self._input_s)
        return self._rows


class Training:
    """The loop, as people write it."""

    def __init__(self, case: Case, truth: Truth) -> None:
        self._case, self._truth = case, truth
        layers: list[nn.Module] = []
        pairs = PAIRS if not case.forward_s else 2
        for _ in range(pairs):
            layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        if case.forward_s:
            layers.append(Device(case, truth))
        self.model = nn.Sequential(*layers)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self._scheduler = self._new_scheduler() if case.is_scheduler_first else None
        self.loader = torch.utils.data.DataLoader(Rows(case, truth), batch_size=None)
        self.epochs_us: list[dict[str, float]] = []
        self._done = 0

    def run(self, hooks: Sequence[Bare]) -> None:
        """Each hook has an epoch in turn."""
        case = self._case
        scheduler = self._scheduler or self._new_scheduler()
        for epoch in range(case.steps // (case.epoch_steps or case.steps)):
            start = Marks()
            self._epoch(hooks[epoch % len(hooks)], scheduler)
            if case.epoch_steps and epoch >= case.warm_up_epochs:
                self.epochs_us.append(Marks().since(start, case.epoch_steps))

    def _epoch(self, hook: Bare, scheduler: Any) -> None:  # noqa: ANN401
        for rows in hook.batches(self.loader):
            with hook.step(self.model):
                self._optimizer.zero_grad()
                loss = self.model(rows).square().mean()
                loss.backward()
                self._optimizer.step()
                scheduler.step()
            hook.stepped(ROWS)
            self._done += 1
            self._between_steps(hook, self._done)

    def _new_scheduler(self) -> Any:  # noqa: ANN401
        return torch.optim.lr_scheduler.StepLR(self._optimizer, step_size=1000)

    def _between_steps(self, hook: Bare, done: int) -> None:
        case, truth = self._case, self._truth
        if case.callback_s:
            with hook.region("callbacks"):
                truth.spend("callbacks", lambda: None, case.callback_s)
        if case.checkpoint_every and done % case.checkpoint_every == 0:
            with hook.region("checkpoint"):
                truth.spend("checkpoint", self._save, case.checkpoint_s)
        if case.validate_every and done % case.validate_every == 0:
            with hook.region("validation"), torch.no_grad():
                self._validate()

    def _save(self) -> None:
        with tempfile.TemporaryFile() as file:
            torch.save(self.model.state_dict(), file)

    def _validate(self) -> None:
        rows = torch.ones(ROWS, WIDTH)
        self.model.eval()
        for _ in range(self._case.validation_batches):
            self.model(rows)
            self._truth.spend("validation", lambda: None, self._case.metric_s)
        self.model.train()


class Marks:
    """Wall and CPU clocks at one moment, in nanoseconds."""

    def __init__(self) -> None:
        self._wall = time.perf_counter_ns()
        self._thread, self._process = time.thread_time_ns(), time.process_time_ns()

    def since(self, start: Marks, steps: int) -> dict[str, float]:
        """Microseconds a step: wall, CPU of the training thread, CPU of all threads."""
        return {
            "wall": (self._wall - start._wall) / steps / 1e3,
            "thread": (self._thread - start._thread) / steps / 1e3,
            "process": (self._process - start._process) / steps / 1e3,
        }


def main() -> int:
    """Train once, write the truth, and exit with the requested code."""
    args = _parser().parse_args()
    torch.set_num_threads(1)
    case: Case = CASES[args.case]
    spans = BusySpans(args.spans) if args.spans else None
    truth = Truth(spans)
    training = Training(case, truth)  # model, optimizer and scheduler before any hook
    hook = HOOKS[args.tool]()
    with hook.watching():
        start_s = time.monotonic()
        training.run([Bare(), hook] if args.alternate else [hook])
        wall_s = time.monotonic() - start_s
        if args.result:
            result = {
                "steps": case.steps, "wall_s": wall_s, "device_s": truth.device_s,
                "lost_s": truth.seconds, "epochs_us": training.epochs_us,
                "rss_mib": _resident_mib(), "pid": os.getpid(),
            }  # fmt: skip
            unfinished = args.result.with_suffix(".unfinished")
            unfinished.write_text(json.dumps(result), encoding="ascii")
            unfinished.rename(args.result)
        if args.hold:
            time.sleep(HOLD_S)
    return int(args.exit_code)


def _resident_mib() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=tuple(CASES), required=True)
    parser.add_argument("--tool", choices=tuple(HOOKS), default="bare")
    parser.add_argument("--spans", type=Path, help="where the device's busy spans go")
    parser.add_argument("--result", type=Path, help="where the truth goes, as JSON")
    parser.add_argument("--alternate", action="store_true", help="every other epoch without it")
    parser.add_argument("--hold", action="store_true", help="wait a moment, to be looked at")
    parser.add_argument("--exit-code", type=int, default=0)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
