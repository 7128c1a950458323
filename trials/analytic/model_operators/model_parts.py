"""The parts of a step of lmsweep's own model: its blocks, its ends, its loss, its update."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from lmsweep.trials.analytic.formulas import PASSES, Dimensions, parameter_count
from lmsweep.trials.analytic.model_operators.attention_operators import attention_operators
from lmsweep.trials.analytic.model_operators.block_operators import NORM, block_operators, linear_operators
from lmsweep.trials.analytic.model_operators.forms import Form, Row
from lmsweep.trials.analytic.rates.operators import Operator, Phase
from lmsweep.trials.analytic.rates.step_time import OperatorRates, Work, limits
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.model_sizes import ModelSize
from lmsweep.trials.spec.ways.losses import FUSED_LOSSES
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS
from lmsweep.trials.spec.ways.precisions import PRECISIONS

PHASES: tuple[Phase, ...] = ("forward", "backward")


class Part(NamedTuple):
    """Operators that `make` yields from `arguments`; equal parts of all steps share one price."""

    times: int
    make: Callable[..., Iterable[Operator]]
    arguments: tuple[object, ...]


def has_known_work(config: TrialConfig) -> bool:
    """Whether the trial has a model of lmsweep's, whose operators are a closed form."""
    return not config.model_code and bool(config.d_ff and config.num_layers and config.num_heads)


def model_parts(config: TrialConfig) -> list[Part]:
    """Return the parts of an iteration of a whole model of lmsweep's."""
    layers, micro = config.num_layers or 1, config.accumulate
    vocab_size, precision = config.vocab_size, config.precision
    tokens, block = config.micro_batch_size * config.context_length, _without_depth(config.size)
    weights = parameter_count(**config.size.terms, vocab_size=vocab_size)
    whole, compiled = config.compilation.whole, config.compile != "none"
    found: list[Part] = []

    def add_blocks(phase: Phase, times: int, is_again: bool = False) -> None:
        # The first operator of a compiled block counts the call of its code, so attention adds none. A model compiled
        # as a whole is called once for each pass, which `end_operators` counts.
        form = Form(phase, precision, compiled, int(compiled and not whole), is_again)
        found.append(Part(times * micro, block_operators, (form, tokens, block)))
        found.append(Part(times * micro, attention_operators, _attention(config, form._replace(calls=0))))

    for phase in _phases(config):
        ends = tokens, config.d_model, vocab_size
        found.append(Part(micro, end_operators, (Form(phase, precision, whole, int(whole)), *ends)))
        found.append(Part(micro, loss_operators, (Form(phase, precision), tokens, vocab_size, config.loss)))
        add_blocks(phase, layers)
        if phase == "backward" and (again := config.recomputation.recomputed(layers).blocks):
            add_blocks(phase, again, is_again=True)  # not with `selective`, which computes no product again
        if phase == "backward" and micro > 1:
            # Nine weights a layer: 4 projections, 3 matrices of SwiGLU, 2 norms. It decides how many kernels add them.
            found.append(Part(micro - 1, sum_operators, (Form(phase, precision), weights, 9 * layers)))
    if config.mode == "train_step":
        found.append(Part(1, update_operators, (Form("optimizer", precision), weights, config.optimizer)))
    return found


@lru_cache(maxsize=1024)
def _without_depth(size: ModelSize) -> Dimensions:
    """Return what a block depends on, so that the blocks of models of several depths share their prices."""
    return Dimensions(**size.terms)._replace(num_layers=1, vocabulary_matrices=1)


def _phases(config: TrialConfig) -> tuple[Phase, ...]:
    return PHASES if PASSES[config.mode] > 1 else PHASES[:1]


def attention_parts(config: TrialConfig) -> list[Part]:
    """Return the parts of attention alone, without its projections."""
    compiled = config.compile != "none"
    forms = (Form(phase, config.precision, compiled, int(config.compiles)) for phase in _phases(config))
    return [Part(1, attention_operators, _attention(config, form)) for form in forms]


def loss_parts(config: TrialConfig) -> list[Part]:
    """Return the parts of the output head and the loss alone, forward and backward."""
    tokens, width, words = config.batch_size * config.context_length, config.d_model, config.vocab_size
    precision = "bf16_pure" if PRECISIONS[config.precision].is_narrow else config.precision  # it runs without autocast
    forms = [Form(phase, precision) for phase in PHASES]
    heads = [Part(1, linear_operators, (form, tokens, width, words)) for form in forms]
    return heads + [Part(1, loss_operators, (form, tokens, words, config.loss)) for form in forms]


