"""The one palette: page, ``gpumon top``, pictures and the report as a page, on light and dark."""

from __future__ import annotations

from typing import Final, NamedTuple


class Palette(NamedTuple):
    """The colours of what is shown, as ``#rrggbb``.

    Each part of ``PARTS``, each ``InputWaitReason`` and each ``Tone`` has the field of its name.
    """

    ground: str
    paper: str
    text: str
    quiet: str
    rule: str
    busy: str
    in_use: str
    not_in_use: str
    unobserved: str
    lost: str
    lost_ground: str
    host_to_device: str
    callbacks: str
    validation: str
    checkpoint: str
    compile: str
    start_up: str
    between_epochs: str
    other: str
    cpu_bound: str
    gil_bound: str
    disk_bound: str
    network_bound: str
    memory_pressure: str
    latency_bound: str
    unknown: str
    input_wait: str
    suspected: str
    within_step: str
    imbalance: str
    pending: str
    good: str
    warn: str
    bad: str


# Reasons have the colours of Okabe and Ito, which colour-blind people can distinguish. Blue and
# dark vermilion differ in hue for all of them, and in lightness without hue.
LIGHT: Final = Palette(
    ground="#f6f7f9",
    paper="#ffffff",
    text="#17202b",
    quiet="#566273",
    rule="#c3cbd5",
    busy="#5b9bc8",
    in_use="#ffffff",
    not_in_use="#cfd6e0",
    unobserved="#98a2ae",
    lost="#b93600",
    lost_ground="#ffd8bd",
    host_to_device="#d98cb3",
    callbacks="#a8922f",
    validation="#3d9c88",
    checkpoint="#7d62b8",
    compile="#e3c34f",
    start_up="#efe3b4",
    between_epochs="#8d97b5",
    other="#d3d8de",
    cpu_bound="#d55e00",
    gil_bound="#cc79a7",
    disk_bound="#0072b2",
    network_bound="#009e73",
    memory_pressure="#e6c700",
    latency_bound="#56b4e9",
    unknown="#98a2ae",
    input_wait="#b93600",
    suspected="#f0903c",
    within_step="#a9cbe0",
    imbalance="#8a5a2b",
    pending="#c3cbd5",
    good="#1b7f5c",
    warn="#9a5a00",
    bad="#b3261e",
)
DARK: Final = Palette(
    ground="#10151c",
    paper="#18202a",
    text="#e8edf3",
    quiet="#9aa7b6",
    rule="#445264",
    busy="#3f80b2",
    in_use="#10161d",
    not_in_use="#34414f",
    unobserved="#66748a",
    lost="#ff9a63",
    lost_ground="#5b2b12",
    host_to_device="#c0729a",
    callbacks="#b8a13a",
    validation="#3d8f7e",
    checkpoint="#8f76cc",
    compile="#cfae3a",
    start_up="#75693a",
    between_epochs="#77829f",
    other="#3a4553",
    cpu_bound="#d55e00",
    gil_bound="#cc79a7",
    disk_bound="#2f8fcb",
    network_bound="#1fae84",
    memory_pressure="#f0e442",
    latency_bound="#7cc6f0",
    unknown="#66748a",
    input_wait="#ff7a45",
    suspected="#ffc98a",
    within_step="#27506b",
    imbalance="#b98452",
    pending="#445264",
    good="#59c69c",
    warn="#f0a04b",
    bad="#ff7a6b",
)
