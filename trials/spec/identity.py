"""Identifiers: hashes of what was asked for, without fields at their default, so that a new field changes none."""

import hashlib
import json
from collections.abc import Mapping

from lmsweep.trials.spec.config import COMBINATION_FIELDS, CONFIG_FIELDS, TrialConfig
from lmsweep.trials.spec.workloads import workload_named


def trial_id(config: TrialConfig) -> str:
    """Return 16 hexadecimal digits that identify the combination, the same on every machine."""
    return _digest(_changed(config, COMBINATION_FIELDS))


def measurement_id(config: TrialConfig, workload: str) -> str:
    """Return 16 hexadecimal digits that identify the combination, the workload and the protocol fields it reads."""
    names = COMBINATION_FIELDS + workload_named(workload).protocol
    return _digest({"workload": workload, **_changed(config, names)})


def _changed(config: TrialConfig, names: tuple[str, ...]) -> dict[str, object]:
    values = {name: getattr(config, name) for name in names}
    values["device"] = config.device_type
    return {name: value for name, value in values.items() if value != CONFIG_FIELDS[name].default}


def _digest(content: Mapping[str, object]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
