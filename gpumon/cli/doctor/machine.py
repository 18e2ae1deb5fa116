"""The doctor's findings on the machine around the GPUs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from gpumon.cli.doctor.findings import BROKEN, MACHINE, MISSING, OFF, OK, Finding, finding_of
from gpumon.cli.doctor.stacks import read_stack_access, stack_finding
from gpumon.cli.dstat_hosts import (
    OPTIONS,
    CopyState,
    DstatHost,
    PluginCopy,
    find_hosts,
    loaded_copies,
)
from gpumon.core.device.troubles import TroubleKind
from gpumon.core.owner_quotas import owner_counts_text
from gpumon.core.ring_format.events import RingReading
from gpumon.core.ring_format.runtime_paths import (
    PHASES,
    RUNTIME_VARIABLE,
    explicit_folder,
    other_folder_text,
    reader_patterns,
)
from gpumon.core.state import RINGS, CollectorState, refusal_note
from gpumon.core.verdict import Severity
from gpumon.core.wording import in_time, label_text, listed
from gpumon.errors import GpumonError
from gpumon.outlets.http.server import DEFAULT_LISTEN, by_whom, parse_listen
from gpumon.sources.daemon import (
    END_OR_WAIT,
    answer_of,
    fetch_report,
    find_silent_daemon,
    find_state_file,
    read_state,
)
from gpumon.sources.host.readable_evidence import HostVisibility, read_host_visibility
from gpumon.sources.installed import container_words, other_distributions_called_gpumon
from gpumon.sources.ring_reader.daemon_folder import (
    NAME_A_FOLDER,
    matching_paths,
    runtime_dir_to_be,
)
from gpumon.sources.ring_reader.ring_survey import RingSurvey, survey_rings
from gpumon.sources.system_clock import SystemClock, read_boot_id

_PATIENCE_S: Final = 1.0
_MAX_BYTES: Final = 1 << 20
_found = partial(finding_of, MACHINE)
_START: Final = f"start one: gpumon serve (page and /metrics on {DEFAULT_LISTEN})"
_START_WITHOUT_GPUS: Final = (
    "once there is a GPU: gpumon serve. Until then, to see it at work: gpumon demo, or "
    f"gpumon serve --source simulated:input-bound (page on {DEFAULT_LISTEN})"
)


def machine_findings(
    environ: Mapping[str, str] = os.environ, *, has_gpus: bool = True
) -> Iterator[Finding]:
    """All findings on the machine, without its GPUs."""
    yield _runtime_folder(environ)
    state = find_state_file(environ)
    silent = find_silent_daemon(environ) if state is None else None
    if silent is not None:
        yield _found("daemon", silent.description, status=MISSING, fix=END_OR_WAIT)
    else:
        yield from _daemon(state, _START if has_gpus else _START_WITHOUT_GPUS)
    yield port_finding()
    patterns = reader_patterns(environ, os.geteuid())
    rings = survey_rings(patterns, boot_id=read_boot_id(), clock=SystemClock())
    yield from _rings(rings, patterns)
    others_train = any(ring.owner_uid != os.geteuid() for ring in rings.alive)
    yield host_finding(read_host_visibility(), others_train=others_train)
    where = container_words(environ)
    yield stack_finding(read_stack_access(), in_container=where is not None)
    yield from _dstats(environ)
    if where is not None:
        yield _container(where, environ)
    for place in other_distributions_called_gpumon():
        yield _found(
            "stranger",
            f"another distribution called gpumon is installed in {place}",
            status=BROKEN,
            fix="pip uninstall gpumon; this tool's distribution is gpumon-starvation",
        )


def _runtime_folder(environ: Mapping[str, str]) -> Finding:
    folder, trouble = runtime_dir_to_be(environ)
    if folder is None:
        return _found("runtime folder", trouble, status=BROKEN, fix=NAME_A_FOLDER)
    named = f", which ${RUNTIME_VARIABLE} names" if explicit_folder(environ) else ""
    detail = f"usable: gpumon serve keeps state and rings in {folder}{named}"
    if not folder.is_dir():
        detail += " (not there yet)"
    others = other_folder_text(environ, os.geteuid(), folder)
    if others:
        detail += f"; rings are also looked for in {others}"
    return _found("runtime folder", detail)


# -- the daemon, and its port ---------------------------------------------------


def _daemon(state_file: Path | None, start: str) -> Iterator[Finding]:
    clock = SystemClock()
    if state_file is None:
        yield _found("daemon", "none is running", status=MISSING, fix=start)
        return
    try:
        state = read_state(state_file, clock, read_boot_id())
        age_ns = clock.monotonic_ns() - int(state["monotonic_ns"])
        detail = f"running: {state_file}, pid {state.get('pid')}, updated {in_time(age_ns)} ago"
        if state.get("address"):
            detail += f", serves {label_text(state['address'])}"
        collectors = [CollectorState(**entry) for entry in state["collectors"]]
    except (GpumonError, KeyError, TypeError):  # it has just ended, or is of another version
        yield _found("daemon", f"running: {state_file}")
        return
    yield _found("daemon", detail)
    yield from _refusals(state, collectors)
    yield from _recorded_errors(state)


def _recorded_errors(state: dict[str, Any]) -> Iterator[Finding]:
    """The driver's errors that the running daemon recorded: the doctor comes too late for them."""
    try:
        gpus = fetch_report(state).gpus
    except GpumonError:  # it serves no report, or has just ended
        return
    for gpu in gpus:
        for trouble in gpu.troubles:
            if trouble.kind is TroubleKind.XID and trouble.severity is not Severity.NONE:
                yield _found(
                    f"gpu {gpu.label} {trouble.short_name}",
                    f"the daemon recorded it: GPU {gpu.label} {trouble.text}",
                    status=BROKEN if trouble.severity is Severity.HIGH else MISSING,
                    fix=trouble.advice,
                )