def seconds_of(parts: Sequence[Part], rates: OperatorRates, factor: float = 1.0) -> float:
    """Return the seconds of a step of one process, as `StepTime.at` of its operators."""
    whole = update = (0.0, 0.0)
    for times, make, arguments in parts:
        launching, computing = _priced(rates, make, arguments)
        whole = whole[0] + times * launching, whole[1] + times * factor * computing
        if make is update_operators:  # the device can begin it only when the host gets there
            update = launching, factor * computing
    return max(limits(Work(*whole), Work(*update)))


@lru_cache(maxsize=2**17)
def _priced(rates: OperatorRates, make: Callable[..., Iterable[Operator]], arguments: tuple[object, ...]) -> Work:
    operators, computing = tuple(make(*arguments)), 0.0
    form, *others = arguments
    if isinstance(form, Form) and form.is_again:  # the device does what it did in forward
        forward = form._replace(phase="forward", is_again=False)
        computing = _priced(rates, make, (forward, *others)).computing
    else:
        computing = sum(one.count * rates.of(one).seconds for one in operators)
    return Work(sum(one.count * rates.launch(one) for one in operators), computing)


def end_operators(form: Form, tokens: int, d_model: int, vocab_size: int) -> Iterator[Operator]:
    """Yield the operators of the embedding, the last norm and the output head."""
    hidden = tokens * d_model
    if form.is_forward:
        yield from form.rows(hidden, Row("embedding", 1, 8), *NORM["forward"])
    else:
        yield from form.rows(vocab_size * d_model, Row("new_zeros", 1, 4))
        yield from form.rows(hidden, Row("add_", 1, 12), *NORM["backward"])
    for place, one in enumerate(linear_operators(form, tokens, d_model, vocab_size)):
        yield replace(one, calls=form.calls) if not place else one


_CROSS_ENTROPY: dict[str, tuple[Row, ...]] = {
    "forward": (Row("_log_softmax", 1, 8),),
    "backward": (Row("new_zeros", 1, 4), Row("_log_softmax_backward_data", 1, 12)),
}
_EAGER_LOSS: dict[str, tuple[Row, ...]] = {
    "forward": (Row("max", 1, 4), Row("sub", 2, 8, "strided"), Row("exp", 1, 8), Row("sum", 1, 4)),
    "backward": (
        *(Row("new_zeros", 1, 4), Row("neg", 1, 8), Row("sum", 1, 4)),
        *(Row("mul", 1, 8, "strided"), Row("add_", 1, 12)),
    ),
}


def loss_operators(form: Form, tokens: int, vocab_size: int, loss: str) -> Iterator[Operator]:
    logits = tokens * vocab_size
    if loss in FUSED_LOSSES:
        fused = form._replace(is_compiled=True)
        yield from fused.rows(logits, Row("", 1, (1 if form.is_forward else 2) * form.narrow), dtype=form.dtype)
        return
    cast = Row("_to_copy", int(form.narrow == 2), 6)  # of the logits to float32; of their gradient back
    rows = (_CROSS_ENTROPY if loss == "cross_entropy" else _EAGER_LOSS)[form.phase]
    if form.is_forward:
        yield from form.rows(logits, cast, dtype=form.dtype)
        yield from form.rows(logits, *rows)
    else:
        yield from form.rows(logits, *rows, cast)


def sum_operators(form: Form, count: int, tensors: int) -> Iterator[Operator]:
    """Yield the operators that sum the gradients of these weights over micro-batches."""
    yield from form.rows(count / tensors, Row("add_", tensors, 3 * form.wide))


def update_operators(form: Form, count: int, optimizer: str) -> Iterator[Operator]:
    if optimizer in OPTIMIZERS and (OPTIMIZERS[optimizer].is_fused or not OPTIMIZERS[optimizer].is_of_torch):
        formats = PRECISIONS[form.precision]
        if formats.has_copies:
            yield from form.rows(count, Row("_foreach_copy_", 2, 6), Row("_fused_adamw_", 1, 28))
            return
        yield from form.rows(count, Row("_fused_adamw_", 1, 7 * form.wide), dtype=formats.weights)  # as UPDATE_PASSES
        return
    wide = form.wide
    yield from form.rows(count, Row("_foreach_mul_", 2, 2 * wide), Row("_foreach_lerp_", 2, 3 * wide))
    yield from form.rows(count, Row("_foreach_sqrt", 3, 2 * wide), Row("_foreach_addcdiv_", 1, 4 * wide))


def _attention(config: TrialConfig, form: Form) -> tuple[object, ...]:
    heads = config.num_heads or 1
    sizes = config.micro_batch_size, heads, config.num_kv_heads or heads, config.context_length, config.head_width
    return form, *sizes, config.attention, config.causal, config.window, config.document_length
