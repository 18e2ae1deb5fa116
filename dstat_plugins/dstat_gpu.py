# gpumon-dstat-plugin: as shipped
"""Columns ``--gpu`` and ``--gpu-stall`` for dstat 0.7.4 and dool: GPU use and lost GPU time.

One file under two names. As ``dstat_gpu.py`` it shows the busy, memory and starved share of each
GPU; as ``dstat_gpu_stall.py`` the lost share and its main cause.

All shares are of the time observed between two rows, from the counters in the state file of a
running ``gpumon serve``; the first row covers the time since that daemon started, as dstat's own
first row covers the time since boot. ``-`` means unknown.

``strv`` is the time in which the GPU was idle because its training run waited for input, or paused
as if it did; ``?`` marks that most of it is only suspected: no training process proved it.

``lost`` is the time in which the GPU was in use and idle; ``main`` is the part of it with the main
``cause``. After ``input`` and ``step`` follows the main reason of that cause, if the host showed
one: ``input/disk``. ``input?`` is only suspected, as above. A pause that has not ended has no cause
yet: while the GPU keeps starving it is shown as suspected, for a minute; else a row that is mostly
such a pause is ``pending``, with ``-`` for lost and starved time.

On the screen a row shows its own time: ``use`` and lost time never exceed 100 together. In a file
(``--output``) a row has the increase of the counters: a pause counts completely in the row in which
it ends, so a value there can be above 100, and the rows add up to the counters.

One or two GPUs are shown each, more as one ``gpu-tot``; ``-f`` and ``DSTAT_GPU=all`` show all,
``DSTAT_GPU=0,4-6,total`` the named ones. In place of a GPU's memory or main share a total has
``wst``, the GPU that lost most of its time in that row; in a file it has both. ``0:1`` is MIG
instance 1 of GPU 0; a MIG-partitioned GPU has no columns of its own, because it has no utilisation.
The columns are fixed when dstat starts; simulated GPUs end in ``-sim``, replayed ones in ``-rec``.

Both hosts ``exec`` this file inside a function, where a module-level name is invisible to methods:
hence imports inside methods, and helpers as base classes. Pure ASCII, and Python 3.6 or newer.
"""

_Host = globals().get("dool") or globals().get("dstat") or object


