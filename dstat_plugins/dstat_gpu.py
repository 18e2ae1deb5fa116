# gpumon-dstat-plugin: as shipped
"""Columns ``--gpu`` for dstat 0.7.4 and dool: busy, memory and starved share of each GPU.

``use`` and ``strv`` are shares of the time between two rows, taken from the counters in the state
file of a running ``gpumon serve``; the first row covers the time since that daemon started, as
dstat's own first row covers the time since boot. ``strv`` is the time in which the GPU was idle
because its training waited for input, or paused as if it did; a ``?`` after it says that most of
that is only suspected: no training process proved it. ``-`` is *not known*.

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

    @staticmethod
    def _numbers(gpu, names):
        """Return these fields of ``gpu``; ``None`` unless all are finite and not negative."""
        values = [gpu.get(name) for name in names]
        return values if all(isinstance(v, float) and 0 <= v < 1e300 for v in values) else None


class _Shares:
    """From the daemon's counters to shares of the time since the last row."""

    COUNTERS = ("observed_ns", "busy_ns", "starved_ns", "suspected_ns", "pending_ns")
    MEMORY_FIELDS = ("memory_used_bytes", "memory_capacity_bytes")

    def _moved_since_last_row(self, state):
        """Return ``{index: [observed, busy, starved, suspected]}`` of GPUs that answer, in ns."""
        if state.get("pid") != self._daemon_pid:  # another daemon counts from its own start
            self._daemon_pid = state.get("pid")
            self._row_began, self._counters, self._moved_at = {}, {}, {}
        moved = {}
        for index, gpu in state["gpus"].items():
            counters = self._numbers(gpu, self.COUNTERS)
            if not gpu.get("present") or counters is None:
                continue
            began = self._row_began.get(gpu.get("uuid"), [0] * 5)
            change = [counters[i] - began[i] for i in range(5)]
            # In a container every daemon is process 1: there, falling counters tell.
            *sums, pending = counters if min(change[:4]) < 0 else change
            # A pause is counted when it ends, and pending until then. A GPU that keeps starving
            # shows it while it lasts: at its end pending falls by what suspected rises.
            sums[3] = max(0.0, sums[3] + (pending if gpu.get("starved_now") else 0))
            moved[index] = sums
            if counters[0] != self._counters.get(gpu.get("uuid"), [-1])[0]:
                self._moved_at[gpu.get("uuid")] = state["monotonic_ns"]
            self._counters[gpu.get("uuid")] = counters
        return moved

    def _memory_share(self, gpus):
        """Return the memory in use on those of ``gpus`` that tell, in percent, or -1."""
        told = [pair for pair in (self._numbers(g, self.MEMORY_FIELDS) for g in gpus) if pair]
        return self._share(sum(used for used, _ in told), sum(size for _, size in told))

    @staticmethod
    def _share(part, whole):
        """Return ``part`` of ``whole`` in percent, or -1, the hosts' word for not known."""
        return min(100.0, 100.0 * part / whole) if whole > 0 else -1


class _Layout:
    """Which columns there are, how wide, and in which colours.

    The hosts paint low percentages red and 0 grey: an unused GPU would be red, and one that is
    not starved grey. So only the starved share is coloured here, and by what it means.
    """

    WIDTHS = (3, 3, 4)
    MARKS = (("replayed", "-rec"), ("simulated", "-sim"))
    MEMORY, STARVED = 1, 2
    RED_FROM_PERCENT, YELLOW_FROM_PERCENT = 20, 5

    def colwidth(self):
        """Tell the host the width of one GPU's columns."""
        return sum(self.WIDTHS[column] + 1 for column in self._columns()) - 1

    def statwidth(self):
        """Tell the host the width of all columns; it asks when the terminal's has changed.

        Where they do not fit, it drops all of ``--gpu``: rather give up the memory column.
        """
        was_narrow, self._is_narrow = self._is_narrow, False
        self._is_narrow = super().statwidth() > self._room()
        if self._is_narrow != was_narrow and "showheader" in globals():
            globals()["showheader"] = True
        return super().statwidth()

    def _columns(self):
        return [0, self.STARVED] if self._is_narrow else [0, self.MEMORY, self.STARVED]

    def _room(self):
        """Return what the terminal leaves beside the columns that stand before these."""
        if not globals().get("cols"):  # no terminal, or its size is not asked for yet
            return float("inf")
        before = self._host("totlist")[: self._host("totlist").index(self)]
        return self._host("cols") - 1 - sum(other.statwidth() + 1 for other in before)

    def subtitle(self):
        """Give the host the second line of the header."""
        style, reset = self._host("theme")["subtitle"], self._host("ansi")["reset"]
        nicks = [self.nick[c].center(self.WIDTHS[c]) for c in self._columns()]
        return self._joined([" ".join(style + nick + reset for nick in nicks)] * len(self.vars))

    def show(self):
        """Give the host one row for the screen."""
        columns = self._columns()
        return self._joined([" ".join(self._cell(g, c) for c in columns) for g in self.vars])

    def _joined(self, groups):
        return (self._host("theme")["frame"] + self._host("char")["colon"]).join(groups)

    def _cell(self, group, column):
        theme, value = self._host("theme"), self.val[group][column]
        text = "-" if value < 0 else "%d" % round(value)
        if column == self.STARVED:
            text += "?" if value > 0 and self._is_suspected[group] else " "
        text = text.rjust(self.WIDTHS[column])
        if self.val[group][0] < 0:
            return theme["error"] + text + theme["default"]
        # The hosts show a row in the making darker than one that stands.
        shade = "_lo" if self._host("step") == self._host("op").delay else "_hi"
        if column != self.STARVED:
            return theme["text" + shade] + text
        colors = theme["colors" + shade]
        return colors[self._alarm(group, round(value)) % len(colors)] + text

    def _alarm(self, group, percent):
        """Return the place of red, yellow or green in the hosts' list of colours."""
        if percent >= self.RED_FROM_PERCENT or self._is_starved_now[group]:
            return 0
        return 1 if percent >= self.YELLOW_FROM_PERCENT else 2

    def showcsv(self):
        """Give the host one row for ``--output``; what is not known is an empty cell."""
        values = [value for group in self.vars for value in self.val[group]]
        return self._host("char")["sep"].join("%.3f" % v if v >= 0 else "" for v in values)

    @staticmethod
    def _host(name):
        """Return what the host, in whose module this is executed, calls ``name`` right now."""
        return globals()[name]


