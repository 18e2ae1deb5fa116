"""Every option of a command also as a variable: ``--period`` is ``GPUMON_PERIOD``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from gpumon.errors import UsageError

_PREFIX: Final = "GPUMON_"
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_ALIKE: Final = 0.7

OTHER_VARIABLES: Final = frozenset(
    {"GPUMON_RUNTIME_DIR", "GPUMON_GPUS", "GPUMON_RUN", "GPUMON_STAND_IN_GPUS"}
)
"""Those that are no option: of trainings, and of all who must meet in one folder."""


class CommandParser(argparse.ArgumentParser):
    """Remembers its options, so that each can have a variable, and ends complaints by an example.

    Attributes:
        options: All of them, without ``--help``.
        commands: The parsers of its commands.
        example: How it is used; ``None``: nothing is shown.
    """

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - whatever argparse takes
        self.options: list[argparse.Action] = []
        self.commands: dict[str, CommandParser] = {}
        self.example: str | None = None
        self._reads_variable = False
        super().__init__(**settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:  # noqa: ANN401
        """Declare an argument, as in ``argparse``."""
        action = super().add_argument(*names, **settings)
        if action.option_strings and action.dest != "help":
            self.options.append(action)
        return action

    def error(self, message: str) -> NoReturn:
        """End with 2: with usage and example, but for a variable, which has none."""
        if self._reads_variable:
            raise UsageError(message.removeprefix("argument "))
        self.print_usage(sys.stderr)
        hint = "" if self.example is None else f"example:\n  {self.example}\n"
        self.exit(2, f"{self.prog}: error: {message}\n{hint}")

    def tell_variables(self) -> None:
        """Name the variable of each option in its help."""
        for option in self.options:
            # The default is told now: while the command line is looked through there is none.
            said = str(option.help).replace("%(default)s", str(option.default))
            option.help = f"{said} [{variable_of(option)}]"

    def words_of(self, environ: Mapping[str, str], words: list[str]) -> list[str]:
        """What the variables say, as words for the command line, which wins; an empty one nothing.

        Raises:
            UsageError: A value is wrong; names the variable.
        """
        given = self._given(words)
        said: list[str] = []
        for option in self.options:
            variable = variable_of(option)
            text = environ.get(variable, "").strip()
            if text and option.dest not in given:
                said += self._checked(option, text)
        return said

    def _given(self, words: list[str]) -> frozenset[str]:
        """Which options the command line gives: all others are left without a default."""
        defaults = [option.default for option in self.options]
        for option in self.options:
            option.default = argparse.SUPPRESS
        try:
            return frozenset(vars(self.parse_known_args(words)[0]))
        finally:
            for option, default in zip(self.options, defaults, strict=True):
                option.default = default

    def _checked(self, option: argparse.Action, text: str) -> list[str]:
        self._reads_variable = True
        try:
            words = [*self._as_words(option, text)]
            self.parse_args(words)
        except UsageError as error:
            said = str(error).removeprefix(option.option_strings[-1]).lstrip(": ")
            raise UsageError(f"{variable_of(option)}: {said}") from error
        finally:
            self._reads_variable = False
        return words

    def _as_words(self, option: argparse.Action, text: str) -> Iterator[str]:
        name = option.option_strings[-1]
        if option.nargs == 0:
            if text.lower() in _YES:
                yield name
            elif text.lower() not in _NO:
                wanted = f"{', '.join(_YES)}, or {', '.join(_NO)}"
                raise UsageError(f"must be one of {wanted}, got {text!r}")
        else:
            values = text.replace(",", " ").split() if option.nargs == "+" else [text]
            if not values:
                raise UsageError(f"names nothing, got {text!r}")
            # Each as one word with the option: what begins with a dash is no other option.
            yield from (f"{name}={value}" for value in values)


def variable_of(option: argparse.Action) -> str:
    """The variable of an option.

    >>> variable_of(argparse.ArgumentParser().add_argument("--nvml-off"))
    'GPUMON_NVML_OFF'
    """
    return _PREFIX + option.option_strings[-1].lstrip("-").replace("-", "_").upper()


def misspelt_variables(parser: CommandParser, environ: Mapping[str, str]) -> Iterator[str]:
    """A sentence on each variable that nothing reads and that is much like one of an option."""
    options = [variable_of(option) for option in parser.options]
    known = {*options, *OTHER_VARIABLES}
    for name in sorted(environ):
        if name.startswith(_PREFIX) and name not in known and environ[name]:
            import difflib

            words = [option.removeprefix(_PREFIX) for option in options]
            alike = difflib.get_close_matches(name.removeprefix(_PREFIX), words, 1, _ALIKE)
            if alike:
                yield (
                    f"{name} is no variable of gpumon and is not read: "
                    f"is {_PREFIX}{alike[0]} meant?"
                )