class _StateFile:
    """Finds a daemon's state file and reads it without ever blocking."""

    SCHEMA = "gpumon.state/1"
    MAX_BYTES = 8 * 1024 * 1024
    MIN_FRESH_NS = 3 * 10**9

    def _state_of_this_row(self):
        """Return what the first of our columns has read for this row: all show the same state."""
        ours = self._ours()
        if ours and ours[0] is not self:
            return ours[0]._state
        self._state = self._fresh_state()[0]
        if self._state and self._folder:
            self._touch_heartbeat(self._folder)
        return self._state

    @staticmethod
    def _ours():
        """Return the host's plugins that come from this file, in their order."""
        return [o for o in globals().get("totlist") or () if hasattr(o, "_state_of_this_row")]

    def _fresh_state(self):
        """Return the first state of a running daemon, or ``None`` and why there is none."""
        problem = "found no running daemon"
        for folder in self._folders():
            try:
                state = self._load(folder)
                if self._is_fresh(state):
                    self._folder = folder
                    return state, None
                problem = "found only what a daemon that is gone left in " + folder
            except (FileNotFoundError, NotADirectoryError):  # noqa: PERF203  (three folders)
                pass
            except Exception as error:  # whatever the file is, dstat's table must go on
                problem = "cannot use %s/state.json (%s)" % (folder, error)
        return None, problem

    def _folders(self):
        import os

        own, session = (os.environ.get(n) for n in ("GPUMON_RUNTIME_DIR", "XDG_RUNTIME_DIR"))
        usual = ["/run/gpumon", session and session + "/gpumon", "/tmp/gpumon-%d" % os.getuid()]
        return [own] if own else list(filter(None, usual))

    def _load(self, folder):
        """Read ``<folder>/state.json``, its GPUs keyed by their label: ``"0"``."""
        import json
        import os
        import stat

        is_trusted = os.environ.get("GPUMON_RUNTIME_DIR") or not folder.startswith("/tmp/")
        if not is_trusted and os.lstat(folder).st_uid not in (0, os.getuid()):
            raise ValueError("the folder is another user's")
        # A FIFO would block a plain open() forever, and all of dstat with it.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(folder + "/state.json", flags)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size > self.MAX_BYTES:
                raise ValueError("not a small regular file")
            text = os.read(descriptor, self.MAX_BYTES)
        finally:
            os.close(descriptor)
        # Integers as floats: exact to some nanoseconds, and no run of digits takes long.
        state = json.loads(text.decode("utf-8"), parse_int=float)
        if not isinstance(state, dict) or state.get("schema") != self.SCHEMA:
            raise ValueError("it is not %s: try `gpumon dstat install`" % self.SCHEMA)
        # A MIG-partitioned GPU has no utilisation, and its memory is that of its instances.
        there = [gpu for gpu in state["gpus"] if gpu.get("listed", True)]
        state["gpus"] = {self._label(gpu): gpu for gpu in there if not gpu.get("mig_enabled")}
        return state

    def _touch_heartbeat(self, folder):
        """Show the daemon that a user looks, at most once a second: it then reads every second.

        Other users may write there, too: nothing is followed, waited for or written to.
        """
        import contextlib
        import os
        import stat
        import time

        if time.monotonic() - self._touched_at < 1:
            return
        self._touched_at = time.monotonic()
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
        # It may not be writable, or full: rows then cover the time between two of the daemon's.
        with contextlib.suppress(Exception), contextlib.ExitStack() as opened:
            phases = os.open(folder + "/phases", flags | os.O_DIRECTORY)
            opened.callback(os.close, phases)
            uid = os.geteuid()
            descriptor = os.open("%d.watch" % uid, flags | os.O_CREAT, 0o644, dir_fd=phases)
            opened.callback(os.close, descriptor)
            found = os.fstat(descriptor)
            is_own = found.st_uid == uid and found.st_nlink == 1
            if is_own and stat.S_ISREG(found.st_mode):
                os.utime(descriptor)

    @staticmethod
    def _label(gpu):
        label = gpu.get("label")  # an older daemon has none
        is_one = isinstance(label, str) and set(label[:9]) <= set("0123456789:")
        return label if is_one and 0 < len(label) < 9 else "%d" % gpu["index"]

    def _is_fresh(self, state):
        import time

        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            is_this_boot = state["boot_id"] == file.read().strip()
        age_ns = time.monotonic() * 1e9 - state["monotonic_ns"]
        return is_this_boot and -self.MIN_FRESH_NS < age_ns <= self._fresh_for_ns(state)

    def _fresh_for_ns(self, state):
        return max(3 * state["period_ns"], self.MIN_FRESH_NS)


