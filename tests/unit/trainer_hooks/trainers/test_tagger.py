"""The errors of a tagger in another trainer, or without its trainer."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from tests.programs import ran_python
from trainer_hooks.trainers.tagger import Tagger


class WithHooks(Tagger):
    def on_fit_end(self) -> None:
        """Python would suggest this name."""


class TestTheErrorOfAMistakenTagger:
    def test_has_no_suggestion_of_python(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(AttributeError) as raised:
            WithHooks().on_init_end  # noqa: B018

        sys.__excepthook__(raised.type, raised.value, None)
        printed = capsys.readouterr().err
        assert "`from trainer_hooks.huggingface " in printed
        assert printed.endswith(f"{raised.value}\n")


@pytest.mark.parametrize(
    ("module", "missing", "what_to_do"),
    [
        ("trainer_hooks.huggingface", ("transformers",), "pip install 'transformers[torch]'"),
        ("trainer_hooks.lightning", ("lightning", "pytorch_lightning"), "pip install lightning"),
        ("trainer_hooks", ("keras",), "`pip install keras`"),
    ],
)
def test_a_tagger_names_what_to_install(
    module: str, missing: tuple[str, ...], what_to_do: str
) -> None:
    if any(map(find_spec, missing)):
        pytest.skip(f"{' or '.join(missing)} is installed here")

    done = ran_python("-c", f"from {module} import PhaseTagger\nPhaseTagger()")

    assert done.returncode == 1
    assert what_to_do in done.stderr.splitlines()[-1]
