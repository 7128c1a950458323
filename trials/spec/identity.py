"""Identifiers: hashes of what was asked for, without fields at their default, so that a new field changes none."""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from operator import attrgetter

from lmsweep.trials.spec.config import COMBINATION_FIELDS, CONFIG_FIELDS, TrialConfig
from lmsweep.trials.spec.workloads import workload_named


def trial_id(config: TrialConfig) -> str:
    """Return 16 hexadecimal digits that identify the combination, the same on every machine."""
    return _digest(_changed(config, COMBINATION_FIELDS))


@lru_cache(maxsize=1024)  # a plan asks several times about each trial in turn
def measurement_id(config: TrialConfig, workload: str) -> str:
    """Return 16 hexadecimal digits that identify the combination, the workload and the protocol fields it reads."""
    names = COMBINATION_FIELDS + workload_named(workload).protocol
    return _digest({"workload": workload, **_changed(config, names)})


def _changed(config: TrialConfig, names: tuple[str, ...]) -> dict[str, object]:
    get, defaults = _reader(names)
    fields = zip(names, get(config), defaults, strict=True)
    found = {name: value for name, value, default in fields if value != default and name != "device"}
    # Only the kind of device: cuda:H100 asks for the same as cuda. The fingerprint of a row says which GPU it was.
    of_kind = {} if config.device_type == CONFIG_FIELDS["device"].default else {"device": config.device_type}
    return found | of_kind


@cache
def _reader(names: tuple[str, ...]) -> tuple[Callable[[TrialConfig], tuple[object, ...]], tuple[object, ...]]:
    """Return a getter of these fields, and their defaults."""
    return attrgetter(*names), tuple(CONFIG_FIELDS[name].default for name in names)


def _digest(content: Mapping[str, object]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
