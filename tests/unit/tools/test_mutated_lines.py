"""Specification of lines made wrong: only what is logic, one thing at a time, the same again."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.tools.mutated_lines.mutations import Mutation, drawn, found_again, mutations_of
from tests.tools.mutated_lines.scratch import SUMMARY


def wrong(line: str, *, subtle: bool = False) -> list[str]:
    """All that can be made of one line of a function."""
    source = f"def function(x, y, z):\n    {line}\n"
    return [
        one.made_in(source).splitlines()[1].strip()
        for one in mutations_of("a.py", source, subtle=subtle)
    ]


class TestALine:
    @pytest.mark.parametrize(
        ("line", "made"),
        [
            ("return x < y", ["return None", "return x <= y"]),
            ("return x and y", ["return None", "return (x or y)"]),
            ("z = x - 1", ["z = (x + 1)", "z = x - 2"]),
            ("z = x is None", ["z = x is not None"]),
            ("z = x if y else 0", ["z = (0 if y else x)", "z = x if y else 1"]),
            ("x.y = z", ["pass"]),
            ("x += y", ["pass"]),
            ("raise ValueError(1 + 1)", ["pass"]),
            ("x(y)(y)", ["pass"]),
        ],
    )
    def test_is_negated_off_by_one_or_dropped(self, line: str, made: list[str]) -> None:
        assert wrong(line) == made

    @pytest.mark.parametrize(
        ("line", "made"),
        [
            ("z = x[: y + 1] < 4", ["z = x[:y + 1] <= 4", "z = x[: y + 2] < 4",
              "z = x[: y + 0] < 4", "z = x[: y + 1] < 5", "z = x[: y + 1] < 3"]),
            ("z = max(0, x)", ["z = (x)", "z = max(1, x)"]),
            ("x.close()", ["pass"]),
            ("x.draw()", []),
            ("return x == y", []),
        ],
    )  # fmt: skip
    def test_is_made_wrong_subtly(self, line: str, made: list[str]) -> None:
        assert wrong(line, subtle=True) == made

    @pytest.mark.parametrize(
        "line",
        [
            "import os", '"""Says 1 < 2."""', "z: tuple[int, 1]", "z = 'text'", "return None",
            "assert x is not None", "z = f'{x + 1}'", "return",
        ],
    )  # fmt: skip
    def test_that_is_no_logic_is_left_alone(self, line: str) -> None:
        assert wrong(line) == []

    def test_that_tidies_up_is_dropped(self) -> None:
        source = dedent("""\
            for x in y:
                try:
                    z(x)
                except OSError:
                    continue
                finally:
                    w(x)
        """)

        found = mutations_of("a.py", source, subtle=True)

        assert [(one.was, one.becomes) for one in found] == [("continue", "pass"), ("w(x)", "pass")]

    def test_of_an_elif_is_marked_before_its_if(self) -> None:
        source = "if x:\n    pass\nelif y < 1:\n    pass\n"

        (found,) = {one.marked_line for one in mutations_of("a.py", source, subtle=True)}

        assert found == 1

    def test_that_is_another_by_now_is_refused(self) -> None:
        (mutation,) = mutations_of("a.py", "x = y < z\n", subtle=True)

        with pytest.raises(ValueError, match="no longer there"):
            mutation.made_in("x = z\n")


def rooms(**lines: int) -> list[Mutation]:
    return [
        mutation
        for room, count in lines.items()
        for mutation in mutations_of(f"{room}/a.py", "x = 1\n" * count, subtle=True)
    ]


class TestADraw:
    def test_takes_of_each_room_as_many_as_its_lines_ask_for(self) -> None:
        found = drawn(rooms(large=300, small=100), 40, seed=16)

        assert sum(one.path == "small/a.py" for one in found) == 10
        assert len({(one.path, one.line) for one in found}) == 40

    def test_is_the_same_again_by_its_seed(self) -> None:
        found = rooms(one=50, other=70)

        assert drawn(found, 9, seed=1) == drawn(found, 9, seed=1) != drawn(found, 9, seed=2)

    def test_takes_no_more_than_there_is(self) -> None:
        assert len(drawn(rooms(one=3), 10, seed=1)) == 3


class TestALineFoundAgain:
    SOURCE = "class A:\n    def take(self, x):\n        return x < 1\n"

    def test_is_where_its_file_was_moved_to(self) -> None:
        (mutation, *_) = mutations_of("old/a.py", self.SOURCE, subtle=True)
        present = mutations_of("new/a.py", "# more\n" + self.SOURCE, subtle=True)

        again = found_again(mutation, present)

        assert again is not None
        assert (again.path, again.line) == ("new/a.py", 4)

    def test_is_none_where_no_such_line_is_left(self) -> None:
        (mutation, *_) = mutations_of("old/a.py", self.SOURCE, subtle=True)
        elsewhere = mutations_of("new/b.py", "def other(x):\n    return x < 1\n", subtle=True)

        assert found_again(mutation, elsewhere) is None
        assert found_again(mutation, []) is None


class TestATestThatFails:
    @pytest.mark.parametrize(
        "name",
        ["test_a.py::TestA::test_b", "test_a.py::test_b[1-x]", 'test_a.py::test_b[{"c": [1]}]'],
        ids=["plain", "parametrized", "with blanks"],
    )
    @pytest.mark.parametrize("why", ["", " - assert 1 == [2]"], ids=["alone", "with why"])
    def test_is_known_by_its_whole_name(self, name: str, why: str) -> None:
        found = SUMMARY.search(f"1 failed\nFAILED {name}{why}\n")

        assert found is not None
        assert found[1] == name
