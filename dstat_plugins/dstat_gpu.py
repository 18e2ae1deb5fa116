# gpumon-dstat-plugin: as shipped
"""Columns ``--gpu`` and ``--gpu-stall`` for dstat 0.7.4 and dool: what GPUs do, and what they lose.

This is one file under two names. As ``dstat_gpu.py`` it shows busy, memory and starved share of
each GPU; as ``dstat_gpu_stall.py`` the share that was lost, and the main cause of that.

All shares are of the time between two rows, taken from the counters in the state file of a running
``gpumon serve``; the first row covers the time since that daemon started, as dstat's own first row
covers the time since boot. ``-`` is *not known*.

``strv`` is the time in which the GPU was idle because its training waited for input, or paused as
if it did; a ``?`` after it says that most of that is only suspected: no training process proved it.

``lost`` is the time in which the GPU was in use and idle; ``main`` is what the main ``cause`` took
of it. After ``input`` and ``step`` follows the main reason of that cause, where the host showed
one: ``input/disk``. ``input?`` is only suspected, as above. A pause that has not ended has no cause
yet: it is not lost, and a row that is mostly such a pause is ``pending``.

One or two GPUs are shown each, more as one ``gpu-tot``; ``-f`` shows all, ``DSTAT_GPU=0,2,total``
the named ones. ``0:1`` is MIG instance 1 of GPU 0; a GPU that is cut by MIG has no columns of its
own, as it has no utilisation. The columns are fixed when dstat starts; GPUs that are made up end
in ``-sim``, those that are played from a recording in ``-rec``.

Both hosts ``exec`` this file inside a function, where a module-level name is invisible to methods:
hence imports inside methods, and helpers as base classes. Pure ASCII, and Python 3.6 or newer.
"""

_Host = globals().get("dool") or globals().get("dstat") or object


class _StateFile:
    """Where a daemon leaves its state, and how to read that without ever waiting for it."""

    SCHEMA = "gpumon.state/1"
    MAX_BYTES = 8 * 1024 * 1024
    MIN_FRESH_NS = 3 * 10**9

    def _fresh_state(self):
        """Return the first state that a living daemon wrote, or ``None`` and why there is none."""
        problem = "found no running daemon"
        for folder in self._folders():
            try:
                state = self._load(folder)
                if self._is_fresh(state):
                    return state, None
                problem = "found only what a daemon that is gone left in " + folder
            except (FileNotFoundError, NotADirectoryError):  # noqa: PERF203  (three folders)
                pass
            except Exception as error:  # whatever lies there, dstat's table must go on
                problem = "cannot use %s/state.json (%s)" % (folder, error)
        return None, problem

    def _folders(self):
        import os

        own, session = (os.environ.get(n) for n in ("GPUMON_RUNTIME_DIR", "XDG_RUNTIME_DIR"))
        usual = ["/run/gpumon", session and session + "/gpumon", "/tmp/gpumon-%d" % os.getuid()]
        return [own] if own else list(filter(None, usual))

    def _load(self, folder):
        """Read ``<folder>/state.json``, its GPUs keyed by how the user names them: ``"0"``."""
        import json
        import os
        import stat

        is_trusted = os.environ.get("GPUMON_RUNTIME_DIR") or not folder.startswith("/tmp/")
        if not is_trusted and os.lstat(folder).st_uid not in (0, os.getuid()):
            raise ValueError("the folder is somebody else's")
        # A FIFO would hold a plain open() for ever, and all of dstat with it.
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
        # A GPU that is cut by MIG has no utilisation, and its memory is that of its instances.
        there = [gpu for gpu in state["gpus"] if gpu.get("listed", True)]
        state["gpus"] = {self._label(gpu): gpu for gpu in there if not gpu.get("mig_enabled")}
        return state

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
    """What both kinds of columns are made of.

    Each has the names of its columns and their widths, says which of them a narrow terminal costs
    (``SPARED``) and which is coloured, and turns counters into shares, and shares into a row.
    """

    RED_FROM_PERCENT, YELLOW_FROM_PERCENT = 20, 5

    @staticmethod
    def numbers(table, names):
        """Return these fields of ``table``; ``None`` unless all are finite and not negative."""
        values = {name: table.get(name) for name in names}
        are_numbers = all(isinstance(v, float) and 0 <= v < 1e300 for v in values.values())
        return values if are_numbers else None

    @staticmethod
    def share(part, whole):
        """Return ``part`` of ``whole`` in percent, or -1, the hosts' word for not known."""
        return min(100.0, 100.0 * part / whole) if whole > 0 else -1

    @staticmethod
    def added(changes):
        """Return the changes of several GPUs as those of one."""
        added = {}
        for change in changes:
            for name, ns in change.items():
                added[name] = added.get(name, 0) + ns
        return added

    def alarm(self, percent):
        """Return the place of red, yellow or green in the hosts' list of colours."""
        if percent >= self.RED_FROM_PERCENT:
            return 0
        return 1 if percent >= self.YELLOW_FROM_PERCENT else 2