class dstat_plugin(_StateFile, _Shares, _Layout, _Host):  # noqa: N801 - dstat asks for this name
    """Busy, memory and starved share of each GPU that a running ``gpumon serve`` watches."""

    def __init__(self):
        self.nick, self.cols = ("use", "mem", "strv"), 3
        self._row_began, self._counters, self._moved_at, self._daemon_pid = {}, {}, {}, None
        self._last_shares, self._is_suspected, self._is_starved_now = {}, {}, {}
        self._is_narrow, self._notes = False, []
        state, problem = self._fresh_state()
        self.vars = self._groups(list(state["gpus"]) if state else None)
        self.name = self._titles(state)
        if state is None:
            self._notes.append(problem + ", so --gpu shows '-' until `gpumon serve` is started")
        elif not state["gpus"]:
            self._notes.append("the daemon sees no GPU so far: `gpumon doctor` says why")

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

    def check(self):
        """Say once what is missing, and let the host load the columns all the same."""
        import sys
        import types

        for note in self._notes:
            sys.stderr.write("gpumon: %s\n" % note)
        # On Python 3, dstat 0.7.4 fails at any --output: it uses this module, never imports it.
        if "dool" not in globals() and self._host("op").output and "types" not in globals():
            kinds = {"ListType": list, "TupleType": tuple, "StringType": str}
            globals()["types"] = types.SimpleNamespace(**kinds)
        return True

    def extract(self):
        """Take the values of one row: -1 for whatever is not known."""
        try:
            self.val = {group: [-1] * self.cols for group in self.vars}
            self._take_row()
        except Exception:  # dool would die of it, and dstat show old values as if they were new
            self.val = {group: [-1] * self.cols for group in self.vars}

    def _take_row(self):
        state, _ = self._fresh_state()
        if state is None:
            return
        self.name = self._titles(state)
        moved = self._moved_since_last_row(state)
        for group in self.vars:
            members = [index for index in moved if group in (index, "total")]
            if members:
                gpus = [state["gpus"][index] for index in members]
                moved_at = max(self._moved_at[gpu.get("uuid")] for gpu in gpus)
                if state["monotonic_ns"] - moved_at > self._fresh_for_ns(state):
                    self._last_shares.pop(group, None)  # it is there, and nothing is known of it
                self._set_shares(group, [moved[index] for index in members])
                self.val[group][self.MEMORY] = self._memory_share(gpus)
                self._is_starved_now[group] = any(gpu.get("starved_now") for gpu in gpus)
        if self._host("step") == self._host("op").delay:
            # Here the next row begins; a GPU that is away keeps where its row began.
            self._row_began.update(self._counters)

    def _set_shares(self, group, changes):
        """Set busy and starved share; a group in which no counter moved repeats its last ones."""
        observed, busy, starved, suspected = (sum(c[i] for c in changes) for i in range(4))
        if observed > 0:
            lost = self._share(starved + suspected, observed)
            self._last_shares[group] = self._share(busy, observed), lost, suspected > starved
        use, lost, self._is_suspected[group] = self._last_shares.get(group, (-1, -1, False))
        self.val[group] = [use, -1, lost]


dool_plugin = dstat_plugin
