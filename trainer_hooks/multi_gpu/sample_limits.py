"""How many samples each GPU's memory holds, as the user says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Limits = Mapping[str, int | None] | Sequence[int | None]
"""By the device's name, or one for each device in order; ``None`` where it is not known."""


class BatchTooLargeError(ValueError):
    """The GPUs' memory limits together do not hold a batch."""


def limits_of(given: Limits | None, devices: Sequence[str]) -> tuple[int | None, ...]:
    """One limit for each device, ``None`` where there is none.

    Raises:
        ValueError: There is no such device, not one for each, or it is no number of samples.

    >>> limits_of({"GPU:1": 568}, ["GPU:0", "GPU:1"])
    (None, 568)
    """
    if given is None:
        return (None,) * len(devices)
    if isinstance(given, Mapping):
        by_name = {str(name).upper(): limit for name, limit in given.items()}
        strange = [name for name in by_name if name not in devices]
        if strange:
            raise ValueError(
                f"max_samples names {strange[0]}, and the model is split over {', '.join(devices)}"
            )
        limits = tuple(by_name.get(device) for device in devices)
    elif hasattr(given, "__iter__"):
        limits = tuple(given)
    else:
        raise ValueError(f"max_samples must have a limit for each device, and is {given!r}")
    if len(limits) != len(devices):
        raise ValueError(
            f"max_samples has {len(limits)} limits for {len(devices)} devices: give one for each, "
            "None where it is not known, or name the devices that have one"
        )
    for limit in limits:
        _check(limit)
    return limits


def _check(limit: int | None) -> None:
    if limit is None:
        return
    if not hasattr(limit, "__index__") or isinstance(limit, bool) or limit < 1:
        raise ValueError(f"max_samples must be whole numbers, 1 or more, not {limit!r}")


def check_room(limits: Sequence[int | None], devices: Sequence[str], batch: int) -> None:
    """Refuse limits that together do not hold a batch.

    Raises:
        BatchTooLargeError: They do not.
    """
    known = [limit for limit in limits if limit is not None]
    if len(known) == len(limits) and sum(known) < batch:
        each = ", ".join(f"{name} {most}" for name, most in zip(devices, known, strict=True))
        raise BatchTooLargeError(
            f"a batch of {batch} samples does not fit: max_samples allows {sum(known)} ({each}); "
            "make the batch smaller"
        )