class _Use(_Figures):
    """The columns of ``--gpu``: busy share, memory and starved share."""

    OPTION = "--gpu"
    NICKS, WIDTHS = ("use", "mem", "strv"), (3, 3, 4)
    SPARED, COLOURED = 1, 2
    COUNTERS = ("observed_ns", "busy_ns", "starved_ns", "suspected_ns", "pending_ns")
    MEMORY_FIELDS = ("memory_used_bytes", "memory_capacity_bytes")

    def counters(self, gpu):
        """Return what was counted of ``gpu`` so far, in ns; ``None`` if that is not told."""
        return self.numbers(gpu, self.COUNTERS)

    def shares(self, changes, gpus):
        """Return busy and starved share, and whether most of the latter is only suspected."""
        moved = self.added(changes)
        suspected_ns = sum(map(self._suspected_ns, changes, gpus))
        starved = self.share(moved["starved_ns"] + suspected_ns, moved["observed_ns"])
        busy = self.share(moved["busy_ns"], moved["observed_ns"])
        return busy, starved, suspected_ns > moved["starved_ns"]

    @staticmethod
    def _suspected_ns(change, gpu):
        # A pause is counted when it ends, and pending until then. A GPU that keeps starving
        # shows it while it lasts: at its end pending falls by what suspected rises.
        pending_ns = change["pending_ns"] if gpu.get("starved_now") else 0
        return max(0.0, change["suspected_ns"] + pending_ns)

    def row(self, shares, gpus):
        """Return the values, the mark after the coloured one, and the place of its colour."""
        busy, starved, is_suspected = shares or (-1, -1, False)
        told = [t for t in (self.numbers(gpu, self.MEMORY_FIELDS) for gpu in gpus) if t]
        memory = self.share(*(sum(t[field] for t in told) for field in self.MEMORY_FIELDS))
        mark = "?" if starved > 0 and is_suspected else " "
        is_starved_now = any(gpu.get("starved_now") for gpu in gpus)
        alarm = 0 if is_starved_now else self.alarm(round(starved))
        return [busy, memory, starved], mark, alarm if shares else None


class _Stall(_Figures):
    """The columns of ``--gpu-stall``: what was lost, its main cause, and the reason of that.

    Shares are of the time whose cause is decided: what is pending at the end of a row belongs to
    the one in which its pause ends.
    """

    OPTION = "--gpu-stall"
    NICKS, WIDTHS = ("lost", "main", "cause"), (4, 4, 10)
    SPARED, COLOURED = 1, 0
    COUNTERS = ("observed_ns", "suspected_ns", "pending_ns")
    IDLE = "idle_ns"
    NO_LOSS = ("start_up", "not_in_use")
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
        """Return what was counted of ``gpu`` so far, in ns; ``None`` if that is not told.

        What is split is named by its field and the part: ``"idle_ns.checkpoint"``.
        """
        counted = self.numbers(gpu, self.COUNTERS)
        by_cause = self._split(gpu, self.IDLE)
        if counted is None or by_cause is None:
            return None
        counted.update(by_cause)
        for field in self.BY_REASON.values():  # an older daemon has none
            counted.update(self._split(gpu, field) or {})
        return counted

    def _split(self, gpu, field):
        parts = gpu.get(field)
        told = self.numbers(parts, parts) if isinstance(parts, dict) else None
        return None if told is None else {field + "." + part: ns for part, ns in told.items()}

    def shares(self, changes, gpus):
        """Return the share that was lost, that of its main cause, and the cause in a word."""
        moved = self.added(changes)
        settled_ns = moved["observed_ns"] - moved["pending_ns"]
        if moved["pending_ns"] > settled_ns:
            return -1, -1, "pending"
        by_cause = self._parts(moved, self.IDLE)
        lost_ns = {cause: ns for cause, ns in by_cause.items() if cause not in self.NO_LOSS}
        lost = self.share(sum(lost_ns.values()), settled_ns)
        if round(lost) == 0:
            return lost, -1, ""
        unknown_ns = lost_ns.get("unknown", 0)
        lost_ns["suspected"] = min(moved["suspected_ns"], unknown_ns)
        lost_ns["unknown"] = unknown_ns - lost_ns["suspected"]
        main = max(lost_ns, key=lost_ns.get)
        word = self.CAUSES.get(main, "other") + self._reason(moved, main)
        return lost, self.share(lost_ns[main], settled_ns), word

    def _reason(self, moved, cause):
        parts = self._parts(moved, self.BY_REASON.get(cause, ""))
        main = max(parts, key=parts.get) if any(parts.values()) else None
        return self.REASONS.get(main, "")

    @staticmethod
    def _parts(moved, field):
        start = field + "."
        return {n[len(start) :]: ns for n, ns in moved.items() if n.startswith(start)}

    def row(self, shares, gpus):
        """Return the values, the mark after the coloured one, and the place of its colour."""
        lost, main, cause = shares or (-1, -1, "")
        return [lost, main, cause], "", self.alarm(round(lost)) if shares else None


