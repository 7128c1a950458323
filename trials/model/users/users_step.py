"""The user's training step: an object with forward, backward and optimize, or a function."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import cast

from lmsweep.trials.code.calling import arguments_of, call
from lmsweep.trials.code.importing import load
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.training_step import PHASES
from lmsweep.trials.results.roles import Reader, fields_read_by
from lmsweep.trials.spec.config import ARGUMENTS, COMBINATION_FIELDS, TrialConfig, UnsupportedError
from lmsweep.trials.spec.model_sizes import DIMENSIONS
from lmsweep.trials.timing.clock import Phase

METHODS = {"forward": "forward", "backward": "backward", "optimizer": "optimize"}
"""Phase -> the method of the user's object that runs it."""

FUNCTION_PHASE = "step"
"""The only phase of a step that is a plain function."""

_REFERENCES = {"model_code", "step", "blocks", *ARGUMENTS.values()}
"""Fields that say which code is called, and with what; they are not offered to it."""
_LMSWEEPS = ("compile", "compile_mode", "dynamic_shapes", "capture", *fields_read_by(Reader.RANKS))
"""Fields that apply to lmsweep's own step alone."""


class UsersStep:
    """The phases of the user's step. State that one iteration leaves, such as gradients, stays for the next one."""

    uses_cuda_graphs = False

    def __init__(self, config: TrialConfig, math_mode: MathMode) -> None:
        """Call the user's function with those fields of the configuration that its signature has. Raises RequestError
        if its signature does not fit, UnsupportedError if a field would have no effect, TypeError if what it returns
        has no phases, and what the user's code raises."""
        assert config.step is not None, "the configuration refers to a step"
        self.config = config
        make = cast(Callable[..., object], load(config.step))
        arguments = arguments_of(config.step_args)
        offered: dict[str, object] = {"device": config.device_type, "dtype": math_mode.parameter_dtype}
        for name in COMBINATION_FIELDS:
            if name not in (*_REFERENCES, *_LMSWEEPS, "device") and (value := getattr(config, name)):
                offered[name] = value
        _check_effect(config, set(inspect.signature(make).parameters) | set(arguments))
        self._phases = _phases(call(make, offered, arguments, config.step), config)

    def phases(self) -> tuple[Phase, ...]:
        return self._phases

    def drop(self) -> None:
        """Do nothing: lmsweep cannot release what the user's step holds between iterations."""


def _phases(made: object, config: TrialConfig) -> tuple[Phase, ...]:
    methods = {phase: getattr(made, name) for phase, name in METHODS.items() if callable(getattr(made, name, None))}
    if not methods and callable(made):
        if config.mode != "train_step":
            raise UnsupportedError(f"{config.step} is one function, the whole step; mode {config.mode} is a part of it")
        return (Phase(name=FUNCTION_PHASE, run=cast(Callable[[], object], made)),)
    wanted = [phase for phase in PHASES[config.mode] if phase in methods]
    if not wanted:
        names = ", ".join(METHODS[phase] for phase in PHASES[config.mode])
        raise TypeError(
            f"{config.step} returned a {type(made).__name__} with none of {names}; return an object with these "
            "methods, or a function that is the whole step"
        )
    return tuple(Phase(name=phase, run=partial(methods[phase])) for phase in wanted)


def _check_effect(config: TrialConfig, taken: set[str]) -> None:
    changed = [name for name in COMBINATION_FIELDS if not config.is_default(name)]
    unused = [name for name in changed if name not in (taken | {*_REFERENCES, *DIMENSIONS, "device", "precision"})]
    if set(DIMENSIONS) & set(changed) and not set(DIMENSIONS) & taken:  # it need not take all of a model's sizes
        unused.append("model")
    # These two need not be taken: PyTorch's option for float32 products is set for the process.
    if config.precision not in ("fp32", "tf32") and not {"precision", "dtype"} & taken:
        unused.append("precision")
    if unused:
        raise UnsupportedError(f"{unused[0]} has no effect with step {config.step}, which does not take it")
