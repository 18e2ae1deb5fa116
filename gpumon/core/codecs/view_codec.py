"""``MonitorView`` as the ``gpumon.view/1`` document of ``/api/v1/view``, and back.

Fields may be added to the document, never removed or renamed. Numbers are not rounded.
"""

from __future__ import annotations

from typing import Any, Final

from gpumon.core.codecs.field_codec import (
    OWN_SENTENCES,
    FieldCodec,
    MalformedError,
    MissingFieldError,
    mapping,
)
from gpumon.core.view.status import GpuStatus
from gpumon.core.view.view import (
    AdviceView,
    GpuView,
    Headline,
    HolderView,
    MonitorView,
    ProcessView,
    RecentCells,
    RunView,
    TroubleView,
)
from gpumon.errors import UsageError

VIEW_SCHEMA: Final = "gpumon.view/1"
_VIEW: Final = FieldCodec(
    MonitorView,
    OWN_SENTENCES,
    "monotonic_seconds wall_time_s started_at period_seconds source simulated replayed boot_id"
    " headline notes advice gpus runs",
    {
        Headline: "tone title line verdict why next advice",
        AdviceView: "cause cause_text gpus lost_seconds speedup_upper_bound may_be_more heading"
        " text evidence reason",
        GpuView: "label uuid index=number parent_uuid name status since since_text line cause"
        " cause_text reason reason_text lost_ratio lost_by_cause utilization_ratio"
        " memory_used_bytes memory_capacity_bytes power_watts power_limit_watts"
        " temperature_celsius sm_clock_hertz advice first_advice troubles seen_text seen_files"
        " hint runs held_by processes user observed_seconds busy_seconds pending_seconds"
        " in_use_seconds idle_by_cause=idle_ns input_wait_by_reason=input_wait_by_reason_ns"
        " cells",
        GpuStatus: "key word shape tone need",
        TroubleView: "short_name severity text advice",
        HolderView: "pid user command memory_used_bytes since",
        ProcessView: "pid user command memory_used_bytes sm_ratio",
        RecentCells: "start_seconds cell_seconds parts",
        RunView: "run job rank pid framework alive phase phase_text steps epoch gpus wall_seconds"
        " step_seconds held_up_text",
    },
)


def encode_view(view: MonitorView) -> dict[str, Any]:
    """The view as a document."""
    return {"schema": VIEW_SCHEMA, **_VIEW.encode(view)}


def decode_view(document: object) -> MonitorView:
    """The view of a document; unknown fields are ignored.

    Raises:
        UsageError: It is not such a document, or lacks a field; says which.
    """
    try:
        fields = mapping(document)
        if fields.get("schema") != VIEW_SCHEMA:
            raise UsageError(f"this is no {VIEW_SCHEMA} document")
        return _VIEW.decode(fields)
    except MissingFieldError as error:
        raise UsageError(f"the view lacks the field {error}") from error
    except MalformedError as error:
        raise UsageError(f"the view cannot be read: {error}") from error
