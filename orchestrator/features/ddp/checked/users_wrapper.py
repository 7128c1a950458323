"""The user's own wrapper of a module, which averages the gradients over the ranks."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import nn

from lmsweep.trials.code.calling import arguments_of, call
from lmsweep.trials.code.importing import load
from lmsweep.trials.distributed.parallel.gradient_sync import DEFAULT_BUCKET_BYTES
from lmsweep.trials.distributed.ranks.process_group import Synchronizer
from lmsweep.trials.model.users.users_forward import code_error
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import FINISH

GATHER = "gather_full_params"
"""A wrapper that shards the weights (FSDP) must have this method: it returns all whole weights by name."""


class UsersWrapper(Synchronizer):
    """What the user's class or function makes of the module, as a way to average gradients."""

    def __init__(self, module: nn.Module, config: TrialConfig) -> None:
        """Raises RequestError if the signature does not fit, UnsupportedError if a field of the configuration cannot
        apply to it, CodeError if what it returns cannot be called, and what the user's code raises."""
        wrap = partial(cast(Callable[..., object], load(config.ddp)), module)
        self.shapes = {name: parameter.shape for name, parameter in module.named_parameters()}
        offered = _bucket(wrap, config) | _compute_dtype(wrap, config)
        made = call(wrap, offered, arguments_of(config.ddp_args), config.ddp)
        if not callable(made) and not hasattr(made, "forward"):
            raise code_error(config.ddp, f"returned a {type(made).__name__}; a wrapper is called as the module is")
        self.made = made
        super().__init__(made if isinstance(made, nn.Module) else _AsModule(made, module))
        self.is_sharded = [parameter.shape for parameter in self.model.parameters()] != list(self.shapes.values())
        if self.is_sharded and not hasattr(made, GATHER):
            raise UnsupportedError(
                f"{config.ddp} changes the shapes of the module's parameters, as FSDP does, and has no {GATHER}() that "
                "returns the whole weights by name, so it cannot be compared with one process"
            )
        self.trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad]

    # `local` and `hold` do nothing: there is no known way to disable the communication of the user's code (see
    # `ComparedStep.alone`), and it is refused with micro-batches (rank_rules.py).

    def finish(self) -> None:
        finish = getattr(self.made, FINISH, None)
        if finish is not None:
            finish()


class _AsModule(nn.Module):
    """A wrapper that is no module: its weights are its own `parameters()`, which may be those of what it wraps."""

    def __init__(self, made: object, wrapped: nn.Module) -> None:
        super().__init__()
        self.call = cast(Callable[..., object], made if callable(made) else getattr(made, "forward"))  # noqa: B009
        own = list(getattr(made, "parameters", wrapped.parameters)())
        if {id(weight) for weight in own} == {id(weight) for weight in wrapped.parameters()}:
            self.wrapped = wrapped
        else:
            self.weights = nn.ParameterList(own)

    def forward(self, *inputs: object, **named: object) -> object:
        return self.call(*inputs, **named)


def _bucket(wrap: Callable[..., object], config: TrialConfig) -> dict[str, object]:
    """The size of a bucket in MiB for the wrapper: bucket_bytes, or the default if it asks for one."""
    parameter = inspect.signature(wrap).parameters.get("bucket_size_mb")
    if parameter is None:
        if config.bucket_bytes is not None:
            raise UnsupportedError(f"bucket_bytes has no effect with {config.ddp}, which takes no bucket_size_mb")
        return {}
    if config.bucket_bytes is None and parameter.default is not parameter.empty:
        return {}
    return {"bucket_size_mb": (config.bucket_bytes or DEFAULT_BUCKET_BYTES) / 2**20}


def _compute_dtype(wrap: Callable[..., object], config: TrialConfig) -> dict[str, object]:
    """The argument for the type in which the wrapper gathers weights and computes: bfloat16, or for fp32 None, which
    means that of the weights. It is left out for fp32 if the wrapper has a default."""
    parameter = inspect.signature(wrap).parameters.get("compute_dtype")
    if config.gather == "fp32":
        return {} if parameter is None or parameter.default is not parameter.empty else {"compute_dtype": None}
    if parameter is None:
        raise UnsupportedError(f"gather {config.gather} has no effect with {config.ddp}, which takes no compute_dtype")
    return {"compute_dtype": torch.bfloat16}
