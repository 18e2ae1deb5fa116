"""Builds the view of a live state: the words of the terminal's report, for the page and top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.core.clock import seconds
from gpumon.core.codecs.field_codec import WallClock
from gpumon.core.device.sm_utilisation import is_under_filled
from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.cause_advice import held_advice
from gpumon.core.diagnosis.fill_advice import low_fill_sentence
from gpumon.core.diagnosis.input_advice import loss_reason, reason_seen
from gpumon.core.diagnosis.messages import (
    DOING,
    WORD_OF_CAUSE,
    WORD_OF_FIRST_WAIT,
    WORD_OF_REASON,
    WORD_OF_VERDICT,
)
from gpumon.core.diagnosis.pause_messages import likely_text
from gpumon.core.diagnosis.seen_messages import seen_files, seen_place, seen_share
from gpumon.core.phase import OUT_OF_USE, IdleCause, InputWaitReason
from gpumon.core.report.report import (
    FIRST_INPUT_WAIT,
    HANGING,
    HELD,
    LATE_RANK,
    OPEN_SPLIT,
    UNDER_FILLED,
    Advice,
    GpuReport,
    Report,
)
from gpumon.core.sample import ProcessSample
from gpumon.core.state import GpuState, MonitorState, RunState, origin_of
from gpumon.core.verdict import Severity, VerdictName
from gpumon.core.view.status import GpuStatus, Need, NeedOrder, Standing, Tone, status_of
from gpumon.core.view.view import (
    SUSPECTED,
    AdviceView,
    GpuView,
    Headline,
    HolderView,
    MonitorView,
    ProcessView,
    RecentCells,
    RunView,
    TroubleView,
)
from gpumon.core.wording import capital, gpus_named, in_gpu_time, in_percent, in_time, label_text
from gpumon.outlets.text.headline import has_instance, main_gpu, verdict_line, why_line
from gpumon.outlets.text.now_lines import (
    clock,
    ended_in_a_hang,
    hang_statement,
    held_statements,
    is_over,
    stands_still,
    standstill_statement,
    what_to_do_now,
)
from gpumon.outlets.text.report_lines import gain_sentence, next_advice, next_line, shown_notes
from gpumon.outlets.text.statements import (
    about,
    greatest_proved,
    joined,
    statement_on,
    verdict_word,
    waits_for_rank,
)
from gpumon.outlets.text.trouble_lines import trouble_words, worst_of

MAX_PROCESSES: Final = 64
"""Processes shown of one GPU: those with the most memory."""
_LINE_LENGTH: Final = 100
"""As many characters of a headline fit on one line of a page."""
_NO_CELLS: Final = RecentCells(0.0, 1.0, {})
_TONES: Final = {
    Severity.NONE: Tone.QUIET,
    Severity.MODERATE: Tone.WARN,
    Severity.HIGH: Tone.BAD,
}
_ADVICE_ON: Final = {
    FIRST_INPUT_WAIT: WORD_OF_FIRST_WAIT,
    HANGING: "hanging",
    HELD: "held idle",
    LATE_RANK: "waiting for a late rank",
    OPEN_SPLIT: "cause open",
    UNDER_FILLED: "low SM utilisation",
}
"""The headings of advice that is on no cause of idle time."""


class ViewBuilder:
    """Builds the view of successive states; keeps the order of the GPUs steady."""

    def __init__(self) -> None:
        self._order = NeedOrder()

    def view(
        self, state: MonitorState, report: Report, cells: Mapping[str, RecentCells]
    ) -> MonitorView:
        """The view of a state.

        Args:
            state: The state.
            report: The report on it.
            cells: The last minutes of its GPUs, by UUID.
        """
        states = {gpu.device.uuid: gpu for gpu in state.gpus}
        statuses = [status_of(gpu) for gpu in report.gpus]
        places = self._order.places(
            [_standing(gpu, status) for gpu, status in zip(report.gpus, statuses, strict=True)],
            state.taken_at_ns,
        )
        gpus = [
            _GpuText(report.gpus[at], report, state).view(
                statuses[at],
                states.get(report.gpus[at].uuid or ""),
                cells.get(report.gpus[at].uuid or "", _NO_CELLS),
            )
            for at in places
        ]
        labels = {gpu.device.uuid: gpu.device.label for gpu in state.gpus}
        return MonitorView(
            monotonic_seconds=seconds(state.taken_at_ns),
            wall_time_s=state.wall_time_s,
            started_at=origin_of(state)[0].isoformat(),
            period_seconds=seconds(state.period_ns),
            source=label_text(state.source, 400),
            simulated=state.simulated,
            replayed=state.replayed,
            boot_id=label_text(state.boot_id),
            headline=_on_one_line(headline_of(report), gpus),
            notes=tuple(shown_notes(report)),
            advice=tuple(_advice(one, report.at_present) for one in report.advice),
            gpus=tuple(gpus),
            runs=tuple(_run(run, labels) for run in sorted(state.runs, key=lambda r: not r.alive)),
        )


def headline_of(report: Report) -> Headline:
    """The three lines of a report, as in the terminal, with their tone and a short title."""
    advice = next_advice(report)
    verdict = capital(verdict_line(report))
    return Headline(
        tone=_tone(report),
        title=_title(report),
        line=verdict,
        verdict=verdict,
        why=capital(why_line(report)),
        next=capital(next_line(report)),
        advice=None if advice is None else report.advice.index(advice),
    )


def _on_one_line(headline: Headline, gpus: Sequence[GpuView]) -> Headline:
    """Names the GPUs that need help by their status, and counts those that are well.

    A verdict stays as it is if it is short, or if it is on one GPU or on what is over.
    """
    in_need = any(gpu.status.need < Need.WELL for gpu in gpus)
    if len(headline.verdict) <= _LINE_LENGTH or len(gpus) == 1 or not in_need:
        return headline
    statuses: dict[GpuStatus, list[GpuView]] = {}
    for gpu in gpus:
        statuses.setdefault(gpu.status, []).append(gpu)
    groups = []
    for status, members in sorted(statuses.items(), key=lambda one: one[0].need):
        if status.need is Need.QUIET:
            continue
        words = [gpus_named([gpu.label for gpu in members]), status.word]
        if status.need is Need.WELL:
            words[0] = str(len(members))
        elif len({gpu.since_text for gpu in members}) == 1:
            words.append(members[0].since_text)
        groups.append(" ".join(filter(None, words)))
    return headline._replace(line=" · ".join(groups))


def _standing(gpu: GpuReport, status: GpuStatus) -> Standing:
    key = gpu.uuid or gpu.label
    return Standing(key, gpu.parent_uuid or key, status.need, gpu.at_present.totals.lost_ns)


class _GpuText:
    """The texts on one GPU at present."""

    def __init__(self, gpu: GpuReport, report: Report, state: MonitorState) -> None:
        self._whole, self._report, self._state = gpu, report.at_present, state
        self._gpu = gpu.at_present
        self._clock = WallClock(*origin_of(state))

    def view(self, status: GpuStatus, state: GpuState | None, cells: RecentCells) -> GpuView:
        gpu, totals = self._gpu, self._whole.totals
        sample = state.latest if state is not None and state.present else None
        cause, reason = self._cause(), self._reason()
        since_ns, advice = self._since_ns(), self._advice()
        listed = None if sample is None else sample.processes
        return GpuView(
            label=gpu.label,
            uuid=label_text(gpu.uuid),
            number=gpu.index,
            parent_uuid=gpu.parent_uuid and label_text(gpu.parent_uuid),
            name=gpu.name and label_text(gpu.name),
            status=status,
            since=self._clock.encode(since_ns),
            since_text="" if since_ns is None else f"since {clock(self._report, since_ns)}",
            line=self._line(),
            cause=None if cause is None else cause.value,
            cause_text=self._cause_text(cause),
            reason=None if reason is None else reason.value,
            reason_text="" if reason is None else WORD_OF_REASON[reason],
            lost_ratio=self._lost_ratio(),
            lost_by_cause=self._lost_by_cause(),
            utilization_ratio=sample and sample.utilization_ratio,
            memory_used_bytes=sample and sample.memory_used_bytes,
            memory_capacity_bytes=None if state is None else state.device.memory_capacity_bytes,
            power_watts=sample and sample.power_watts,
            power_limit_watts=sample and sample.details and sample.details.power_limit_watts,
            temperature_celsius=sample and sample.temperature_celsius,
            sm_clock_hertz=sample and sample.sm_clock_hertz,
            advice=tuple(self._report.advice.index(one) for one in advice),
            first_advice=self._first_advice(advice),
            troubles=tuple(
                TroubleView(one.short_name, one.severity, one.text, one.advice)
                for one in gpu.troubles
            ),
            seen_text=joined((seen_share(totals), seen_place(gpu.stacks))),
            seen_files=seen_files(gpu.stacks),
            hint=low_fill_sentence(gpu) if is_under_filled(gpu.fill) else "",
            runs=tuple(
                label_text(run.run)
                for run in self._report.runs
                if run.alive and gpu.uuid in run.gpu_uuids
            ),
            held_by=self._holder(),
            processes=None if listed is None else _processes(listed),
            user=self._user(state),
            observed_ns=totals.observed_ns,
            busy_ns=totals.busy_ns,
            pending_ns=totals.pending_ns,
            in_use_ns=totals.in_use_ns,
            idle_ns=_idle_parts(self._whole),
            input_wait_by_reason_ns=dict(totals.input_wait_by_reason_ns),
            cells=cells,
        )

    def _line(self) -> str:
        gpu = self._gpu
        sentences = [
            f"{capital(one.text)}." for one in gpu.troubles if one.severity is not Severity.NONE
        ]
        if gpu.is_diagnosable and gpu.listed and not gpu.is_lost:
            sentences.append(self._statement())
            if gpu.verdict.name is VerdictName.STARVATION_SUSPECTED and not is_over(gpu):
                sentences.append(likely_text(gpu.verdict))
        elif not gpu.is_diagnosable:
            row = messages.NO_DATA if gpu.has_no_utilisation else messages.MIG_EMPTY
            has_instances = has_instance(gpu, self._report.gpus)
            sentences.append(messages.MIG_BELOW if has_instances else about(row, [gpu]))
        return capital(joined(sentences))

    def _statement(self) -> str:
        gpu, report = self._gpu, self._report
        if stands_still(gpu, report):
            return standstill_statement(gpu, report)
        if ended_in_a_hang(gpu):
            return hang_statement(gpu)
        held = held_statements([gpu], report)
        if held and (is_over(gpu) or not gpu.verdict.name.is_conclusive):
            return held
        return joined([statement_on(gpu, [gpu], report), held])

    def _cause(self) -> IdleCause | None:
        gpu = self._gpu
        is_at_work = not (gpu.is_lost or gpu.is_suspended or is_over(gpu))
        if not is_at_work or not gpu.verdict.name.is_of_a_loss:
            return None
        if gpu.verdict.name is VerdictName.STARVED:
            return IdleCause.INPUT_WAIT
        if waits_for_rank(gpu):
            return IdleCause.IMBALANCE
        cause = greatest_proved(gpu) if gpu.verdict.name is VerdictName.STALLED else None
        return cause or gpu.verdict.main_cause

    def _cause_text(self, cause: IdleCause | None) -> str:
        if self._gpu.verdict.name is VerdictName.STARVATION_SUSPECTED and (
            cause in (None, IdleCause.UNKNOWN)
        ):
            return "probably waiting for input"
        return "" if cause is None else WORD_OF_CAUSE[cause]

    def _reason(self) -> InputWaitReason | None:
        cause = self._cause()
        found = None if cause is None else loss_reason(cause, [self._gpu], self._report.runs)
        return None if found is None else found.reason

    def _since_ns(self) -> int | None:
        gpu = self._whole
        lost = next((one for one in gpu.troubles if one.is_of_a_lost_gpu), None)
        if lost is not None:
            return lost.last_ns
        if gpu.held is not None and not gpu.verdict.name.is_conclusive:
            return gpu.held.since_ns
        return None if gpu.now is None else gpu.now.since_ns

    def _advice(self) -> list[Advice]:
        cause = self._cause()
        mine = [one for one in self._report.advice if self._gpu.label in one.gpus]
        return sorted(mine, key=lambda one: cause is None or one.cause != cause.value)

    def _first_advice(self, advice: Sequence[Advice]) -> str:
        gpu = self._gpu
        for one in gpu.troubles:
            if one.severity is Severity.HIGH:
                return f"{capital(one.advice)}."
        if now := what_to_do_now(gpu, self._report):
            return capital(now)
        if advice and advice[0].cause == HELD:  # its own holder, of several
            alone = held_advice([gpu])
            return "" if alone is None else alone.text
        if advice:
            return joined([advice[0].text, gain_sentence(advice[0])])
        lesser = [one for one in gpu.troubles if one.severity is Severity.MODERATE]
        return f"{capital(lesser[0].advice)}." if lesser else ""

    def _lost_ratio(self) -> float | None:
        gpu = self._gpu
        if gpu.is_lost or is_over(gpu) or not gpu.is_diagnosable:
            return None
        return gpu.verdict.lost_ratio

    def _lost_by_cause(self) -> dict[str, float]:
        in_use_ns = self._gpu.totals.in_use_ns
        if self._lost_ratio() is None or not in_use_ns:
            return {}
        out_of_use = {cause.value for cause in OUT_OF_USE}
        return {
            part: ns / in_use_ns
            for part, ns in _idle_parts(self._gpu).items()
            if part not in out_of_use
        }

    def _user(self, state: GpuState | None) -> str | None:
        held, last = self._gpu.held, _processes(() if state is None else state.last_processes)
        if held is not None and held.user:
            return label_text(held.user)
        return last[0].user if last else None

    def _holder(self) -> HolderView | None:
        held = self._gpu.held
        if held is None:
            return None
        return HolderView(
            held.pid,
            held.user and label_text(held.user),
            held.command and label_text(held.command),
            held.memory_bytes,
            self._clock.encode(held.since_ns),
        )


def _idle_parts(gpu: GpuReport) -> dict[str, int]:
    """Idle time by part: what is suspected is no longer in ``unknown``."""
    totals = gpu.totals
    parts = {cause.value: ns for cause, ns in totals.idle_ns.items() if ns}
    if totals.suspected_ns:
        unknown_ns = parts.pop(IdleCause.UNKNOWN.value, 0) - totals.suspected_ns
        parts[SUSPECTED] = totals.suspected_ns
        if unknown_ns > 0:
            parts[IdleCause.UNKNOWN.value] = unknown_ns
    return parts


def _processes(listed: Sequence[ProcessSample]) -> tuple[ProcessView, ...]:
    """The processes on a GPU, those with the most memory first; names only if enabled."""
    by_memory = sorted(listed, key=lambda process: -(process.memory_used_bytes or 0))
    return tuple(
        ProcessView(
            process.pid,
            process.user and label_text(process.user),
            process.name and label_text(process.name),
            process.memory_used_bytes,
            process.sm_ratio,
        )
        for process in by_memory[:MAX_PROCESSES]
    )


def _advice(advice: Advice, report: Report) -> AdviceView:
    cause = _ADVICE_ON.get(advice.cause) or WORD_OF_CAUSE[IdleCause(advice.cause)]
    suspected = VerdictName.STARVATION_SUSPECTED
    on = [gpu.verdict.name for gpu in report.gpus if gpu.label in advice.gpus]
    if advice.cause == IdleCause.UNKNOWN.value and on and set(on) == {suspected}:
        cause = WORD_OF_VERDICT[suspected]
    lost = in_gpu_time if len(advice.gpus) > 1 else in_time
    facts = [cause]
    if advice.lost_seconds > 0.0:
        facts.append(f"{lost(round(advice.lost_seconds * 1e9))} lost")
    bound = advice.speedup_upper_bound
    if bound is not None and bound > 1.005:
        times = f"{bound:.{2 if bound < 10 else 0}f} times as fast"
        facts.append(f"{times}, or more" if advice.may_be_more else f"at most {times}")
    about = " · ".join(facts)
    return AdviceView(
        cause=advice.cause,
        cause_text=cause,
        gpus=advice.gpus,
        lost_seconds=advice.lost_seconds,
        speedup_upper_bound=advice.speedup_upper_bound,
        may_be_more=advice.may_be_more,
        heading=f"{gpus_named(advice.gpus)}: {about}" if advice.gpus else capital(about),
        text=advice.text,
        evidence=advice.evidence,
        reason=advice.reason,
    )


def _run(run: RunState, labels: Mapping[str, str]) -> RunView:
    phase = run.phase if run.alive else None
    why = next((one for one in run.reasons if reason_seen(one)), None)
    held_up = ""
    if why is not None:
        held_up = f"{capital(WORD_OF_CAUSE[why.cause])}, because of {reason_seen(why)}."
    return RunView(
        run=label_text(run.run),
        job=label_text(run.job),
        rank=run.rank,
        pid=run.pid,
        framework=label_text(run.framework),
        alive=bool(run.alive),
        phase=None if phase is None else phase.value,
        phase_text="ended" if not run.alive else "unknown" if phase is None else DOING[phase],
        steps=run.steps,
        epoch=run.epoch,
        gpus=tuple(labels.get(uuid, label_text(uuid)) for uuid in run.gpu_uuids),
        wall_seconds=seconds(run.wall_ns),
        step_seconds=None if run.step_ns is None else seconds(run.step_ns),
        held_up_text=held_up,
    )


def _tone(report: Report) -> Tone:
    gpu = main_gpu(report.at_present.gpus)
    broken = worst_of(report)
    if report.source_error is not None:
        return Tone.BAD
    if broken is Severity.HIGH or gpu is None:
        return _TONES[broken]
    if gpu.is_suspended:
        return Tone.WARN
    if gpu.verdict.severity is not Severity.NONE:
        return _TONES[gpu.verdict.severity]
    if broken is not Severity.NONE:
        return Tone.WARN
    is_well = gpu.verdict.name is VerdictName.HEALTHY
    return Tone.GOOD if is_well and not is_over(gpu) else Tone.QUIET


def _title(report: Report) -> str:
    if report.source_error is not None:
        return "no GPU can be read"
    gpus = report.at_present.gpus
    broken = [
        gpu for gpu in gpus if any(trouble.severity is Severity.HIGH for trouble in gpu.troubles)
    ]
    if broken:
        return f"GPU {broken[0].label}: {trouble_words(broken[0])}"
    gpu = main_gpu(gpus)
    if gpu is not None and stands_still(gpu, report.at_present):
        return f"GPU {gpu.label}: {'suspended' if gpu.is_suspended else verdict_word(gpu)}"
    if gpu is not None and gpu.waits_for is not None and waits_for_rank(gpu):
        return f"GPU {gpu.label} waits for rank {gpu.waits_for.rank}"
    at_work = [gpu for gpu in gpus if gpu.totals.in_use_ns and not is_over(gpu)]
    lost_ns = sum(gpu.totals.lost_ns for gpu in at_work)
    in_use_ns = sum(gpu.totals.in_use_ns for gpu in at_work)
    return f"{in_percent(lost_ns / in_use_ns)} of GPU time lost" if at_work else ""
