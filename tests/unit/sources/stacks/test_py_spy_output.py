"""Tests of parsing what py-spy writes, or what a stranger in its place writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpumon.core.stacks.stack import StackFrame, ThreadStack
from gpumon.sources.host.process_tasks import MAX_THREADS
from gpumon.sources.stacks.py_spy_output import UnreadableOutputError, is_torn, parse_threads

PID = 4_711


def frame(name: str = "<module>", **changes: Any) -> dict[str, Any]:
    path = "/home/jo/train.py"
    return {
        "name": name, "filename": path, "module": None, "short_filename": path, "line": 7,
        "locals": None, "is_entry": True, "is_shim_entry": False, **changes,
    }  # fmt: skip


def thread(*frames: Any, tid: int | None = PID, **changes: Any) -> dict[str, Any]:
    return {
        "pid": PID, "thread_id": 140_442_983_052_992, "thread_name": "MainThread",
        "os_thread_id": tid, "active": False, "owns_gil": False, "frames": list(frames),
        "process_info": None, **changes,
    }  # fmt: skip


def parsed(*threads: Any, tids: dict[int, int] | None = None) -> tuple[ThreadStack, ...]:
    return parse_threads(json.dumps(threads).encode(), PID, tids)


class TestAThread:
    def test_has_its_frames_innermost_first(self) -> None:
        assert parsed(thread(frame("Loader.wait", line=88), frame())) == (
            ThreadStack(
                PID,
                (
                    StackFrame("Loader.wait", "/home/jo/train.py", 88),
                    StackFrame("<module>", "/home/jo/train.py", 7),
                ),
                is_active=False,
                name="MainThread",
            ),
        )

    def test_that_began_the_process_comes_first(self) -> None:
        threads = parsed(thread(tid=8), thread(tid=PID), thread(tid=9))

        assert [one.tid for one in threads] == [PID, 8, 9]

    def test_without_an_id_is_recognised_by_its_outermost_function(self) -> None:
        """As before Python 3.11, where py-spy also calls all threads active."""
        started = thread(frame("run"), frame("_bootstrap"), tid=None, active=True)
        first = thread(frame("step"), frame("<module>"), tid=None, active=True)

        found = parsed(started, first)

        assert [(one.tid, one.is_active, one.frames[0].function) for one in found] == [
            (PID, None, "step"),
            (None, None, "run"),
        ]

    def test_without_an_id_that_is_the_only_one_began_the_process(self) -> None:
        assert parsed(thread(frame("run"), frame("_bootstrap"), tid=None))[0].tid == PID

    def test_of_a_container_has_its_id_here(self) -> None:
        found = parsed(thread(tid=1, active=True), thread(tid=5), tids={1: PID, 9: 4_720})

        assert [(one.tid, one.is_active) for one in found] == [(PID, None), (None, None)]

    def test_of_another_process_is_left_out(self) -> None:
        assert len(parsed(thread(pid=1), thread())) == 1


class TestAStackThatEndsEarly:
    def test_is_recognised_by_its_outermost_function(self) -> None:
        outermost = ["<module>", "_run_module_as_main", "Thread._bootstrap", "_shutdown", "genexpr"]

        torn = [is_torn(parsed(thread(frame("f"), frame(name))), PID) for name in outermost]

        assert torn == [False, False, False, False, True]

    def test_is_one_without_frames_or_without_the_first_thread(self) -> None:
        assert is_torn(parsed(thread()), PID)
        assert is_torn(parsed(thread(frame(), tid=9)), PID)


class TestWhatIsTooMuch:
    def test_of_threads_keeps_the_one_that_began_the_process(self) -> None:
        found = parsed(*(thread(tid=PID + n) for n in range(MAX_THREADS + 100, -1, -1)))

        assert len(found) == MAX_THREADS
        assert found[0].tid == PID

    def test_of_frames_keeps_both_ends(self) -> None:
        deep = [frame(str(n)) for n in range(10_000)]

        [found] = parsed(thread(*deep))

        names = [int(one.function) for one in found.frames]
        assert names == [*range(500), *range(9_500, 10_000)]

    def test_of_text_is_cut(self) -> None:
        [found] = parsed(thread(frame("f" * 9_000, filename="/p" * 9_000), thread_name="n" * 9_000))

        assert [len(text) for text in (found.name, *found.frames[0][:2])] == [200, 200, 1_000]


class TestText:
    def test_cannot_control_a_terminal(self) -> None:
        hostile = "f\x1b[31m\n\r\0\u202e\ud800"

        [found] = parsed(thread(frame(hostile, filename=hostile), thread_name=hostile))

        assert found.name == "f\ufffd[31m" + "\ufffd" * 5
        assert found.frames[0][:2] == (found.name, found.name)

    def test_of_other_languages_stays(self) -> None:
        name = "読み込み_größe_загрузка_تحميل_🚂"

        assert parsed(thread(frame(name)))[0].frames[0].function == name


MISSING = object()
STRANGE = [
    b"", b"{", b"null", b"[null]", b"[]", b"{}", b"7", b'"a"', b"[[]]", b"[{}]", b"\xff\xfe",
    b'[{"pid": 4711}]', b'[{"pid": 4711, "frames": {}}]', b'[{"pid": 4711, "frames": [7]}]',
    b'[{"pid": 4711, "frames": [{}]}]', b'[{"pid": 4711, "frames": [{"name": null}]}]',
    b'[{"pid": NaN, "frames": []}]', b'[{"pid": 4711, "frames": [], "x": Infinity}]',
    b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b"1" * 5_000,
    json.dumps({"threads": [thread()]}).encode(),
    json.dumps([thread(frame())]).encode()[:-9],
]  # fmt: skip


class TestOutputOfAnotherForm:
    @pytest.mark.parametrize("raw", STRANGE, ids=range(len(STRANGE)))
    def test_is_one_error_in_words(self, raw: bytes) -> None:
        with pytest.raises(UnreadableOutputError, match="its output "):
            parse_threads(raw, PID)

    @pytest.mark.parametrize("value", [None, "7", -1, 1.5, True, [], {}, 1 << 70, MISSING])
    def test_in_one_number_is_no_number(self, value: object) -> None:
        entry = thread(frame(line=value), tid=1, os_thread_id=value)
        if value is MISSING:
            del entry["frames"][0]["line"], entry["os_thread_id"]

        _, found = parsed(entry, thread(tid=PID))

        assert (found.tid, found.frames[0].line) == (None, None)

    @pytest.mark.parametrize("key", ["thread_name", "active", "owns_gil", "process_info"])
    @pytest.mark.parametrize("value", [[], 7, MISSING])
    def test_in_a_detail_leaves_the_rest(self, key: str, value: object) -> None:
        entry = thread(frame())
        entry[key] = value
        if value is MISSING:
            del entry[key]

        [found] = parsed(entry)

        assert found.frames == (StackFrame("<module>", "/home/jo/train.py", 7),)

    def test_may_have_more_than_we_know(self) -> None:
        assert parsed(thread(frame(column=9), gil_wait={"ns": 1})) == parsed(thread(frame()))