class _Figures:
    """What both kinds of columns have in common.

    Each kind has its columns' names and widths, the column that a narrow terminal leaves out
    (``SPARED``), the coloured column, and turns counters into shares, and shares into a row.
    """

    RED_FROM_PERCENT, YELLOW_FROM_PERCENT = 20, 5
    RISING = ("observed_ns", "busy_ns", "starved_ns", "suspected_ns")
    COUNTERS = (*RISING, "pending_ns")
    IDLE = "idle_ns"
    LONGEST_SHOWN_NS = 60 * 10**9
    NO_LOSS = ("start_up", "not_in_use")

    def counters(self, gpu):
        """Return the counters of ``gpu``, in ns; ``None`` if they are unknown.

        Beside ``COUNTERS``: ``input_ns`` and ``unknown_ns``, which include starved and suspected
        time, and ``proved_ns``, the time lost to any known cause.
        """
        counted = self.numbers(gpu, self.COUNTERS)
        if counted is None:
            return None
        lost = self._split(gpu, self.IDLE)
        if lost is None:
            lost = {"input_wait": counted["starved_ns"], "unknown": counted["suspected_ns"]}
        counted["input_ns"] = lost.get("input_wait", 0)
        counted["unknown_ns"] = lost.get("unknown", 0)
        unproved = ("unknown", *self.NO_LOSS)
        counted["proved_ns"] = sum(ns for cause, ns in lost.items() if cause not in unproved)
        return counted

    def _split(self, gpu, field):
        parts = gpu.get(field)
        return self.numbers(parts, parts) if isinstance(parts, dict) else None

    @staticmethod
    def numbers(table, names):
        """Return these fields of ``table``; ``None`` unless all are finite and not negative."""
        values = {name: table.get(name) for name in names}
        are_numbers = all(isinstance(v, float) and 0 <= v < 1e300 for v in values.values())
        return values if are_numbers else None

    @staticmethod
    def share(part, whole):
        """Return ``part`` of ``whole`` in percent, or -1, the hosts' value for unknown."""
        return 100.0 * part / whole if whole > 0 else -1

    @staticmethod
    def added(changes):
        """Return the sum of the changes of several GPUs."""
        added = {}
        for change in changes:
            for name, ns in change.items():
                added[name] = added.get(name, 0) + ns
        return added

    def fitted(self, change, gpu):
        """Return the part of ``change`` within the row itself; ``undecided_ns`` has no cause yet.

        A pause is counted when it ends, and pending until then; time that was pending when the row
        began is mostly counted as unknown or unused. So known causes come first here, then
        unknown, up to the row's own idle time. Pending time of a GPU that keeps starving is already
        suspected, for a minute: a longer pause may as well be the end of the job.
        """
        idle_ns = max(0.0, change["observed_ns"] - change["busy_ns"])
        began_with_ns = gpu["pending_ns"] - change["pending_ns"]
        unproved_ns = idle_ns - change["pending_ns"] - change["proved_ns"]
        open_ns = change["pending_ns"] + max(0.0, min(began_with_ns, unproved_ns))
        open_ns = max(0.0, min(open_ns, gpu["pending_ns"], idle_ns))
        decided_ns = idle_ns - open_ns
        proved_ns = min(change["proved_ns"], decided_ns)
        kept = proved_ns / change["proved_ns"] if proved_ns else 0
        unknown_ns = min(change["unknown_ns"], decided_ns - proved_ns)
        starved_ns = min(change["starved_ns"], change["input_ns"] * kept)
        suspected_ns = min(change["suspected_ns"], unknown_ns)
        is_shown = gpu.get("starved_now") and gpu["pending_ns"] <= self.LONGEST_SHOWN_NS
        shown_ns = open_ns if is_shown else 0
        fitted = {name: ns * kept for name, ns in change.items()}
        fitted.update(
            observed_ns=change["observed_ns"],
            busy_ns=change["busy_ns"],
            starved_ns=starved_ns,
            suspected_ns=suspected_ns + shown_ns,
            unknown_ns=unknown_ns + shown_ns,
            undecided_ns=open_ns - shown_ns,
        )
        return fitted

    @staticmethod
    def is_pending(moved):
        """Whether most of a row has no cause yet."""
        return moved.get("undecided_ns", 0) > moved["observed_ns"] / 2

    def worst(self, fitted):
        """Return the position of the GPU that lost most of its time; ``None`` if none lost any."""
        shares = [
            self.share(change["proved_ns"] + change["unknown_ns"], change["observed_ns"])
            for change in fitted
        ]
        most = max(shares)
        return shares.index(most) if round(most) > 0 else None

    def alarm(self, percent):
        """Return the position of red, yellow or green in the hosts' list of colours."""
        if percent >= self.RED_FROM_PERCENT:
            return 0
        return 1 if percent >= self.YELLOW_FROM_PERCENT else 2


class _Use(_Figures):
    """The columns of ``--gpu``: busy share, memory and starved share."""

    OPTION = "--gpu"
    NICKS, WIDTHS = ("use", "mem", "strv"), (3, 3, 4)
    SPARED, COLOURED = 1, 2
    MEMORY_FIELDS = ("memory_used_bytes", "memory_capacity_bytes")

    def shares(self, changes, gpus):
        """Return busy and starved share, and whether most of the latter is only suspected."""
        moved = self.added(changes)
        starved = self.share(moved["starved_ns"] + moved["suspected_ns"], moved["observed_ns"])
        busy = min(100.0, self.share(moved["busy_ns"], moved["observed_ns"]))
        is_suspected = moved["suspected_ns"] > moved["starved_ns"]
        return busy, -1 if self.is_pending(moved) else starved, is_suspected

    def values(self, shares, gpus):
        """Return the values of the columns."""
        busy, starved, _ = shares or (-1, -1, False)
        known = [t for t in (self.numbers(gpu, self.MEMORY_FIELDS) for gpu in gpus) if t]
        memory = self.share(*(sum(t[field] for t in known) for field in self.MEMORY_FIELDS))
        return [busy, min(100.0, memory), starved]

    def mark(self, shares, gpus):
        """Return the mark after the coloured value, and the position of its colour."""
        if not shares:
            return " ", None
        _, starved, is_suspected = shares
        is_starved_now = any(gpu.get("starved_now") for gpu in gpus)
        mark = "?" if starved > 0 and is_suspected else " "
        return mark, 0 if is_starved_now else self.alarm(round(starved))


