"""What is below the table: one GPU's causes, advice, troubles, runs and processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.text import Text

from gpumon.core.clock import LONGEST_LOOK_BACK_S, nanoseconds
from gpumon.core.view.view import (
    PARTS,
    AdviceView,
    GpuView,
    HolderView,
    MonitorView,
    ProcessView,
    RunView,
)
from gpumon.core.wording import capital, counted, in_about, in_gibibytes, in_percent
from gpumon.outlets.screen.gpu_rows import NO_ANSWER, gpu_name, state_of, user_of
from gpumon.outlets.screen.ink import Ink

if TYPE_CHECKING:
    from gpumon.sources.host.process_usage import HostProcess

_STEP: Final = "  "
_LOSS_COLUMNS: Final = 26
_LOSS_BAR: Final = 20
_LEAST_SHOWN: Final = 0.005
_PROCESS_HEADINGS: Final = ("pid", "user", "GPU memory", "SM", "CPU", "memory", "command")
_PROCESS_WIDTHS: Final = (
    (8, True), (10, False), (10, True), (7, True), (7, True), (9, True),
)  # fmt: skip


class Details:
    """The lines about one GPU, in a width."""

    def __init__(self, view: MonitorView, width: int, ink: Ink) -> None:
        self._view, self._width, self._ink = view, max(1, width), ink

    def lines(self, gpu: GpuView, processes: Sequence[HostProcess] | None) -> list[Text]:
        """Everything about one GPU.

        Args:
            gpu: The GPU.
            processes: Its processes as this machine's kernel knows them, a parent before its
                children; ``None``: the GPU is not of this machine.
        """
        lines = [self._head(gpu), *self.what_and_next(gpu)]
        lines += self._losses(gpu)
        lines += self._processes(gpu, processes)
        for run in self._view.runs:
            if run.run in gpu.runs:
                lines += self._run(run)
        return lines

    def what_and_next(self, gpu: GpuView) -> list[Text]:
        """What is the matter with a GPU, and what to do about it."""
        lines = self._paragraph(gpu.line) if gpu.line else []
        advice = [self._view.advice[at] for at in gpu.advice if at < len(self._view.advice)]
        first = gpu.first_advice
        if first and not any(first in one.text or first.startswith(one.text) for one in advice):
            lines += self._paragraph(first, first=self._arrow)
        for trouble in gpu.troubles:
            sentence = f"{capital(trouble.advice)}."
            if trouble.advice and sentence != first:
                lines += self._paragraph(sentence, first=self._arrow)
        for one in advice:
            lines += self._advice(one)
        for text in (gpu.seen_text, *gpu.seen_files, gpu.hint):
            lines += self._paragraph(text) if text else []
        return lines

    @property
    def _arrow(self) -> str:
        return self._ink.plain("→ ")

    def title(self, gpu: GpuView) -> Text:
        """Which GPU, its status and since when, and whose processes are on it."""
        title = self._ink.text(f"{gpu_name(gpu)} ", "bold")
        title.append_text(state_of(gpu, self._ink))
        for fact in (gpu.since_text.strip(), user_of(gpu)):
            title.append_text(self._ink.text(f" {fact}" if fact else ""))
        return self._ink.fitted(title, min(self._width, cell_len(title.plain)))

    def _head(self, gpu: GpuView) -> Text:
        head = self.title(gpu)
        for fact in (gpu.name, *_levels(gpu), gpu.uuid):
            head.append_text(self._ink.text(f"  {fact}" if fact else "", self._ink.colour("quiet")))
        return self._ink.fitted(head, self._width)

    def _advice(self, advice: AdviceView) -> list[Text]:
        head = self._paragraph(advice.heading, first=self._arrow, style="bold")
        return head + self._paragraph(advice.text, first=_STEP)

    def _losses(self, gpu: GpuView) -> list[Text]:
        lines = []
        for part, share in sorted(gpu.lost_by_cause.items(), key=lambda one: -one[1]):
            if share < _LEAST_SHOWN:
                continue
            word = self._ink.text(PARTS.get(part, part))
            bar = self._ink.bar({part: share}, min(_LOSS_BAR, self._width // 4))
            line = Text.assemble(
                self._ink.fitted(word, _LOSS_COLUMNS), bar, f" {in_percent(share)} lost"
            )
            if part == gpu.cause and gpu.reason_text:
                line.append(": ").append_text(self._ink.text(gpu.reason_text))
            lines.append(self._ink.fitted(line, self._width))
        return lines

    def _processes(self, gpu: GpuView, processes: Sequence[HostProcess] | None) -> list[Text]:
        on_gpu: dict[int, ProcessView | HolderView] = {}
        if gpu.held_by is not None:
            on_gpu[gpu.held_by.pid] = gpu.held_by
        on_gpu |= {process.pid: process for process in gpu.processes or ()}
        on_host = {process.pid: process for process in processes or ()}
        pids = dict.fromkeys([*on_host, *on_gpu])
        if not pids:
            return []
        heading = self._process_row(_PROCESS_HEADINGS)
        heading.stylize(self._ink.colour("quiet"))
        return [
            heading,
            *(self._process_row(self._process(pid, on_gpu.get(pid), on_host.get(pid)))
              for pid in pids),
        ]  # fmt: skip

    def _process(
        self, pid: int, on_gpu: ProcessView | HolderView | None, on_host: HostProcess | None
    ) -> Sequence[str]:
        user, command, used, sm = "", "", None, None
        if on_gpu is not None:
            user, command = on_gpu.user or "", on_gpu.command or ""
            used = on_gpu.memory_used_bytes
            sm = on_gpu.sm_ratio if isinstance(on_gpu, ProcessView) else None
        cpu, memory, depth = None, None, 0
        if on_host is not None:
            user, command = user or on_host.user, command or on_host.command
            cpu, memory, depth = on_host.cpu_ratio, on_host.memory_bytes, on_host.depth
        return (
            f"{pid}",
            user or NO_ANSWER,
            NO_ANSWER if used is None else in_gibibytes(used),
            NO_ANSWER if sm is None else in_percent(sm),
            NO_ANSWER if cpu is None else f"{100 * cpu:.0f} %",
            NO_ANSWER if memory is None else in_gibibytes(memory),
            self._branch(depth) + (command or NO_ANSWER),
        )

    def _branch(self, depth: int) -> str:
        mark = "└ " if self._ink.unicode else "+ "
        return "  " * (depth - 1) + mark if depth else ""

    def _process_row(self, words: Sequence[str]) -> Text:
        cells = [
            self._ink.fitted(self._ink.text(word), width, right=is_right)
            for word, (width, is_right) in zip(words, _PROCESS_WIDTHS, strict=False)
        ]
        cells.append(self._ink.text(words[-1]))
        return self._ink.fitted(Text(" ").join(cells), self._width)

    def _run(self, run: RunView) -> list[Text]:
        facts = [run.phase_text, counted(run.steps, "step", "steps")]
        if run.step_seconds is not None:
            step_s = min(max(0.0, run.step_seconds), LONGEST_LOOK_BACK_S)
            facts.append(f"{in_about(nanoseconds(step_s))} a step")
        if run.epoch is not None:
            facts.append(f"epoch {run.epoch}")
        name = f"run {run.run}, rank {run.rank} (pid {run.pid}, {run.framework}): "
        held_up = f". {run.held_up_text}" if run.held_up_text else ""
        return self._paragraph(f"{name}{', '.join(facts)}{held_up}")

    def _paragraph(self, text: str, *, first: str = "", style: str = "") -> list[Text]:
        return self._ink.paragraph(text, self._width, first=first, style=style)


def _levels(gpu: GpuView) -> list[str]:
    facts = []
    if gpu.memory_used_bytes is not None:
        whole = gpu.memory_capacity_bytes
        of_whole = "" if whole is None else f" of {in_gibibytes(whole)}"
        facts.append(f"{in_gibibytes(gpu.memory_used_bytes)}{of_whole}")
    if gpu.power_watts is not None:
        limit = gpu.power_limit_watts
        facts.append(f"{gpu.power_watts:.0f}{'' if limit is None else f' of {limit:.0f}'} W")
    if gpu.temperature_celsius is not None:
        facts.append(f"{gpu.temperature_celsius:.0f} °C")
    if gpu.sm_clock_hertz is not None:
        facts.append(f"{gpu.sm_clock_hertz / 1e9:.2f} GHz")
    return facts
