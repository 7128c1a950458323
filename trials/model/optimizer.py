"""The optimizer of the training step: made from its row in OPTIMIZERS, or from a reference."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from lmsweep.trials.code.calling import arguments_of, call
from lmsweep.trials.code.importing import code_in_use, load
from lmsweep.trials.code.traceback_text import CodeError, defined_at, said_by, user_line
from lmsweep.trials.machine.gpu.accelerator import why_not_installed
from lmsweep.trials.machine.out_of_memory import ran_out_of_memory
from lmsweep.trials.machine.torch_private import FakeTensor, foreach_copy
from lmsweep.trials.model.adapted_layers import trainable
from lmsweep.trials.model.host_copies import part_of, update_fakes
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.offloads import OFFLOADS
from lmsweep.trials.spec.ways.optimizers import LEARNING_RATE, OPTIMIZERS
from lmsweep.trials.spec.ways.precisions import PRECISIONS

Make = Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]
CLASS_PARAMETERS = ("optimizer_cls", "optimizer_class")
"""Names of the parameter by which a sharded optimizer takes the class of optimizer whose state it shards."""


class MatricesAndOthers(torch.optim.Optimizer):
    """One optimizer for the matrices of the blocks and another for all other weights (Muon: Jordan 2024)."""

    def __init__(self, matrices: torch.optim.Optimizer, others: torch.optim.Optimizer) -> None:
        self.parts = [matrices, others]
        weights = [weight for part in self.parts for group in part.param_groups for weight in group["params"]]
        super().__init__(weights, {"lr": LEARNING_RATE})

    def step(self, closure: object = None) -> None:  # type: ignore[override] # the training step gives no closure
        for part in self.parts:
            part.step()
            self.state.update(part.state)  # where memory is read


class OptimizerOfCopies(torch.optim.Optimizer):
    """Updates copies of the weights, or of a rank's parts of them, in pinned memory of the host or in float32 on the
    device, and copies these back. On the device a fused optimizer divides gradients by GradScaler's scale, and skips a
    step that overflowed. `state`, where memory is read, has what is on the device."""

    def __init__(self, weights: Sequence[nn.Parameter], make: Make, *, on_host: bool) -> None:
        super().__init__(weights, {"lr": LEARNING_RATE})
        self._weights, self._on_host = weights, on_host
        self._step_supports_amp_scaling = not on_host  # GradScaler reads it, and then sets grad_scale and found_inf
        own = [part_of(weight.detach()) for weight in weights]
        is_fake = on_host and isinstance(own[0], FakeTensor)
        self._copies = [] if is_fake else [nn.Parameter(self._empty(one).copy_(one)) for one in own]
        self.parts = [make(self._copies)] if self._copies else []
        """The optimizer of the copies; none for fakes on the host: without values, and its memory does not count."""
        self._gradients: dict[Tensor, Tensor] = {}
        """Copy on the host -> memory for its gradient, which all steps use: pinning memory takes long."""
        if not on_host:
            self.state.update({one: {"copy": copy} for one, copy in zip(weights, self._copies, strict=True)})

    def _empty(self, weight: Tensor) -> Tensor:
        if self._on_host:
            return torch.empty(weight.shape, dtype=weight.dtype, pin_memory=weight.is_cuda)
        return torch.empty_like(weight, dtype=torch.float32)

    def _gradient_on_host(self, copy: Tensor, like: Tensor) -> Tensor:
        if copy not in self._gradients:
            self._gradients[copy] = self._empty(like)
        return self._gradients[copy]

    def step(self, closure: object = None) -> None:  # type: ignore[override] # the training step gives no closure
        if not self.parts:
            update_fakes([part_of(one.detach()) for one in self._weights])
            return
        used = [pair for pair in zip(self._weights, self._copies, strict=True) if pair[0].grad is not None]
        gradients = [part_of(cast(Tensor, weight.grad)) for weight, _ in used]
        for gradient, (_, copy) in zip(gradients, used, strict=True):
            copy.grad = self._gradient_on_host(copy, gradient) if self._on_host else self._empty(gradient)
        foreach_copy([cast(Tensor, copy.grad) for _, copy in used], gradients, True)
        if self._on_host and self._weights[0].is_cuda:
            torch.cuda.current_stream().synchronize()  # the host must not read gradients that are still on their way
        if not self._on_host:
            for name in ("grad_scale", "found_inf"):
                setattr(self.parts[0], name, getattr(self, name, None))
        self.parts[0].step()
        for weight, copy in used:
            copy.grad = None  # else a later step without this gradient would take it again
            if not self._on_host:
                self.state[weight].update(self.parts[0].state[copy])
        foreach_copy([part_of(weight.detach()) for weight, _ in used], [copy.detach() for _, copy in used], True)


def make_optimizer(model: nn.Module, blocks: Sequence[nn.Module], config: TrialConfig) -> torch.optim.Optimizer:
    """Return the configuration's optimizer over all trained weights. blocks: the model's repeated layers. Raises
    UnsupportedError if a package is missing, a weight has no such optimizer or the user's class shards its state over
    ranks, and TypeError if what the user's class returns cannot step."""
    if is_reference(config.optimizer):
        weights = trainable(model)
        try:
            return _users_optimizer(config, weights)
        except Exception as error:  # noqa: BLE001 - it may refuse its weights in any way
            raise_explained(error, config, weights)
    optimizer = OPTIMIZERS[config.optimizer]
    if optimizer.only_matrices:
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        in_blocks = {id(weight) for block in blocks for weight in block.parameters()}
        for weight in trainable(model):
            is_matrix_of_block = id(weight) in in_blocks and weight.dim() == 2
            (matrices if is_matrix_of_block else others).append(weight)
        if not matrices:
            raise UnsupportedError(f"optimizer {config.optimizer} is for matrices in blocks, and the model has none")
        return MatricesAndOthers(make_named(config.optimizer, matrices), make_named("adamw_fused", others))
    if OFFLOADS[config.offload].updates:
        return OptimizerOfCopies(trainable(model), partial(make_named, config.optimizer), on_host=True)
    more: dict[str, Any] = {"capturable": True} if config.capture != "none" and optimizer.capturable else {}
    if PRECISIONS[config.precision].has_copies:
        return OptimizerOfCopies(trainable(model), partial(make_named, config.optimizer, **more), on_host=False)
    return make_named(config.optimizer, trainable(model), **more)


