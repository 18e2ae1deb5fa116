"""`gpumon run`: a command keeps its exit code, signals, input and output, and gains tags."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingReading
from tests.daemon import FollowingDaemon
from tests.e2e.pty_terminal import on_a_terminal
from tests.processes import ending
from tests.programs import ROOT, ran
from tests.training_processes import close_readers, read, reader_of
from tests.waiting import PATIENCE_S, wait_until

PYTHON = sys.executable
RUN = (PYTHON, "-m", "gpumon", "run", "--")

FAKE_TORCH = {
    "torch/__init__.py": "def is_grad_enabled(): return True\n",
    "torch/optim/__init__.py": "",
    "torch/optim/optimizer.py": (
        "hooks = []\n"
        "register_optimizer_step_post_hook = hooks.append\n"
        "def step():\n"
        "    for hook in hooks: hook(None, (), {})\n"
    ),
    "torch/utils/__init__.py": "",
    "torch/utils/data.py": (
        "def get_worker_info(): return None\n"
        "class DataLoader:\n"
        "    def __init__(self, items): self.items = items\n"
        "    def __iter__(self): return iter(self.items)\n"
    ),
}
"""As much of PyTorch as a loop over a loader needs."""

LOOP = """
from torch.optim.optimizer import step
from torch.utils.data import DataLoader
def train():
    for batch in DataLoader([1, 2, 3]):
        print(batch)
        step()