class _Stall(_Figures):
    """The columns of ``--gpu-stall``: the lost share, its main cause, and the reason of that."""

    OPTION = "--gpu-stall"
    NICKS, WIDTHS = ("lost", "main", "cause"), (4, 4, 10)
    SPARED, COLOURED = 1, 0
    CAUSES = {
        "compile": "compile",
        "input_wait": "input",
        "host_to_device": "copy",
        "within_step": "step",
        "imbalance": "imbalance",
        "callbacks": "callbacks",
        "checkpoint": "checkpoint",
        "validation": "validation",
        "between_epochs": "epoch",
        "suspected": "input?",
        "unknown": "unknown",
    }
    BY_REASON = {
        "input_wait": "input_wait_by_reason_ns",
        "within_step": "within_step_by_reason_ns",
    }
    REASONS = {
        "cpu_bound": "/cpu",
        "gil_bound": "/gil",
        "disk_bound": "/disk",
        "network_bound": "/net",
        "memory_pressure": "/mem",
        "latency_bound": "/lat",
    }

    def counters(self, gpu):
        """Return the counters of ``gpu``, in ns; ``None`` if they are unknown.

        Parts of a field are named with it: ``"idle_ns.checkpoint"``.
        """
        counted = super().counters(gpu)
        if counted is None or self._split(gpu, self.IDLE) is None:
            return None
        for field in (self.IDLE, *self.BY_REASON.values()):  # an older daemon has no reasons
            parts = self._split(gpu, field) or {}
            counted.update({field + "." + part: ns for part, ns in parts.items()})
        return counted

    def shares(self, changes, gpus):
        """Return the lost share, that of its main cause, and the cause in a word."""
        moved = self.added(changes)
        observed_ns = moved["observed_ns"]
        if self.is_pending(moved):
            return -1, -1, "pending"
        lost = self.share(moved["proved_ns"] + moved["unknown_ns"], observed_ns)
        if round(lost) == 0:
            return lost, -1, ""
        parts = self._parts(moved, self.IDLE)
        lost_ns = {cause: ns for cause, ns in parts.items() if cause not in self.NO_LOSS}
        lost_ns["suspected"] = min(moved["suspected_ns"], moved["unknown_ns"])
        lost_ns["unknown"] = moved["unknown_ns"] - lost_ns["suspected"]
        main = max(lost_ns, key=lost_ns.get)
        word = self.CAUSES.get(main, "other") + self._reason(moved, main)
        return lost, self.share(lost_ns[main], observed_ns), word

    def _reason(self, moved, cause):
        parts = self._parts(moved, self.BY_REASON.get(cause, ""))
        main = max(parts, key=parts.get) if any(parts.values()) else None
        return self.REASONS.get(main, "")

    @staticmethod
    def _parts(moved, field):
        start = field + "."
        return {n[len(start) :]: ns for n, ns in moved.items() if n.startswith(start)}

    def values(self, shares, gpus):
        """Return the values of the columns."""
        return list(shares or (-1, -1, ""))

    def mark(self, shares, gpus):
        """Return the mark after the coloured value, and the position of its colour."""
        return "", self.alarm(round(shares[0])) if shares else None


