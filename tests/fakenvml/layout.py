"""The control file of the fake libnvidia-ml.so.1, field by field, as ``fake.h`` declares it."""

from __future__ import annotations

import ctypes
import re
import struct
import time
from pathlib import Path
from typing import Any, Final

_HERE: Final = Path(__file__).parent
_HEADER: Final = (_HERE / "fake.h").read_text(encoding="utf-8")
_PLAIN: Final[dict[str, Any]] = {
    "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "double": ctypes.c_double,
    "char": ctypes.c_char,
}


def _number(word: str) -> int:
    """A number of the header, as it stands there or by its name."""
    defined = re.search(rf"^#define {word} (\w+)", _HEADER, re.MULTILINE)
    return int((defined[1] if defined else word).rstrip("UL"), 0)


def _structures() -> dict[str, Any]:
    """Every struct of the header; of a wave that lies in another one, the members are its own."""
    made: dict[str, Any] = {}
    structs = re.findall(r"^struct fake_(\w+) \{(.*?)^\};", _HEADER, re.DOTALL | re.MULTILINE)
    for name, body in structs:
        members = re.findall(
            r"^    (?:struct fake_)?(\w+) (\w+)(?:\[(\w+)\])?;", body, re.MULTILINE
        )
        fields = [
            (member, kind if count == "" else kind * _number(count))
            for kind, member, count in ((_PLAIN.get(k) or made[k], m, c) for k, m, c in members)
        ]
        anonymous = [member for member, kind in fields if kind is made.get("wave")]
        namespace = {"_anonymous_": anonymous, "_fields_": fields}
        made[name] = type(name, (ctypes.Structure,), namespace)
    return made


ControlFile: Final = _structures()["control"]

MAGIC: Final = _number("FAKE_MAGIC")
MAX_GPUS: Final = _number("FAKE_MAX_GPUS")
MAX_PROCESSES: Final = _number("FAKE_MAX_PROCESSES")
MAX_PARTS: Final = _number("FAKE_MAX_PARTS")
MAX_EVENTS: Final = _number("FAKE_MAX_EVENTS")
NO_OVERRIDE: Final = _number("FAKE_NO_OVERRIDE")
NO_INSTANCE: Final = _number("FAKE_NO_INSTANCE")

WAVE, RING = 0, 1
"""What a GPU's samples come from: a wave that needs no writer, or an explicit ring."""

DOUBLE, UNSIGNED_INT, SIGNED_LONG_LONG, SIGNED_INT = 0, 1, 4, 5
"""Types of a ring's values, as NVML numbers them."""
_PACKED_AS: Final = {DOUBLE: "<d", SIGNED_INT: "<i", SIGNED_LONG_LONG: "<q", UNSIGNED_INT: "<Q"}

FUNCTIONS: Final = tuple(
    re.findall(r"^    X\((\w+)\)", (_HERE / "functions.h").read_text(), re.MULTILINE)
)
"""What the fake exports, in the order of the control file."""


def raw_value(value: float, value_type: int) -> int:
    """The eight bytes of NVML's value union, as a number."""
    number = value if value_type == DOUBLE else int(value)
    return int.from_bytes(struct.pack(_PACKED_AS[value_type], number), "little")


class ControlAccess:
    """Records of the mapped control file, to be read and written field by field (see ``fake.h``).

    The parts of ``FakeNvml`` see it through this.
    """

    # Any: ctypes' own stubs do not know the fields of a structure.
    control: Any

    def gpu(self, slot: int) -> Any:
        """The record of the GPU in this slot."""
        return self.control.gpus[slot]

    def function(self, name: str) -> Any:
        """The record of a function of the driver."""
        return self.control.functions[FUNCTIONS.index(name)]

    def now_ns(self) -> int:
        """What the driver takes for CLOCK_MONOTONIC, in nanoseconds."""
        return int(self.control.virtual_now_ns) or time.monotonic_ns()