class _Rows:
    """From the daemon's counters to what they moved by since the last row."""

    def _moved_since_last_row(self, state):
        """Return ``{index: {counter: ns}}`` of GPUs that answer."""
        if state.get("pid") != self._daemon_pid:  # another daemon counts from its own start
            self._daemon_pid = state.get("pid")
            self._row_began, self._counters, self._moved_at = {}, {}, {}
        moved = {}
        for index, gpu in state["gpus"].items():
            counters = self._kind.counters(gpu) if gpu.get("present") else None
            if counters is None:
                continue
            began = self._row_began.get(gpu.get("uuid"), {})
            change = {name: ns - began.get(name, 0) for name, ns in counters.items()}
            # In a container every daemon is process 1: there, falling counters tell.
            has_fallen = any(ns < 0 for name, ns in change.items() if name != "pending_ns")
            moved[index] = counters if has_fallen else change
            before = self._counters.get(gpu.get("uuid"), {"observed_ns": -1})
            if counters["observed_ns"] != before["observed_ns"]:
                self._moved_at[gpu.get("uuid")] = state["monotonic_ns"]
            self._counters[gpu.get("uuid")] = counters
        return moved


class _Layout:
    """Which columns there are, how wide, and in which colours.

    The hosts paint low percentages red and 0 grey: an unused GPU would be red, and one that is
    not starved grey. So only the share that was lost is coloured here, and by what it means.
    """

    MARKS = (("replayed", "-rec"), ("simulated", "-sim"))

    def colwidth(self):
        """Tell the host the width of one GPU's columns."""
        return sum(self._kind.WIDTHS[column] + 1 for column in self._columns()) - 1

    def statwidth(self):
        """Tell the host the width of all columns; it asks when the terminal's has changed.

        Where they do not fit, it drops them all: rather give up one of each GPU.
        """
        was_narrow, self._is_narrow = self._is_narrow, False
        self._is_narrow = super().statwidth() > self._room()
        if self._is_narrow != was_narrow and "showheader" in globals():
            globals()["showheader"] = True
        return super().statwidth()

    def _columns(self):
        spared = self._kind.SPARED if self._is_narrow else None
        return [column for column in range(self.cols) if column != spared]

    def _room(self):
        """Return what the terminal leaves beside the columns that stand before these."""
        if not globals().get("cols"):  # no terminal, or its size is not asked for yet
            return float("inf")
        before = self._host("totlist")[: self._host("totlist").index(self)]
        return self._host("cols") - 1 - sum(other.statwidth() + 1 for other in before)

    def subtitle(self):
        """Give the host the second line of the header."""
        style, reset = self._host("theme")["subtitle"], self._host("ansi")["reset"]
        nicks = [self.nick[c].ljust(self._kind.WIDTHS[c]) for c in self._columns()]
        return self._joined([" ".join(style + nick + reset for nick in nicks)] * len(self.vars))

    def show(self):
        """Give the host one row for the screen."""
        columns = self._columns()
        return self._joined([" ".join(self._cell(g, c) for c in columns) for g in self.vars])

    def _joined(self, groups):
        return (self._host("theme")["frame"] + self._host("char")["colon"]).join(groups)

    def _cell(self, group, column):
        theme, (values, mark, alarm) = self._host("theme"), self._rows[group]
        is_coloured = column == self._kind.COLOURED
        text = self._text(values[column], mark if is_coloured else "", self._kind.WIDTHS[column])
        if alarm is None:
            return theme["error"] + text + theme["default"]
        # The hosts show a row in the making darker than one that stands.
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
        """Give the host one row for ``--output``; what is not known is an empty cell."""
        values = [value for group in self.vars for value in self.val[group]]
        texts = [v if isinstance(v, str) else "%.3f" % v if v >= 0 else "" for v in values]
        return self._host("char")["sep"].join(texts)

    @staticmethod
    def _host(name):
        """Return what the host, in whose module this is executed, calls ``name`` right now."""
        return globals()[name]