class _Rows:
    """Turns the daemon's counters into their increase since the last row."""

    # The daemon reads the driver's samples at least every 5 s: this is twice that.
    REPEATED_FOR_NS = 10 * 10**9
    NO_SHARES = (None, None, "")

    def _moved_since_last_row(self, state):
        """Return ``{index: {counter: ns}}`` of GPUs that answer."""
        if state.get("pid") != self._daemon_pid:  # another daemon counts from its own start
            self._daemon_pid = state.get("pid")
            self._row_began, self._counters = {}, {}
        moved = {}
        for index, gpu in state["gpus"].items():
            counters = self._kind.counters(gpu) if gpu.get("present") else None
            if counters is None:
                continue
            began = self._row_began.get(gpu.get("uuid"), {})
            change = {name: ns - began.get(name, 0) for name, ns in counters.items()}
            # In a container every daemon is process 1: there, falling counters show a restart.
            has_fallen = any(change[name] < 0 for name in self._kind.RISING)
            moved[index] = counters if has_fallen else change
            self._counters[gpu.get("uuid")] = counters
            if moved[index]["observed_ns"] > 0:
                self._fitted[gpu.get("uuid")] = self._kind.fitted(moved[index], gpu)
            elif not self._is_recent(gpu, state):
                self._fitted.pop(gpu.get("uuid"), None)  # present, and nothing is known of it
        return moved

    def _is_recent(self, gpu, state):
        """Whether the time that is in the counters of ``gpu`` reaches almost to the present."""
        until = [gpu.get(field) for field in ("settled_until_ns", "last_sample_ns")]
        until = [ns for ns in until if isinstance(ns, float)] or [state["monotonic_ns"]]
        age_ns = state["monotonic_ns"] - until[0]  # an older daemon has only the second
        return age_ns <= max(self._fresh_for_ns(state), self.REPEATED_FOR_NS)

    def _rows_of(self, state):
        """Return the row of each group that ``state`` has data for."""
        if state is None:
            return {}
        self.name = self._titles(state)
        moved = self._moved_since_last_row(state)
        rows = {}
        for group in self.vars:
            members = [index for index in moved if group in (index, "total")]
            if members:
                self._take_shares(group, {index: moved[index] for index in members}, state)
                gpus = [state["gpus"][index] for index in members]
                rows[group] = self._row(gpus, *self._last_shares[group])
        if self._host("step") == self._host("op").delay:
            # Here the next row begins. A GPU that is absent, or has no new sample, keeps where its
            # row began: time that is settled meanwhile counts in its next row.
            for uuid, counters in self._counters.items():
                began = self._row_began.get(uuid)
                if began is None or began["observed_ns"] != counters["observed_ns"]:
                    self._row_began[uuid] = counters
        return rows

    def _row(self, gpus, shown, filed, worst):
        """Return a row as values, mark, colour, the values in a file, and the worst GPU."""
        mark, alarm = self._kind.mark(shown, gpus)
        values, in_file = self._kind.values(shown, gpus), self._kind.values(filed, gpus)
        return values, mark, alarm, in_file, worst

    def _take_shares(self, group, changes, state):
        """Set the shares of a row: on the screen, those of GPUs that did not move are repeated."""
        gpus = {index: state["gpus"][index] for index in changes}
        uuids = {index: gpu.get("uuid") for index, gpu in gpus.items()}
        fitted = {i: self._fitted[uuid] for i, uuid in uuids.items() if uuid in self._fitted}
        _, filed, _ = self._last_shares.get(group, self.NO_SHARES)
        if any(change["observed_ns"] > 0 for change in changes.values()):
            filed = self._kind.shares(changes.values(), gpus.values())
        self._last_shares[group] = self.NO_SHARES
        if fitted:
            shown = self._kind.shares(fitted.values(), gpus.values())
            worst = self._kind.worst(fitted.values())
            name = "" if worst is None else list(fitted)[worst]
            self._last_shares[group] = shown, filed, name