"""


class Folder:
    """A folder with scripts and a runtime folder, and `gpumon run` in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environ = {
            "GPUMON_RUNTIME_DIR": str(path / "rings"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(path)]),
        }
        for name, text in FAKE_TORCH.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return ran(*RUN, *words, environ=self.environ, cwd=self.path)

    def run_script(self, text: str, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run(PYTHON, *options, self.write("train.py", text))

    @contextlib.contextmanager
    def started(self, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [*RUN, *map(str, words)],
            env={**os.environ, **self.environ},
            cwd=self.path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with ending(process):
            yield process

    def rings(self) -> list[RingReading]:
        return list(read(reader_of(self.path / "rings")).rings)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    yield Folder(tmp_path)
    close_readers()


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment without gpumon."""
    venv = tmp_path_factory.mktemp("bare")
    made = ran(PYTHON, "-m", "venv", "--without-pip", venv)
    assert made.returncode == 0, made.stderr
    return venv / "bin" / "python"


class TestAnExitCode:
    @pytest.mark.parametrize("code", [0, 3])
    def test_is_that_of_the_command(self, code: int, folder: Folder) -> None:
        assert folder.run(PYTHON, "-c", f"raise SystemExit({code})").returncode == code

    def test_of_a_script_that_raises_is_1_after_its_traceback(self, folder: Folder) -> None:
        done = folder.run_script("1 / 0")

        assert done.returncode == 1
        assert done.stderr.startswith("Traceback (most recent call last):\n  File ")
        assert "ZeroDivisionError: division by zero\ngpumon: " in done.stderr

    def test_is_that_of_python_for_a_missing_script(self, folder: Folder) -> None:
        done = folder.run(PYTHON, "missing.py")

        assert done.returncode == 2
        assert "can't open file" in done.stderr


class TestACommandThatCannotBeRun:
    def test_is_missing(self, folder: Folder) -> None:
        done = folder.run("no-such-command", "train.py")

        assert (done.returncode, done.stderr) == (
            127,
            "gpumon: 'no-such-command' cannot be run: No such file or directory: write `gpumon run "
            "-- python train.py`\n",
        )

    def test_is_not_executable(self, folder: Folder) -> None:
        folder.write("train.py", "")

        done = folder.run("./train.py")

        assert (done.returncode, done.stderr) == (
            126,
            "gpumon: './train.py' cannot be run: Permission denied: write `gpumon run -- python "
            "./train.py`\n",
        )

    def test_has_an_interpreter_that_is_missing(self, folder: Folder) -> None:
        folder.write("train", "#!/no/such/python\n").chmod(0o755)

        done = folder.run("./train")

        assert (done.returncode, done.stderr) == (
            127,
            "gpumon: './train' cannot be run: the interpreter in its first line does not exist: "
            "write `gpumon run -- python train.py`\n",
        )

    @pytest.mark.parametrize("words", [(), ("--",)], ids=["nothing", "only --"])
    def test_is_not_given(self, words: tuple[str, ...], folder: Folder) -> None:
        done = ran(PYTHON, "-m", "gpumon", "run", *words, environ=folder.environ)

        assert done.returncode == 2
        assert "gpumon run: error: the command is missing" in done.stderr
        assert "gpumon run -- python train.py" in done.stderr


class TestTheCommand:
    def test_has_its_arguments_input_and_output(self, folder: Folder) -> None:
        code = "import sys; print(sys.argv[1:], sys.stdin.read(), end='')"
        with folder.started(PYTHON, "-c", code, "--epochs", "3", "--", "-x") as process:
            out, _ = process.communicate("a\nb", timeout=PATIENCE_S)

        assert out == "['--epochs', '3', '--', '-x'] a\nb"

    def test_needs_no_dashes_before_it(self, folder: Folder) -> None:
        words = (PYTHON, "-m", "gpumon", "run", PYTHON, "-c", "print('ran')", "--help")

        assert ran(*words, environ=folder.environ).stdout == "ran\n"

    def test_finds_its_path_and_variables_as_without_gpumon(self, folder: Folder) -> None:
        script = folder.write("show.py", "import sys, os, signal\nprint(sys.path)\n"
            "print(signal.getsignal(signal.SIGPIPE), signal.getsignal(signal.SIGINT))\n"
            "print(sorted(set(os.environ) - {'GPUMON_RUN_NOTES'}), os.getpgid(0) == 0)\n"
            "print('sitecustomize' in sys.modules, 'trainer_hooks' in sys.modules)\n")  # fmt: skip

        bare = ran(PYTHON, script, environ=folder.environ, cwd=folder.path)

        assert folder.run(PYTHON, script).stdout == bare.stdout

    def test_is_in_the_same_process_group(self, folder: Folder) -> None:
        code = "import os; print(os.getpgid(0) == os.getpgid(os.getppid()))"

        assert folder.run(PYTHON, "-c", code).stdout == "True\n"


WAITS = """
import signal, sys
def handle(number, _):
    print("got", signal.Signals(number).name, flush=True)
    if number != signal.SIGUSR1: sys.exit(7)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT):
    signal.signal(number, handle)
print("there", flush=True)
while True: signal.pause()
"""


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


class TestASignal:
    @pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
    def test_is_forwarded_once(self, name: str, folder: Folder) -> None:
        with folder.started(PYTHON, "-c", WAITS) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "there\n"
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.readline() == "got SIGUSR1\n"
            process.send_signal(signal.Signals[name])
            out, _ = process.communicate(timeout=PATIENCE_S)

        assert (out, process.returncode) == (f"got {name}\n", 7)

    @pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV", "SIGINT"])
    def test_that_ends_the_command_ends_gpumon(self, name: str, folder: Folder) -> None:
        code = f"import os, signal; os.kill(os.getpid(), signal.{name})"

        assert folder.run(PYTHON, "-c", code).returncode == -signal.Signals[name]

    def test_of_gpumon_that_cannot_be_caught_ends_the_command(self, folder: Folder) -> None:
        code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
        with folder.started(PYTHON, "-c", code) as process:
            assert process.stdout is not None
            child = int(process.stdout.readline())
            process.kill()
            process.wait(PATIENCE_S)
            wait_until(lambda: not Path(f"/proc/{child}").exists())

    def test_that_stops_the_group_stops_both_until_it_continues(self, folder: Folder) -> None:
        process = subprocess.Popen(
            [*RUN, PYTHON, "-c", "import os; print(os.getpid(), flush=True); " + WAITS],
            env={**os.environ, **folder.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=os.setpgrp,
        )
        with ending(process):
            assert process.stdout is not None
            pids = [process.pid, int(process.stdout.readline())]
            assert process.stdout.readline() == "there\n"
            os.killpg(process.pid, signal.SIGTSTP)
            wait_until(lambda: [*map(state_of, pids)] == ["T", "T"])
            os.killpg(process.pid, signal.SIGCONT)
            wait_until(lambda: "T" not in map(state_of, pids))
            process.send_signal(signal.SIGTERM)

            assert process.wait(PATIENCE_S) == 7

    def test_of_ctrl_c_comes_from_the_terminal_alone(self, folder: Folder) -> None:
        written = on_a_terminal(
            [*RUN, PYTHON, "-c", WAITS],
            environ={**os.environ, **folder.environ},
            ctrl_c_at=r"there\s",
        )

        assert written.exit_code == 7
        assert [line for line in written.lines if "got" in line] == ["got SIGINT"]


class TestALoopOverALoader:
    def test_is_tagged(self, folder: Folder) -> None:
        done = folder.run_script(LOOP + "train()")

        assert done.stdout == "1\n2\n3\n"
        (ring,) = folder.rings()
        assert (ring.facts.run, ring.steps) == ("train", 3)
        assert {phase.value for phase in ring.phase_ns} >= {"start_up", "input_wait", "other"}

    @pytest.mark.parametrize("way", ["-c", "-m", "stdin"])
    def test_is_tagged_however_it_is_run(self, way: str, folder: Folder) -> None:
        folder.write("loops.py", LOOP + "if __name__ == '__main__': train()")
        code = "import loops; loops.train()"
        words = {"-c": ("-c", code), "-m": ("-m", "loops"), "stdin": ()}[way]
        with folder.started(PYTHON, *words) as process:
            out, _ = process.communicate(code if way == "stdin" else "", timeout=PATIENCE_S)

        assert out == "1\n2\n3\n"
        assert [ring.steps for ring in folder.rings()] == [3]

    def test_is_tagged_where_gpumon_is_not_installed(
        self, folder: Folder, bare_python: Path
    ) -> None:
        script = folder.write(
            "train.py",
            f"import sys; sys.path.remove({str(ROOT)!r})\n{LOOP}\ntrain()\n"
            "try: import gpumon.sources\nexcept ImportError: print('only the core')\n",
        )

        assert folder.run(bare_python, script).stdout == "1\n2\n3\nonly the core\n"
        assert [ring.steps for ring in folder.rings()] == [3]

    def test_is_tagged_where_the_script_replaces_its_path(
        self, folder: Folder, bare_python: Path
    ) -> None:
        kept = "[folder for folder in sys.path if '/python3' in folder]"
        script = folder.write(
            "train.py", f"import sys\nsys.path = [{str(folder.path)!r}, *{kept}]\n{LOOP}\ntrain()"
        )

        assert folder.run(bare_python, script).stdout == "1\n2\n3\n"
        assert [ring.steps for ring in folder.rings()] == [3]

    def test_is_left_alone_in_a_script_with_tags(self, folder: Folder) -> None:
        folder.run_script(
            "from trainer_hooks import step as count, timed\n" + LOOP +
            "for batch in timed(DataLoader([1, 2])):\n    step(); count()\n"
        )  # fmt: skip

        (ring,) = folder.rings()
        assert ring.steps == 2

    def test_that_reads_another_loader_waits_all_the_time(self, folder: Folder) -> None:
        folder.run_script(
            LOOP
            + """
import time
class Slow:
    def __iter__(self):
        for item in DataLoader([1, 2]):
            time.sleep(0.2)
            yield item
for batch in DataLoader(Slow()): step()
"""
        )

        (ring,) = folder.rings()
        assert ring.steps == 2
        assert ring.phase_ns[TrainingPhase.INPUT_WAIT] >= 400_000_000

    def test_is_left_alone_on_another_thread(self, folder: Folder) -> None:
        done = folder.run_script(
            LOOP + "import threading\none = threading.Thread(target=train)\none.start(); one.join()"
        )

        assert done.stdout == "1\n2\n3\n"
        assert folder.rings() == []

    def test_makes_no_ring_before_it_begins(self, folder: Folder) -> None:
        done = folder.run_script(
            LOOP + "import os, sys\nprint('trainer_hooks' in sys.modules, os.listdir('.').count("
            "'rings'))"
        )

        assert done.stdout == "False 0\n"

    @pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
    def test_makes_no_ring_in_a_worker(self, method: str, folder: Folder) -> None:
        done = folder.run_script(
            "import multiprocessing\n"
            + LOOP
            + f"""
def work(_): return sum(DataLoader([1, 2]))
if __name__ == "__main__":
    train()
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        print(pool.map(work, range(2)))
"""
        )

        assert done.stdout == "1\n2\n3\n[3, 3]\n", done.stderr
        assert [ring.steps for ring in folder.rings()] == [3]

    def test_is_pickled_as_without_gpumon(self, folder: Folder) -> None:
        script = folder.write(
            "save.py", LOOP + "import pickle, sys\nloader = DataLoader([1])\ntrain()\n"
            "print(pickle.dumps((loader, DataLoader)))"
        )  # fmt: skip

        bare = ran(PYTHON, script, environ=folder.environ, cwd=folder.path)

        assert folder.run(PYTHON, script).stdout == bare.stdout

    def test_leaves_the_import_of_the_framework_as_it_was(self, folder: Folder) -> None:
        script = folder.write(
            "show.py",
            "import inspect, torch.utils.data as data\n"
            "print(data.__spec__.loader is data.__loader__, vars(data.__loader__).keys())\n"
            "print(inspect.signature(data.DataLoader.__iter__), data.DataLoader.__iter__)\n",
        )

        bare = ran(PYTHON, script, environ=folder.environ, cwd=folder.path)
        hooked = folder.run(PYTHON, script)

        without_address = [out.stdout.partition(" at ")[0] for out in (bare, hooked)]
        assert without_address[0] == without_address[1]

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("torch/utils/data.py", "DataLoader = list"),
            ("torch/utils/data.py", "class DataLoader:\n    def __getitem__(self, at): return at"),
            ("torch/optim/optimizer.py", "def step(): pass"),
            ("torch/__init__.py", ""),
        ],
        ids=["another class", "no such method", "an old optimizer", "nothing"],
    )
    def test_runs_untagged_with_another_torch(self, name: str, text: str, folder: Folder) -> None:
        folder.write(name, text)

        done = folder.run_script(LOOP + "print(1)")

        assert (done.returncode, done.stdout) == (0, "1\n")


class TestAnotherSitecustomize:
    def test_is_run_as_well(self, folder: Folder) -> None:
        folder.write(
            "sitecustomize.py",
            "import os\nHERE = __file__\nif 'GPUMON_RUN_NOTES' in os.environ: print('mine')",
        )

        done = folder.run_script(LOOP + "import sitecustomize; print(sitecustomize.HERE); train()")

        assert done.stdout == f"mine\n{folder.path / 'sitecustomize.py'}\n1\n2\n3\n"
        assert len(folder.rings()) == 1

    def test_that_raises_is_reported_by_python_as_ever(self, folder: Folder) -> None:
        folder.write("sitecustomize.py", "1 / 0")

        done = folder.run_script(LOOP + "train()")

        assert done.stdout == "1\n2\n3\n"
        assert done.stderr.count("Error in sitecustomize; set PYTHONVERBOSE for traceback:") == 2


class TestTheEnd:
    def test_shows_what_the_tags_show(self, folder: Folder) -> None:
        slow = LOOP.replace("[1, 2, 3]", "Slow()") + (
            "import time\nclass Slow:\n    def __iter__(self):\n"
            "        for item in (1, 2): time.sleep(0.2); yield item\ntrain()"
        )

        end = folder.run_script(slow).stderr

        assert "gpumon: the command ran for " in end
        assert " in the tagged process, 2 steps\n" in end
        assert " %  waiting for input\n" in end
        assert "start `gpumon serve`" in end

    def test_is_the_report_of_a_daemon(self, folder: Folder) -> None:
        steps = """
import json, time
with open("busy.jsonl", "a", buffering=1) as spans:
    for _ in range(10):
        train()
        start_ns = time.monotonic_ns()
        time.sleep(0.15)
        span = {"gpu": 0, "start_ns": start_ns, "end_ns": time.monotonic_ns()}
        print(json.dumps(span), file=spans)
"""
        with FollowingDaemon(folder.path) as daemon:
            folder.environ |= {
                "GPUMON_RUNTIME_DIR": daemon.environ["GPUMON_RUNTIME_DIR"],
                "GPUMON_GPUS": "0",
            }
            done = folder.run_script(LOOP + steps)

        assert "Run train (loop, pid " in done.stderr
        assert "GPU 0" in done.stderr
        assert "By the clock of the host" not in done.stderr

    @pytest.mark.parametrize("option", ["-I", "-E", "-S", "-uBI"])
    def test_says_why_an_isolated_python_has_no_tags(self, option: str, folder: Folder) -> None:
        folder.write("module.py", "raise SystemExit(3)")
        done = folder.run(PYTHON, option, "-c", "raise SystemExit(3)")

        assert done.returncode == 3
        assert done.stderr == (
            f"gpumon: this run has no tags: with -{option[-1]}, Python ignores them; leave "
            f"-{option[-1]} out, or put a PhaseTagger into the script\n"
        )

    def test_says_what_was_missing_for_tags(self, folder: Folder) -> None:
        assert folder.run("true").stderr == (
            "gpumon: nothing was tagged: the command started no Python that read PYTHONPATH; "
            "options -I, -E and -S, containers and other machines do not\n"
        )
        assert folder.run(PYTHON, "-c", "").stderr == (
            "gpumon: nothing was tagged: the command called no fit of Keras, Lightning or the "
            "Hugging Face Trainer, and used no DataLoader of PyTorch on its main thread\n"
        )

    def test_leaves_no_file_behind(self, folder: Folder) -> None:
        folder.environ["TMPDIR"] = str(folder.path / "tmp")
        (folder.path / "tmp").mkdir()
        folder.run(PYTHON, "-c", "")

        assert list((folder.path / "tmp").iterdir()) == []

    def test_says_that_hooks_do_not_load(self, folder: Folder, bare_python: Path) -> None:
        folder.write("theirs/trainer_hooks/__init__.py", "")  # another package of that name

        path = f"import sys\nsys.path.remove({str(ROOT)!r}); sys.path.append('theirs')\n"
        done = folder.run(bare_python, "-c", path + LOOP + "train()")

        assert done.stdout == "1\n2\n3\n"
        assert done.stderr == (
            "gpumon: nothing was tagged, because the hooks did not load: torch_loaders: No module "
            "named 'trainer_hooks.injected'\n"
        )
