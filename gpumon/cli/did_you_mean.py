"""Which command or option was meant by one that does not exist, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from gpumon.core.wording import listed

_ALIKE: Final = 0.6

_COMMANDS_ELSEWHERE: Final = {
    "status": "report",
    "stats": "report",
    "show": "report",
    "summary": "report",
    "compare": "report --compare BEFORE AFTER",
    "start": "serve",
    "daemon": "serve",
    "server": "serve",
    "monitor": "top",
    "watch": "top",
    "htop": "top",
    "ps": "top",
    "smi": "top",
    "check": "doctor",
    "info": "doctor",
    "list": "doctor",
    "plot": "analyze --plot PICTURE",
    "install": "dstat install",
    "version": "--version",
    "help": "--help",
}
"""Commands of other tools, and what gpumon has instead."""

_OPTIONS_ELSEWHERE: Final = {
    "serve --port": "use --listen 127.0.0.1:{19835}",
    "serve --host": "use --listen {127.0.0.1}:19835",
    "serve --gpu": "it watches all GPUs; `gpumon why --gpu {N}` is about one",
    "serve --interval": "use --period {1}",
    "serve --token": "use --web-token-file FILE, so that no process list shows the token",
    "record --gpu": "it records all GPUs",
    "record --interval": "use --period {1}",
    "record --duration": "use --for {10m}",
    "record --output": "use `gpumon record {FILE}`",
    "replay --gpu": "it shows all GPUs",
    "report --gpu": "it shows all GPUs; `gpumon why --gpu {N}` is about one",
    "report --duration": "use --since {1h}",
    "report --output": "use --html PAGE, or `--json > {FILE}`",
    "analyze --gpu": "it shows all GPUs of the log",
    "analyze --interval": "use --period {SECONDS}",
    "analyze --output": "use --html PAGE, --plot PICTURE, or `--json > {FILE}`",
    "doctor --gpu": "it shows all GPUs",
    "top --port": "use --connect 127.0.0.1:{19835}",
    "top --host": "use --connect {127.0.0.1}:19835",
    "top --gpu": "it shows all GPUs; `gpumon why --gpu {N}` is about one",
    "top --interval": "use --period {1}",
    "why --pid": "use `gpumon why {PID}`",
    "why --duration": "use --for {60}",
    "run --gpu": "use `CUDA_VISIBLE_DEVICES={N} gpumon run -- COMMAND`",
}
"""Options that a command does not have, and what it has instead; {a value, if none was given}."""

_SAME_OPTION: Final = {
    "-p": "--port",
    "--bind": "--host",
    "--address": "--host",
    "-i": "--gpu",
    "--id": "--gpu",
    "--gpus": "--gpu",
    "--device": "--gpu",
    "--devices": "--gpu",
    "-l": "--interval",
    "-d": "--interval",
    "--refresh": "--interval",
    "--delay": "--interval",
    "--time": "--duration",
    "--last": "--duration",
    "-o": "--output",
    "--out": "--output",
}


def about_command(name: str, commands: Collection[str]) -> str:
    """Which command was meant, if a name is similar.

    >>> about_command("serv", ["serve", "report"])
    "there is no command 'serv': did you mean `gpumon serve`?"
    """
    alike = get_close_matches(name.lower(), [*commands, *_COMMANDS_ELSEWHERE], 1, _ALIKE)
    if not alike:
        return f"there is no command {name!r}: `gpumon --help` lists them"
    meant = _COMMANDS_ELSEWHERE.get(alike[0], alike[0])
    return f"there is no command {name!r}: did you mean `gpumon {meant}`?"


def about_options(
    arguments: Sequence[str],
    unknown: Sequence[str],
    command: str,
    options: Mapping[str, Collection[str]],
) -> str | None:
    """What to use instead of the first unknown option; ``None``: nothing is known.

    Args:
        arguments: All that were given.
        unknown: Those that the command does not have.
        command: The command.
        options: The options of each command.

    >>> words = ["serve", "--port", "9000"]
    >>> about_options(words, words[1:], "serve", {"serve": ["--listen"]})
    'serve has no --port: use --listen 127.0.0.1:9000'
    """
    option = next((word for word in unknown if word.startswith("-")), None)
    if option is None:
        return None
    name, sign, value = option.partition("=")
    if name in options[command]:
        return f"{name} comes after the command, as in `gpumon {command} {name}`"
    if not sign:
        at = arguments.index(option) + 1
        value = "".join(word for word in arguments[at : at + 1] if not word.startswith("-"))
    instead = _instead(command, name, value, options)
    return f"{command} has no {name}: {instead}" if instead else None


def _instead(
    command: str, name: str, value: str, options: Mapping[str, Collection[str]]
) -> str | None:
    same = _SAME_OPTION.get(name, name)
    elsewhere = _OPTIONS_ELSEWHERE.get(f"{command} {same}")
    if elsewhere is not None:
        return re.sub(r"\{(.*?)\}", lambda default: value or default[1], elsewhere)
    own = options[command]
    alike = [same] if same in own else get_close_matches(name, own, 1, _ALIKE)
    if alike:
        return f"did you mean {alike[0]}?"
    having = [f"`gpumon {other} {same}`" for other, names in options.items() if same in names]
    if not having:
        return None
    return f"{listed(having)} {'has' if len(having) == 1 else 'have'} it"
