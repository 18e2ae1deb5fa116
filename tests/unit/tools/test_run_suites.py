"""Which suites are run, with which words, and what is said of them at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.tools import run_suites
from tests.tools.run_suites import (
    NOTHING_ASKED_FOR,
    SUITES,
    code_of,
    count_of_tests,
    failed_tests,
    failures_of,
    jobs_of,
    split_words,
    table_of,
    try_again,
)
from tests.tools.side_by_side import Job, Lane, run_side_by_side

FOLDER = Path("/tmp/of-a-run")


def jobs(*suites: str, words: Sequence[str] = (), with_check: bool = False) -> dict[str, Job]:
    made = jobs_of(suites or list(SUITES), words, FOLDER, with_check=with_check)
    return {job.name: job for job in made}


def ended(job: Job, code: int | None, said: str = "", folder: Path | None = None) -> Job:
    """As if it had run."""
    if code is None:
        job.is_dropped = True
        return job
    job.process = object()  # type: ignore[assignment]  # it was started
    job.code = code
    if folder is not None:
        job.log = folder / job.name
        job.log.write_text(said)
    return job


class TestTheSuites:
    def test_wait_for_their_environments_and_these_for_the_first_alone(self) -> None:
        made = jobs()

        assert made["base"].needs == (".venv", "tools", "lint")  # nobody runs lint here
        assert made[".venv"].lane is made["tools"].lane is Lane.FIRST
        assert made[".venv"].needs == made["tools"].needs == ()
        for name in ("jax", "tensorflow", "torch", "oldest-keras"):
            assert made[f".venv-{name}"].lane is Lane.FETCHES
            assert made[f".venv-{name}"].needs == (".venv",)  # uv is there
            assert made[name].needs == (f".venv-{name}", "tools", "lint")
        assert made["multi-gpu"].needs == (".venv-tensorflow", "tools", "lint")

    def test_of_a_framework_install_nothing_on_this_machine(self) -> None:
        assert "tools" not in jobs("jax")

    def test_run_what_is_marked_alone_after_all_others(self) -> None:
        made = jobs()

        assert made["tensorflow"].lane is Lane.BESIDE
        assert [name for name, job in made.items() if job.lane is Lane.LAST] == [
            "base alone",
            "multi-gpu alone",
            "multi-gpu e2e alone",
            "tensorflow alone",
        ]

    def test_come_after_lint_that_is_content(self) -> None:
        made = jobs("base", with_check=True)

        assert made["lint"].lane is made["base alone"].lane is Lane.FIRST
        assert made["lint"].needs == made["collect"].needs == (".venv",)
        assert made["collect"].lane is Lane.FIRST
        assert "lint" in made["base"].needs
        assert "lint" not in made["base alone"].needs

    @pytest.mark.parametrize(
        ("words", "everywhere"),
        [(["-k", "nan or guard", "-x"], True), (["tests/keras/conftest.py::test_it", "-x"], False)],
    )
    def test_hand_words_on_to_pytest_and_look_nowhere_else_than_where_these_say(
        self, words: list[str], everywhere: bool
    ) -> None:
        command = jobs("jax", words=words)["jax"].command

        assert list(command[-len(words) :]) == words
        assert ("tests/loops" in command) is everywhere

    def test_must_have_their_framework_in_ci(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CI", raising=False)
        assert jobs()["tensorflow"].variables == {
            "KERAS_BACKEND": "tensorflow",
            "OMP_NUM_THREADS": "1",
        }

        monkeypatch.setenv("CI", "true")
        variables = {
            "KERAS_BACKEND": "torch",
            "OMP_NUM_THREADS": "1",
            "GPUMON_REQUIRE_KERAS": "1",
        }
        assert jobs()["torch"].variables == variables

    def test_on_jax_compile_once_for_all_of_them(self) -> None:
        made = jobs()
        compiled = {
            name: job.variables["JAX_COMPILATION_CACHE_DIR"]
            for name, job in made.items()
            if "JAX_COMPILATION_CACHE_DIR" in job.variables
        }

        assert made["oldest-keras"].variables["KERAS_BACKEND"] == "jax"
        assert compiled == dict.fromkeys(["jax", "oldest-keras"], str(FOLDER / "compiled"))


class TestTheCode:
    @pytest.mark.parametrize(
        ("base", "alone", "code"),
        [
            (0, 0, 0),
            (1, 0, 1),
            (0, 2, 1),
            (0, NOTHING_ASKED_FOR, 0),
            (NOTHING_ASKED_FOR, 0, 0),
            (NOTHING_ASKED_FOR, NOTHING_ASKED_FOR, 1),
            (0, -9, 1),
        ],
    )
    def test_is_that_of_all_suites(self, base: int, alone: int, code: int) -> None:
        made = jobs("base")

        all_of_them = [ended(made["base"], base), ended(made["base alone"], alone)]

        assert code_of(all_of_them, in_ci=False) == code

    @pytest.mark.parametrize(("in_ci", "code"), [(False, 0), (True, 1)])
    def test_is_bad_without_an_environment_only_in_ci(self, in_ci: bool, code: int) -> None:
        made = jobs("base", "jax")
        codes = {"tools": 0, ".venv": 0, ".venv-jax": 2, "base": 0, "base alone": 0}
        for name, ends in codes.items():
            ended(made[name], ends)
        ended(made["jax"], None)

        assert code_of(list(made.values()), in_ci=in_ci) == code

    def test_is_bad_where_tests_were_collected_and_none_was_run(self) -> None:
        made = jobs("base", with_check=True)
        of_tests = {"collect": 0, "base": NOTHING_ASKED_FOR, "base alone": NOTHING_ASKED_FOR}

        assert code_of([ended(made[name], ends) for name, ends in of_tests.items()], in_ci=True)

    @pytest.mark.parametrize("in_ci", [False, True])
    def test_is_bad_where_lint_is(self, in_ci: bool) -> None:
        made = jobs("base", with_check=True)
        ended(made["lint"], 2)
        ended(made["base alone"], 0)
        ended(made["base"], None)

        assert code_of(list(made.values()), in_ci=in_ci) == 1


class TestTheTable:
    def test_says_of_each_how_many_tests_it_had_and_how_it_ended(self, tmp_path: Path) -> None:
        made = jobs("base", "jax")
        ended(made["base"], 1, "= 1 failed, 96 passed, 1 skipped in 455.36s (0:07:35) =", tmp_path)
        ended(made["base alone"], 0, "= 3 passed, 9 deselected in 60.09s (0:01:00) =", tmp_path)
        ended(made["tools"], 0)
        ended(made[".venv"], 0)
        ended(made[".venv-jax"], 2, "no network", tmp_path)
        ended(made["jax"], None)

        lines = [" ".join(line.split()) for line in table_of(list(made.values()))]

        assert lines == [
            "suite tests minutes from",
            "tools 0.0 0.0",
            ".venv 0.0 0.0",
            ".venv-jax 0.0 0.0 FAILED (2)",
            "base 98 0.0 0.0 FAILED (1)",
            "jax SKIPPED: .venv-jax failed",
            "base alone 3 0.0 0.0",
        ]

    def test_stands_behind_what_failed_so_that_nobody_scrolls(self, tmp_path: Path) -> None:
        made = jobs("base", "jax")
        said = "    assert 1 == 2\nE       assert 1 == 2\nFAILED tests/a.py::test - assert 1 == 2\n"
        ended(made["base"], 1, said, tmp_path)
        ended(made["base alone"], 0, "E       is no failure of this one\n", tmp_path)

        assert list(failures_of(list(made.values()))) == [
            "\n=== base: what failed\n",
            "E       assert 1 == 2\n",
            "FAILED tests/a.py::test - assert 1 == 2\n",
        ]

    @pytest.mark.parametrize(
        ("said", "tests"),
        [
            ("2 failed, 3 passed, 4 skipped, 5 deselected, 6 errors in 1.23s", 15),
            ("1 passed in 0.01s\nprocesses that outlived the tests", 1),
            ("no tests ran in 0.03s", 0),
            ("ImportError: conftest", None),
        ],
    )
    def test_counts_those_that_were_run(self, said: str, tests: int | None) -> None:
        assert count_of_tests(said) == tests


UNSTEADY = """
from pathlib import Path
import pytest
def has_run(name):
    mark = Path(__file__).with_name(name)
    try:
        return mark.exists()
    finally:
        mark.touch()