class dstat_plugin(_StateFile, _Rows, _Layout, _Host):  # noqa: N801 - dstat asks for this name
    """One kind of columns for the GPUs that a running ``gpumon serve`` watches."""

    def __init__(self):
        self._row_began, self._counters, self._moved_at, self._daemon_pid = {}, {}, {}, None
        self._last_shares, self._is_narrow, self._notes = {}, False, []

    def check(self):
        """Choose the columns by the file's name, which the hosts have told by now.

        Whatever is missing is said once, and the host loads the columns all the same.
        """
        import sys

        self._kind = self.STALL if "gpu_stall" in self.filename.rpartition("/")[2] else self.USE
        self.nick, self.cols = self._kind.NICKS, len(self._kind.NICKS)
        state, problem = self._fresh_state()
        self.vars = self._groups(list(state["gpus"]) if state else None)
        self.name = self._titles(state)
        if state is None:
            until = ", so %s shows '-' until `gpumon serve` is started" % self._kind.OPTION
            self._notes.append(problem + until)
        elif not state["gpus"]:
            self._notes.append("the daemon sees no GPU so far: `gpumon doctor` says why")
        for note in self._notes:
            sys.stderr.write("gpumon: %s\n" % note)
        self._mend_csv()
        return True

    def _groups(self, known):
        """Return what to show, such as ``["0", "total"]``; without a daemon no GPU is known."""
        import os

        chosen, unknown = [], []
        for word in filter(None, os.environ.get("DSTAT_GPU", "").replace(" ", "").split(",")):
            group = "%d" % int(word) if word.isdecimal() else word
            is_label = word.replace(":", "", 1).isdecimal()
            exists = group == "total" or (is_label if known is None else group in known)
            (chosen if exists else unknown).append(group)
        if unknown:
            words = ", ".join(unknown), ", ".join([*(known or ["indices"]), "total"])
            self._notes.append("DSTAT_GPU: there is no GPU %s, only %s" % words)
        if chosen:
            return sorted(set(chosen), key=chosen.index)
        return known if known and (self._host("op").full or len(known) <= 2) else ["total"]

    def _titles(self, state):
        marks = [end for field, end in self.MARKS if state and state.get(field)]
        return ["gpu" + group.replace("total", "-tot") + "".join(marks[:1]) for group in self.vars]

    def _mend_csv(self):
        """On Python 3, dstat 0.7.4 fails at any --output: it uses ``types``, never imports it."""
        import types

        if "dool" not in globals() and self._host("op").output and "types" not in globals():
            kinds = {"ListType": list, "TupleType": tuple, "StringType": str}
            globals()["types"] = types.SimpleNamespace(**kinds)

    def extract(self):
        """Take the values of one row: -1 for whatever is not known."""
        try:
            self._rows = self._rows_of(self._fresh_state()[0])
        except Exception:  # dool would die of it, and dstat show old values as if they were new
            self._rows = {}
        self._rows = {g: self._rows.get(g) or self._kind.row(None, []) for g in self.vars}
        self.val = {group: values for group, (values, _, _) in self._rows.items()}

    def _rows_of(self, state):
        """Return the row of each group of which ``state`` tells something."""
        if state is None:
            return {}
        self.name = self._titles(state)
        moved = self._moved_since_last_row(state)
        rows = {}
        for group in self.vars:
            members = [index for index in moved if group in (index, "total")]
            if members:
                gpus = [state["gpus"][index] for index in members]
                self._take_shares(group, [moved[index] for index in members], gpus, state)
                rows[group] = self._kind.row(self._last_shares.get(group), gpus)
        if self._host("step") == self._host("op").delay:
            # Here the next row begins; a GPU that is away keeps where its row began.
            self._row_began.update(self._counters)
        return rows

    def _take_shares(self, group, changes, gpus, state):
        """Take the shares of a row; where no counter moved, the last ones stand for a while."""
        moved_at = max(self._moved_at[gpu.get("uuid")] for gpu in gpus)
        if any(change["observed_ns"] > 0 for change in changes):
            self._last_shares[group] = self._kind.shares(changes, gpus)
        elif state["monotonic_ns"] - moved_at > self._fresh_for_ns(state):
            self._last_shares.pop(group, None)  # it is there, and nothing is known of it


# Inside a class, too, a host leaves the names above invisible.
dstat_plugin.USE, dstat_plugin.STALL = _Use(), _Stall()
dool_plugin = dstat_plugin
