"""Events that PyTorch's profiler handed out on a GPU, as `benchmarks/record_events.py` has written them."""

import json
import lzma
from pathlib import Path
from typing import Any

from torch.autograd import DeviceType

from lmsweep.trials.profiling.events import DeviceEvent, HostEvent
from lmsweep.trials.profiling.torch_trace import events_of


class RawEvent:
    """Answers as an event of the profiler does: each field is a method."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        return lambda: self._fields[name]


def recorded(name: str) -> tuple[list[HostEvent], list[DeviceEvent]]:
    """The events of tests/support/recordings/`name`.json.xz."""
    shapes = {int(call): (grid, block) for call, (grid, block) in _content(name)["launch_shapes"].items()}
    return events_of(raw_events(name), shapes)


def raw_events(name: str) -> list[RawEvent]:
    """What the profiler itself handed out."""
    content = _content(name)
    columns = {field: values for field, values in content.items() if isinstance(values, list) and field != "names"}
    columns["name"] = [content["names"][i] for i in columns["name"]]
    columns["device_type"] = [getattr(DeviceType, kind) for kind in columns["device_type"]]
    columns.pop("settings")
    return [RawEvent(dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]


def _content(name: str) -> dict[str, Any]:
    path = Path(__file__).parent / "recordings" / f"{name}.json.xz"
    found: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return found