def make_named(name: str, weights: ParamsT, **more: Any) -> torch.optim.Optimizer:
    return optimizer_class(name)(weights, **OPTIMIZERS[name].arguments, **more)


def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """Import the class of an optimizer. Raises UnsupportedError if its package is not installed."""
    if reason := why_not_installed("optimizer", name):
        raise UnsupportedError(reason)
    module, _, attribute = OPTIMIZERS[name].factory.rpartition(".")
    return cast(type[torch.optim.Optimizer], getattr(import_module(module), attribute))


def _users_optimizer(config: TrialConfig, weights: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    users = cast(Callable[..., object], load(config.optimizer))
    if shards_state(config):
        raise UnsupportedError(f"{config.optimizer} shards its state over ranks; the workload ddp measures it")
    offered, arguments = {"lr": LEARNING_RATE}, arguments_of(config.optimizer_args)
    return as_optimizer(call(partial(users, weights), offered, arguments, config.optimizer), config)


def as_optimizer(made: object, config: TrialConfig) -> torch.optim.Optimizer:
    """Return what the user's class made, in its mode for training if it has modes. Raises TypeError if it cannot
    step."""
    if not (hasattr(made, "step") and hasattr(made, "zero_grad")):
        raise TypeError(f"{config.optimizer} returned a {type(made).__name__}; an optimizer has step and zero_grad")
    if callable(train := getattr(made, "train", None)):  # as those without a schedule have (Defazio et al. 2024)
        train()
    return cast(torch.optim.Optimizer, made)


def raise_explained(error: Exception, config: TrialConfig, weights: Sequence[nn.Parameter]) -> NoReturn:
    """Raise what the user's optimizer raised; if the cause is known, as a CodeError that says what to write."""
    expected = isinstance(error, CodeError | RequestError | UnsupportedError) or ran_out_of_memory(error)
    words = "" if expected or not is_reference(config.optimizer) else _what_to_write(error, config, weights)
    if not words:
        raise error
    code = code_in_use()
    defined = defined_at(load(config.optimizer), code)
    where = config.optimizer if defined == code.folder else defined  # the folder stands for an installed package
    place = user_line(error, code) or f"{where}: {type(error).__name__}: {said_by(error)}"
    raise CodeError(f"{place.rstrip('.')}; {words}") from error


def _what_to_write(error: Exception, config: TrialConfig, weights: Sequence[nn.Parameter]) -> str:
    said = str(error).lower()
    if "process group" in said or "process_group" in said:
        return "it communicates between ranks, and this is one process: measure it by workloads: [ddp]"
    if "closure" in said:
        return "lmsweep gives no closure: name a training step of your own by step:, whose optimize() calls it with one"
    others = [one for one in weights if one.dim() != 2]
    # It takes only matrices if it updates a small one and refuses one of the other weights.
    if not others or not _takes(config, (8, 8)) or _takes(config, tuple(others[0].shape)):
        return ""
    return (
        "it takes only matrices, and is given other weights too: name a function of the weights in its place, which "
        "gives it those with weight.ndim == 2, the others to torch.optim.AdamW, and returns an object whose step and "
        "zero_grad call both"
    )


def _takes(config: TrialConfig, shape: tuple[int, ...]) -> bool:
    """Whether the user's optimizer updates one weight of this shape."""
    weight = nn.Parameter(torch.ones(shape))
    weight.grad = torch.ones(shape)
    try:
        _users_optimizer(config, [weight]).step()
    except Exception:  # noqa: BLE001 - whatever it raises, it refuses the weight
        return False
    return True


def shards_state(config: TrialConfig) -> bool:
    """Whether the user's optimizer takes a class of optimizer as a parameter, whose state it shards over ranks."""
    return is_reference(config.optimizer) and class_parameter(load(config.optimizer)) is not None


def class_parameter(users: object) -> str | None:
    """Return the name of the parameter by which a user's optimizer takes another's class; None if it takes none."""
    try:
        parameters = inspect.signature(cast(Callable[..., object], users)).parameters
    except ValueError:  # a class of an extension module has no signature
        return None
    return next((name for name in CLASS_PARAMETERS if name in parameters), None)
