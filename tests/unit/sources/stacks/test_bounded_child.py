"""Tests of running a program within bounds."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from gpumon.sources.stacks import bounded_child
from gpumon.sources.stacks.bounded_child import BoundedChild
from tests.waiting import wait_until


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that no parent has reaped yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


SURROUNDINGS = """
import json, os, sys
print(json.dumps({
    "environment": [name for name in os.environ if name != "LC_CTYPE"],  # Python itself sets it
    "folder": os.getcwd(),
    "leads": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "input": sys.stdin.read(),
    "files": sorted(os.listdir("/proc/self/fd")),
}))
"""


class TestAChild:
    def test_gets_nothing_of_ours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GPUMON_TOKEN", "hush")
        inheritable = os.open("/dev/null", os.O_RDONLY)
        os.set_inheritable(inheritable, True)
        try:
            result = BoundedChild().run(python(SURROUNDINGS), 20)
        finally:
            os.close(inheritable)

        assert (result.code, result.trouble) == (0, None)
        found = json.loads(result.output)
        assert found.pop("files") == ["0", "1", "2", "3"]  # the last lists them
        assert found == {"environment": ["LC_ALL"], "folder": "/", "leads": True, "input": ""}

    def test_has_its_status_and_complaint(self) -> None:
        result = BoundedChild().run(python("import sys; sys.exit('it is broken')"), 20)

        assert (result.code, result.complaint, result.trouble) == (1, b"it is broken\n", None)

    def test_counts_its_cpu_time(self) -> None:
        child = BoundedChild()

        child.run(python("import time\nwhile time.process_time() < 0.2: pass"), 20)

        assert 0.2 <= child.cpu_seconds < 2

    def test_that_is_no_program_is_a_sentence(self, tmp_path: Path) -> None:
        text = tmp_path / "text"
        text.write_text("no program")
        child = BoundedChild()

        troubles = [child.run([str(path)], 20).trouble for path in (tmp_path / "none", text, "a\0")]

        assert troubles == [
            "it could not be started: No such file or directory",
            "it could not be started: Permission denied",
            "it could not be started: embedded null byte",
        ]


class TestAChildThatDoesNotEnd:
    @pytest.mark.parametrize("closes", ["", "exec >&- 2>&-;"])
    def test_is_killed_with_its_own_children_and_reaped(self, tmp_path: Path, closes: str) -> None:
        pids = tmp_path / "pids"
        child = BoundedChild()
        began_s = time.monotonic()

        script = f"sleep 600 & echo $! $$ > {pids}; {closes} sleep 600"
        result = child.run(["/bin/sh", "-c", script], 1.0)

        assert 1.0 <= time.monotonic() - began_s < 5
        assert (result.code, result.trouble) == (None, "it did not end within 1 s")
        grandchild, own = map(int, pids.read_text().split())
        wait_until(lambda: is_gone(grandchild))
        assert not Path(f"/proc/{own}").exists()  # reaped

    def test_and_cannot_be_killed_is_reaped_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        child = BoundedChild()
        with monkeypatch.context() as stuck:  # as in a driver that does not return
            stuck.setattr(os, "wait4", lambda *_: (0, 0, None))
            began_s = time.monotonic()
            child.run(python(""), 20)
            assert child.run(python(""), 20).trouble == "an earlier one could not be killed yet"
            assert time.monotonic() - began_s < 10

        assert child.run(python(""), 20).code == 0

    def test_and_ignores_all_signals_is_killed(self) -> None:
        script = "trap '' HUP INT TERM QUIT; while :; do :; done"

        assert BoundedChild().run(["/bin/sh", "-c", script], 0.2).code is None


class TestOutput:
    def test_that_is_too_long_ends_the_child(self) -> None:
        result = BoundedChild(max_output_bytes=1 << 20).run(["/bin/cat", "/dev/zero"], 20)

        assert (result.code, result.trouble) == (None, "it wrote more than 1 MiB")
        assert len(result.output) <= 1 << 20

    def test_of_the_bound_is_whole(self) -> None:
        child = BoundedChild(max_output_bytes=1 << 20)

        result = child.run(["/usr/bin/head", "-c", str(1 << 20), "/dev/zero"], 20)

        assert (result.code, len(result.output)) == (0, 1 << 20)

    def test_on_standard_error_is_cut(self) -> None:
        code = "import sys; sys.stderr.write('x' * 1_000_000); print('done')"

        result = BoundedChild().run(python(code), 20)

        assert (result.code, result.output) == (0, b"done\n")
        assert len(result.complaint) <= bounded_child._MAX_COMPLAINT_BYTES


def test_a_program_whose_parent_ignores_the_ends_of_children(
    tmp_path: Path,
) -> None:
    """As one that a launcher starts with SIGCHLD ignored: the kernel then reaps by itself."""
    code = (
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from gpumon.sources.stacks.bounded_child import BoundedChild\n"
        "print(BoundedChild().run(['/bin/echo', 'here'], 20))"
    )

    result = BoundedChild().run(["/usr/bin/env", f"PYTHONPATH={Path.cwd()}", *python(code)], 20)

    assert b"output=b'here\\n'" in result.output
    assert b"trouble=None" in result.output