@pytest.mark.parametrize("word", ["a - b"])
def test_passes_the_second_time(word):
    assert has_run("unsteady")
def test_passes():
    assert not has_run("steady")
"""
WRONG = """
import pytest
@pytest.mark.parametrize("number", range({failures}))
def test_fails(number):
    assert False
"""


class TestWhatFails:
    """Real runs of pytest, with two workers as the suites have them."""

    def run(self, folder: Path, text: str) -> Job:
        (folder / "test_it.py").write_text(text)
        cache = f"cache_dir={folder}/failed"
        words = [sys.executable, "-m", "pytest", "-q", "-o", cache, f"--rootdir={folder}"]
        job = Job(name="base", command=[*words, "-n", "2", str(folder)], lane=Lane.BESIDE)
        run_side_by_side([job], folder)
        return job

    def test_and_passes_alone_is_named_and_fails_nothing(self, tmp_path: Path) -> None:
        job = self.run(tmp_path, UNSTEADY)
        assert job.code == 1

        (passed,) = try_again([job])
        assert passed.endswith("test_it.py::test_passes_the_second_time[a - b]")
        assert job.code == 0

    @pytest.mark.parametrize("failures", [1, 4])
    def test_again_or_with_many_others_fails(self, tmp_path: Path, failures: int) -> None:
        job = self.run(tmp_path, WRONG.format(failures=failures))

        assert (try_again([job]), job.code) == ([], 1)
        assert len(failed_tests(job.said)) == failures


def test_words_for_pytest_stand_behind_two_dashes() -> None:
    assert split_words(["--check", "base", "--", "-k", "x"]) == (["--check", "base"], ["-k", "x"])
    assert split_words(["base"]) == (["base"], [])


def test_an_unknown_suite_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_suites.main(["sofa"])

    assert "sofa" in capsys.readouterr().err
