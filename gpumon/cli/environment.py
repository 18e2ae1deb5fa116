"""Options as environment variables: ``--period`` is ``GPUMON_PERIOD``."""

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
    {"GPUMON_RUNTIME_DIR", "GPUMON_GPUS", "GPUMON_RUN", "GPUMON_STAND_IN_GPUS", "GPUMON_NO_STACKS"}
)
"""Variables that are no option: of training runs, and the shared folder."""


class CommandParser(argparse.ArgumentParser):
    """A parser whose options can be environment variables, with an example in its errors.

    Attributes:
        options: Without ``--help``.
        commands: The parsers of its commands.
        example: ``None``: no example is shown.
    """

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - arguments of argparse
        self.options: list[argparse.Action] = []
        self.commands: dict[str, CommandParser] = {}
        self.example: str | None = None
        self._reads_variable = False
        super().__init__(**settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:  # noqa: ANN401
        """As in ``argparse``."""
        action = super().add_argument(*names, **settings)
        if action.option_strings and action.dest != "help":
            self.options.append(action)
        return action

    @property
    def option_names(self) -> tuple[str, ...]:
        """Those that begin with ``--``, also of its groups."""
        return tuple(name for name in self._option_string_actions if name.startswith("--"))

    def error(self, message: str) -> NoReturn:
        """Exit with 2, usage and example; raise ``UsageError`` for a variable."""
        if self._reads_variable:
            raise UsageError(message.removeprefix("argument "))
        self.print_usage(sys.stderr)
        hint = "" if self.example is None else f"example:\n  {self.example}\n"
        self.exit(2, f"{self.prog}: error: {message}\n{hint}")

    def add_variables_to_help(self) -> None:
        """Name the variable of each option in its help."""
        for option in self.options:
            # Insert the default now: `_options_in` removes it.
            text = str(option.help).replace("%(default)s", str(option.default))
            option.help = f"{text} [{variable_of(option)}]"

    def arguments_of(self, environ: Mapping[str, str], given: list[str]) -> list[str]:
        """The variables as arguments, except for options on the command line, which wins.

        Raises:
            UsageError: A variable has an invalid value.
        """
        options = self._options_in(given)
        arguments: list[str] = []
        for option in self.options:
            variable = variable_of(option)
            text = environ.get(variable, "").strip()
            if text and option.dest not in options:
                arguments += self._checked(option, text)
        return arguments

    def _options_in(self, arguments: list[str]) -> frozenset[str]:
        """The options on the command line: without defaults, only these are set."""
        defaults = [option.default for option in self.options]
        for option in self.options:
            option.default = argparse.SUPPRESS
        try:
            return frozenset(vars(self.parse_known_args(arguments)[0]))
        finally:
            for option, default in zip(self.options, defaults, strict=True):
                option.default = default

    def _checked(self, option: argparse.Action, text: str) -> list[str]:
        self._reads_variable = True
        try:
            arguments = [*self._as_arguments(option, text)]
            self.parse_args(arguments)
        except UsageError as error:
            reason = str(error).removeprefix(option.option_strings[-1]).lstrip(": ")
            raise UsageError(f"{variable_of(option)}: {reason}") from error
        finally:
            self._reads_variable = False
        return arguments

    def _as_arguments(self, option: argparse.Action, text: str) -> Iterator[str]:
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
                raise UsageError(f"has no value, got {text!r}")
            # Joined, so that a value that starts with a dash is no option.
            yield from (f"{name}={value}" for value in values)


def variable_of(option: argparse.Action) -> str:
    """The variable of an option.

    >>> variable_of(argparse.ArgumentParser().add_argument("--nvml-off"))
    'GPUMON_NVML_OFF'
    """
    return _PREFIX + option.option_strings[-1].lstrip("-").replace("-", "_").upper()


def misspelt_variables(parser: CommandParser, environ: Mapping[str, str]) -> Iterator[str]:
    """A warning for each unknown variable whose name is similar to a known one."""
    options = [variable_of(option) for option in parser.options]
    known = {*options, *OTHER_VARIABLES}
    for name in sorted(environ):
        if name.startswith(_PREFIX) and name not in known and environ[name]:
            import difflib

            names = [option.removeprefix(_PREFIX) for option in options]
            alike = difflib.get_close_matches(name.removeprefix(_PREFIX), names, 1, _ALIKE)
            if alike:
                yield f"unknown variable {name} is ignored: did you mean {_PREFIX}{alike[0]}?"
