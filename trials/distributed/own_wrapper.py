"""The user's own wrapper of a module, which averages the gradients over the ranks."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import cast

from torch import nn

from lmsweep.trials.code.calling import arguments_of, call
from lmsweep.trials.code.importing import load
from lmsweep.trials.distributed.gradient_sync import DEFAULT_BUCKET_BYTES
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError

FINISH = "finish_gradient_synchronization"
"""The method that is called between backward and the optimizer, if the wrapper has it."""


class OwnWrapper:
    """What the user's class or function makes of the module, as a way to average gradients."""

    def __init__(self, module: nn.Module, config: TrialConfig) -> None:
        """Raises RequestError if the signature does not fit, UnsupportedError if a field of the configuration cannot
        apply to it, TypeError if it returns no module, and what the user's code raises.
        """
        wrap = partial(cast(Callable[..., object], load(config.ddp)), module)
        before = [parameter.shape for parameter in module.parameters()]
        made = call(wrap, _bucket(wrap, config), arguments_of(config.ddp_args), config.ddp)
        if not isinstance(made, nn.Module):
            raise TypeError(f"{config.ddp} returned a {type(made).__name__}; a wrapper is a torch.nn.Module")
        if [parameter.shape for parameter in made.parameters()] != before:
            raise UnsupportedError(
                f"{config.ddp} changes the shapes of the module's parameters, as FSDP does; ddp compares the gradient "
                "of each whole parameter, so it can only measure wrappers that keep them"
            )
        self.model = made

    def local(self) -> AbstractContextManager[None]:
        """Nothing is known of the wrapper that turns its communication off: see `DataParallelStep.alone`."""
        return nullcontext()

    def finish(self) -> None:
        """Call the wrapper's `finish_gradient_synchronization`, if it has one."""
        finish = getattr(self.model, FINISH, None)
        if finish is not None:
            finish()


def _bucket(wrap: Callable[..., object], config: TrialConfig) -> dict[str, object]:
    """The size of a bucket in MiB, to be offered to the wrapper: bucket_bytes, or the default if it asks for one."""
    parameter = inspect.signature(wrap).parameters.get("bucket_size_mb")
    if parameter is None:
        if config.bucket_bytes is not None:
            raise UnsupportedError(f"bucket_bytes has no effect with {config.ddp}, which takes no bucket_size_mb")
        return {}
    if config.bucket_bytes is None and parameter.default is not parameter.empty:
        return {}
    return {"bucket_size_mb": (config.bucket_bytes or DEFAULT_BUCKET_BYTES) / 2**20}
