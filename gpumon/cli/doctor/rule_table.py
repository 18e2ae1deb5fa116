"""``gpumon doctor --rules``: every rule with its evidence, its thresholds and their origins."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpumon.core.diagnosis.rules import ALL_RULES, BESIDE_RULES
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.settings.rule import Rule, RuleKind
from gpumon.core.settings.threshold import thresholds_of
from gpumon.core.wording import capital
from gpumon.outlets.text.style import WIDTH, TextStyle

_HEADS: Final = {
    RuleKind.VERDICT: "Verdicts: of each GPU the first that holds, in this order",
    RuleKind.FINDING: "Findings: shown beside the verdict, which they never change",
    RuleKind.REASON: "Reasons: why a run waits for input; of all that hold, the first counts",
    RuleKind.ADVICE: "Advice: what to change, where that is worth it",
}
_THRESHOLDS: Final = {threshold.name: threshold for threshold in thresholds_of(DEFAULT_SETTINGS)}
_NAME: Final = 28
_VALUE: Final = 5


def render_rules(style: TextStyle) -> Iterator[str]:
    """Yield the complete table, line by line, 80 columns wide.

    A threshold of several rules is explained at the first of them.
    """
    explained: dict[str, str] = {}
    yield "gpumon doctor: the rules, their thresholds, and where each number comes from"
    for kind, head in _HEADS.items():
        yield ""
        yield style.painted(head, "bold")
        for rule in ALL_RULES:
            if rule.kind is kind:
                yield ""
                yield from (style.plain(line) for line in _block(rule, explained))
    yield ""
    yield style.painted("Wording: thresholds beside the rules", "bold")
    for name, decides in BESIDE_RULES.items():
        yield ""
        yield from (style.plain(line) for line in _indented(decides, "  ", "  "))
        yield from (style.plain(line) for line in _row(name, explained, "wording"))


def rules_document() -> dict[str, Any]:
    """The same for scripts (schema ``gpumon.rules/1``)."""
    return {
        "schema": "gpumon.rules/1",
        "rules": [
            {
                "id": rule.id,
                "kind": rule.kind.value,
                "says": rule.says,
                "evidence": rule.evidence,
                "thresholds": _data(rule.thresholds),
                "measured_with": _data(rule.measured_with),
            }
            for rule in ALL_RULES
        ],
        "beside_rules": [
            {"decides": decides, **_data([name])[0]} for name, decides in BESIDE_RULES.items()
        ],
    }


def _data(names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "value": one.value,
            "unit": one.unit.value,
            "what": one.what,
            "origin": one.origin,
        }
        for one in map(_THRESHOLDS.__getitem__, names)
    ]


def _block(rule: Rule, explained: dict[str, str]) -> Iterator[str]:
    yield from _indented(f"{rule.id}: {rule.says}", "  ", "    ")
    yield from _indented(f"Evidence: {rule.evidence}", "    ", "    ")
    for name in rule.thresholds:
        yield from _row(name, explained, rule.id)
    if rule.measured_with:
        yield "    its evidence is measured with:"
    for name in rule.measured_with:
        yield from _row(name, explained, rule.id)


def _row(name: str, explained: dict[str, str], user: str) -> list[str]:
    one, before = _THRESHOLDS[name], explained.setdefault(name, user)
    origin = f"{capital(one.origin)}."
    meaning = f"{one.what} {origin}" if before == user else f"see {before}"
    cells = f"    {name.ljust(_NAME)}{one.text.rjust(_VALUE)}  "
    return _indented(meaning, cells, " " * len(cells))


def _indented(text: str, first: str, more: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=more, break_on_hyphens=False
    )