def _refusals(state: dict[str, Any], collectors: list[CollectorState]) -> Iterator[Finding]:
    """What the running daemon could not read of training runs, and why.

    Rings that it has refused are left out: ``_rings`` counts those that are there now.
    """
    for collector in collectors:
        if collector.name == RINGS:
            if collector.message and (state.get("rings_left_out") or not collector.success):
                detail = f"the daemon reports: {collector.message}"
                yield _found("phase rings", detail, status=MISSING)
            continue
        note = refusal_note(collector)
        if note is not None:
            name, _, detail = note.partition(": ")
            yield _found(name.replace("_", " "), detail, status=MISSING)


def port_finding(listen: str = DEFAULT_LISTEN) -> Finding:
    """Whether the port of a ``HOST:PORT`` is free, gpumon's, or another program's."""
    host, port = parse_listen(listen)
    name = f"port {port}"
    try:
        _, body = answer_of(
            f"http://{host}:{port}/metrics", patience_s=_PATIENCE_S, max_bytes=_MAX_BYTES
        )
    except ConnectionRefusedError:
        return _found(name, "free")
    except (OSError, ValueError):
        body = b""
    if b"gpumon_build_info" in body:
        return _found(name, f"gpumon serves there{by_whom(port)}")
    return _found(
        name,
        f"in use{by_whom(port)}, which is not gpumon",
        status=MISSING,
        fix="gpumon serve --listen 127.0.0.1:0 takes a free port, and says which",
    )


# -- rings ------------------------------------------------------------------------


def _rings(seen: RingSurvey, patterns: Sequence[str]) -> Iterator[Finding]:
    folders = [folder / PHASES for folder in matching_paths(patterns)]
    closed = [str(folder) for folder in folders if _is_closed(folder)]
    places = listed(
        [str(folder) for folder in folders if str(folder) not in closed and folder.is_dir()]
    )
    detail, status, fix = _described(seen, places)
    yield _found("rings", detail, status=status, fix=fix)
    if seen.refused:
        yield _found(
            "rings refused",
            f"{_by_uid(seen.refused)} refused, such as {seen.refusal}",
            status=MISSING,
            fix=f"their owner, or root, removes files that no training run needs from {places}",
        )
    if closed:
        yield _found(
            "rings unreadable",
            f"this user may not look into {listed(closed)}",
            status=MISSING,
            fix="run gpumon as root, or as the user that trains",
        )


def _described(seen: RingSurvey, places: str) -> tuple[str, str, str | None]:
    alive = listed([_whose(ring) for ring in seen.alive])
    not_read = f"{_by_uid(seen.unread)} not read" if seen.unread else ""
    if not seen.is_listed:
        not_read = f"{not_read}, and there are more names than could be listed"
        not_read = not_read.removeprefix(", and ")
    is_uncertain = bool(not_read or seen.refused)
    if not seen.alive and not seen.ended and not is_uncertain:
        return "none: no training script uses PhaseTagger", OFF, None
    if alive:
        detail = f"{alive} alive" + (f", {seen.ended:,} ended" if seen.ended else "")
    elif is_uncertain:
        detail = f"none alive among the {seen.ended:,} that could be read"
    else:
        detail = f"none alive, {seen.ended:,} ended"
    if not not_read:
        return detail, MISSING if is_uncertain else OK, None
    fix = f"see who fills {places}, and have them end it: gpumon serve removes rings that ended"
    return f"{detail}; {not_read}", MISSING, fix


def _by_uid(counts: Sequence[tuple[int | None, int]]) -> str:
    verb = "is" if sum(count for _, count in counts) == 1 else "are"
    return f"{owner_counts_text(counts)} {verb}"


def _whose(ring: RingReading) -> str:
    run = label_text(ring.facts.run, 40)
    return f"{run} (pid {ring.host_pid} of user {ring.owner_uid})"