class _Layout:
    """The columns, their widths and colours.

    The hosts paint low percentages red and 0 grey: an unused GPU would be red, and one that is not
    starved grey. So only the lost share is coloured here, by its meaning.
    """

    MARKS = (("replayed", "-rec"), ("simulated", "-sim"))
    WORST = "wst"

    def colwidth(self):
        """Return the width of one GPU's columns."""
        return sum(self._kind.WIDTHS[column] + 1 for column in self._columns()) - 1

    def statwidth(self):
        """Return the width of all columns; the host calls this when the terminal has changed.

        If they do not fit, the host drops them all: rather leave out one of each GPU.
        """
        was_narrow, self._is_narrow = self._is_narrow, False
        room = self._room()
        self._is_narrow = super().statwidth() > room
        if self._is_narrow != was_narrow and "showheader" in globals():
            globals()["showheader"] = True
        if super().statwidth() > room and not self._has_shown_how:
            self._has_shown_how = True
            ways = " or ".join("DSTAT_GPU=" + g for g in sorted({self.vars[0], "total"}))
            gpus = "GPUs (%s) or fewer " % ways if len(self.vars) > 1 else ""
            note = "%s does not fit here: show fewer %sother columns" % (self._kind.OPTION, gpus)
            self._write(note, "\n" if globals().get("loop") else "")  # there is a table already
        return super().statwidth()

    def _columns(self):
        spared = self._kind.SPARED if self._is_narrow else None
        return [column for column in range(self.cols) if column != spared]

    def _room(self):
        """Return the width that the columns before these leave."""
        cols, others = globals().get("cols"), globals().get("totlist") or []
        if not cols or self not in others:  # no terminal, or its size is not known yet
            return float("inf")
        room = cols - 1
        for other in others[: others.index(self)]:
            width = other.statwidth() + 1
            room -= width if width <= room + 1 else 0  # the host leaves out what does not fit
        return room

    @staticmethod
    def _write(note, start=""):
        import contextlib
        import sys

        with contextlib.suppress(AttributeError, OSError, ValueError):  # it may be closed
            sys.stderr.write("%sgpumon: %s\n" % (start, note))

    def subtitle(self):
        """Return the second line of the header."""
        style, reset = self._host("theme")["subtitle"], self._host("ansi")["reset"]
        groups = []
        for group in self.vars:
            worst = self._kind.SPARED if group == "total" else None
            nicks = [(self.WORST if c == worst else self.nick[c], c) for c in self._columns()]
            nicks = [nick.ljust(self._kind.WIDTHS[c]) for nick, c in nicks]
            groups.append(" ".join(style + nick + reset for nick in nicks))
        return self._joined(groups)

    def show(self):
        """Return one row for the screen."""
        columns = self._columns()
        return self._joined([" ".join(self._cell(g, c) for c in columns) for g in self.vars])

    def _joined(self, groups):
        return (self._host("theme")["frame"] + self._host("char")["colon"]).join(groups)

    def _cell(self, group, column):
        theme, (values, mark, alarm, _, worst) = self._host("theme"), self._rows[group]
        is_coloured, width = column == self._kind.COLOURED, self._kind.WIDTHS[column]
        text = self._text(values[column], mark if is_coloured else "", width)
        if group == "total" and column == self._kind.SPARED:
            # Of an instance with too long a name, its GPU.
            text = ((worst if len(worst) <= width else worst.split(":")[0]) or "-").rjust(width)
        if alarm is None:
            return theme["error"] + text + theme["default"]
        # The hosts show an unfinished row darker than a finished one.
        shade = "_lo" if self._host("step") == self._host("op").delay else "_hi"
        if not is_coloured:
            return theme["text" + shade] + text
        colors = theme["colors" + shade]
        return colors[alarm % len(colors)] + text

    @staticmethod
    def _text(value, mark, width):
        if isinstance(value, str):
            return (value or "-").ljust(width)
        return (("-" if value < 0 else "%d" % round(value)) + mark).rjust(width)

    def showcsv(self):
        """Return one row for ``--output``; an unknown value is an empty cell.

        Its values are increases of the counters: a pause counts in the row in which it ends.
        """
        cells = [value for group in self.vars for value in self._rows[group][3]]
        texts = [v if isinstance(v, str) else "%.3f" % v if v >= 0 else "" for v in cells]
        return self._host("char")["sep"].join(texts)

    @staticmethod
    def _host(name):
        """Return a name of the host, in whose module this code is executed."""
        return globals()[name]