def _is_closed(folder: Path) -> bool:
    try:
        return folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK)
    except OSError:
        return True


# -- host evidence ------------------------------------------------------------------

_HOST: Final = "host evidence"
_AS_WHO_TRAINS: Final = (
    "run gpumon serve as the user that trains, or as root (in a container with SYS_PTRACE)"
)
_OTHER_KERNEL: Final = "distributions' kernels have it; in a sandbox, run gpumon serve outside"


def host_finding(visible: HostVisibility, *, others_train: bool) -> Finding:
    """Which reasons will be unknown here, and what to do about it.

    Hidden facts of other users matter only while one of them trains.
    """
    missing = [*_hidden(visible, others_train)]
    if not missing:
        detail = "why a training run waits can be seen"
        if not visible.opens_others:
            detail += (
                "; for other users' runs, gpumon cannot distinguish a wait for the network from "
                "latency"
            )
        return _found(_HOST, detail)
    return _found(
        _HOST,
        "; ".join(what for what, _ in missing),
        status=MISSING,
        fix="; ".join(dict.fromkeys(fix for _, fix in missing)),
    )


def _hidden(visible: HostVisibility, others_train: bool) -> Iterator[tuple[str, str]]:
    if not visible.counts_cores:
        yield (
            "there is no schedstat: all reasons will be unknown",
            f"boot a kernel with CONFIG_SCHEDSTATS: {_OTHER_KERNEL}",
        )
        return  # nothing else is read without it
    if not visible.names_sleep:
        yield (
            "wchan reads 0: network_bound and latency_bound will be unknown",
            f"boot a kernel with CONFIG_KALLSYMS: {_OTHER_KERNEL}",
        )
    if not visible.names_children:
        yield (
            "there is no list of children: what worker processes do will not be seen",
            f"boot a kernel with CONFIG_PROC_CHILDREN: {_OTHER_KERNEL}",
        )
    if not visible.counts_memory_stalls:
        yield (
            "there is no memory pressure (PSI): for a training run without a memory limit of its "
            "own, memory_pressure will show as disk_bound or unknown",
            "boot with psi=1 on the kernel's command line",
        )
    if not visible.shows_others:
        yield (
            "processes of other users are hidden (hidepid): for their training runs all reasons "
            "will be unknown, and a run counts on a GPU only if its own process is there",
            "run gpumon serve as root, or as a user of the group that /proc is mounted with (gid=)",
        )
    elif others_train and not visible.opens_others:
        yield (
            "another user trains, and the kernel hides where other users' processes sleep and what "
            "they read: network_bound and latency_bound will be unknown there",
            _AS_WHO_TRAINS,
        )


# -- dstat ------------------------------------------------------------------------


def _dstats(environ: Mapping[str, str]) -> Iterator[Finding]:
    # dool is often installed with gpumon, in an environment that is not on PATH.
    own_scripts = str(Path(sys.prefix) / "bin")
    hosts = find_hosts({**environ, "PATH": f"{environ.get('PATH', '')}:{own_scripts}"})
    if not hosts:
        yield _found(
            "dstat",
            "neither dstat nor dool is installed",
            status=MISSING,
            fix="apt-get install dstat, or pip install dool; then gpumon dstat install",
        )
        return
    findings = [_of_host(host) for host in hosts]
    able = [finding for finding in findings if finding.status == OK]
    # One that shows the columns is enough: the others need no fix.
    yield _found(
        "dstat",
        "; ".join(finding.detail for finding in findings),
        status=OK if able else MISSING,
        fix=None if able else next((finding.fix for finding in findings if finding.fix), None),
    )


def _of_host(host: DstatHost) -> Finding:
    what = f"{host.command} is {host.flavour.value}"
    if host.obstacle is not None:
        why, _, instead = host.obstacle.partition("; ")
        return _found("dstat", f"{what}: {why}", status=MISSING, fix=instead or None)
    loaded = loaded_copies(host.copies())
    lacks = [_lack(option, loaded.get(option)) for option in OPTIONS]
    lacking = " and ".join(filter(None, lacks))
    if not lacking:
        return _found("dstat", f"{what} with {' and '.join(OPTIONS)}")
    return _found("dstat", f"{what} {lacking}", status=MISSING, fix="gpumon dstat install")


def _lack(option: str, loaded: PluginCopy | None) -> str | None:
    if loaded is None:
        return f"without {option}"
    return None if loaded.state is CopyState.CURRENT else f"whose {option} is {loaded.state.value}"


def _container(where: str, environ: Mapping[str, str]) -> Finding:
    shown = environ.get("NVIDIA_VISIBLE_DEVICES")
    detail = f"{where}: processes on the GPU are listed with the host's pids"
    if shown is not None:
        detail += f"; NVIDIA_VISIBLE_DEVICES={label_text(shown)}"
    return _found("container", detail)