class _Choice:
    """Which GPUs the user wants, by ``DSTAT_GPU``: ``0,4-6``, ``0:1``, ``all`` or ``total``."""

    MOST_UNKNOWN, MOST_IN_A_RANGE = 8, 256

    def _groups(self, known):
        """Return what to show, such as ``["0", "total"]``; without a daemon no GPU is known."""
        import os
        import re

        text = re.sub(r"\s*-\s*", "-", os.environ.get("DSTAT_GPU", "").strip())
        chosen, unknown = [], []
        for word in filter(None, re.split(r"[,\s]+", text)):
            labels = self._labels(word, known)
            unknown += [] if labels else [word]
            for label in labels:
                # A MIG-partitioned GPU means its instances.
                there = [k for k in known or [label] if k == label or k.startswith(label + ":")]
                there = there if label != "total" else [label]
                chosen += there
                unknown += [] if there else [label]
        if unknown:
            shown = [ascii(word)[1:-1][:16] for word in unknown[: self.MOST_UNKNOWN]]
            shown += ["..."] if len(unknown) > len(shown) else []
            there = ", ".join([*(known or ["indices such as 0,2 or 4-6"]), "all", "total"])
            self._note("DSTAT_GPU: no GPU is called %s, only %s" % (", ".join(shown), there))
        if chosen:
            return sorted(set(chosen), key=chosen.index)
        return known if known and (self._host("op").full or len(known) <= 2) else ["total"]

    def _labels(self, word, known):
        """Return the labels that a word means; none if it names no GPUs."""
        import re

        if word.lower() in ("all", "total"):
            return (known if word.lower() == "all" else None) or ["total"]
        span = re.match(r"([0-9]{1,4})(?:-([0-9]{1,4}))?$", word)
        if not span:
            part = re.match(r"([0-9]{1,3}):([0-9]{1,3})$", word)
            return ["%d:%d" % (int(part.group(1)), int(part.group(2)))] if part else []
        first, last = int(span.group(1)), int(span.group(2) or span.group(1))
        labels = ["%d" % index for index in range(first, last + 1)]
        return labels if len(labels) <= self.MOST_IN_A_RANGE else []

    def _note(self, text):
        """Record a note once, even if two options lead to it."""
        if not any(text in other._notes for other in self._ours()):
            self._notes.append(text)


class dstat_plugin(_StateFile, _Choice, _Rows, _Layout, _Host):  # noqa: N801 - dstat asks for it
    """One kind of columns for the GPUs that a running ``gpumon serve`` watches."""

    def __init__(self):
        self._row_began, self._counters, self._fitted, self._daemon_pid = {}, {}, {}, None
        self._last_shares, self._is_narrow, self._has_shown_how = {}, False, False
        self._notes, self._state = [], None
        self._folder, self._touched_at = None, float("-inf")

    def check(self):
        """Choose the columns by the file's name, which the hosts have set by now.

        What is missing is reported once, and the host loads the columns anyway.
        """
        self._kind = self.STALL if "gpu_stall" in self.filename.rpartition("/")[2] else self.USE
        self.nick, self.cols = self._kind.NICKS, len(self._kind.NICKS)
        state, problem = self._fresh_state()
        self.vars = self._groups(list(state["gpus"]) if state else None)
        self.name = self._titles(state)
        if state is None:
            until = ", so %s shows '-' until `gpumon serve` is started" % self._kind.OPTION
            self._note(problem + until)
        elif not state["gpus"]:
            self._note("the daemon sees no GPU so far: `gpumon doctor` says why")
        for note in self._notes:
            self._write(note)
        self._fix_csv()
        return True

    def _titles(self, state):
        marks = [end for field, end in self.MARKS if state and state.get(field)]
        return ["gpu" + group.replace("total", "-tot") + "".join(marks[:1]) for group in self.vars]

    def _fix_csv(self):
        """On Python 3, dstat 0.7.4 fails at any --output: it uses ``types``, never imports it."""
        import types

        if "dool" not in globals() and self._host("op").output and "types" not in globals():
            kinds = {"ListType": list, "TupleType": tuple, "StringType": str}
            globals()["types"] = types.SimpleNamespace(**kinds)

    def extract(self):
        """Set the values of one row: -1 for unknown ones."""
        try:
            self._rows = self._rows_of(self._state_of_this_row())
        except Exception:  # dool would crash, and dstat show old values as if they were new
            self._rows = {}
        nothing = self._row([], None, None, "")
        self._rows = {group: self._rows.get(group) or nothing for group in self.vars}
        self.val = {group: row[0] for group, row in self._rows.items()}


# Inside a class, too, a host leaves the names above invisible.
dstat_plugin.USE, dstat_plugin.STALL = _Use(), _Stall()
dool_plugin = dstat_plugin
