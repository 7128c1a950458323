"""Small configurations, and what a step of one needs and computes if all its layers and all its iterations are run."""

import time
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, NamedTuple

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.analytic.prediction_question import Question
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.users.hugging_face import layers_of_configuration
from lmsweep.trials.prediction.depth.operator_growth import grown
from lmsweep.trials.prediction.depth.shallow_models import at_full_depth
from lmsweep.trials.prediction.peak_memory import loaded_in_parts, summary
from lmsweep.trials.prediction.predict import answer_to
from lmsweep.trials.prediction.shared_runs import forget_runs
from lmsweep.trials.prediction.without_device.step_run import StepRun, record
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES


def small(**fields: Any) -> TrialConfig:
    """A model of few and odd dimensions."""
    dimensions = {"d_model": 24, "d_ff": 40, "num_layers": 2, "num_heads": 2, "vocab_size": 50}
    return TrialConfig(**({**dimensions, "context_length": 20, "batch_size": 3} | fields))


def five_layers(**fields: Any) -> TrialConfig:
    """A model whose operators a GPU runs."""
    sizes = {"d_model": 64, "d_ff": 96, "num_layers": 5, "num_heads": 4, "context_length": 32, "batch_size": 4}
    return small(**{**sizes, "device": "cuda"} | fields)


def named(model: str, **fields: Any) -> TrialConfig:
    return TrialConfig(**({"model": model, "device": "cuda"} | asdict(SIZES[model]) | fields))


@lru_cache(maxsize=2)
def _run(config: TrialConfig) -> StepRun:
    return record(config, None if config.ddp == "none" else 0, repeats=False)


def whole_memory(config: TrialConfig, *, is_trial: bool = True) -> Prediction:
    trace = _run(config).trace
    return summary(trace if is_trial else loaded_in_parts(trace), config)


def whole_operators(config: TrialConfig) -> Operators:
    return _run(replace(config, compile="none")).log.operators(config)


class Totals(NamedTuple):
    count: int
    flops: int
    bytes: int


def totals(operators: Operators) -> Totals:
    each = [(one.count, one.count * one.flops, one.count * one.bytes) for one in operators]
    return Totals(*map(sum, zip(*each, strict=True)))


def flops_by_phase(step: TrainingStep) -> list[int]:
    """What PyTorch counts on real tensors."""
    counts = []
    for phase in step.phases():
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            phase.run()
        counts.append(int(counter.get_total_flops()))
    return counts


def seconds_to_predict(one: TrialConfig) -> float:
    """CPU seconds of memory and operators, with nothing kept of earlier runs but what PyTorch keeps."""
    forget_runs()
    began = time.process_time()
    found = answer_to(Question(config=one, wants=("memory", "operators")))
    assert (found.prediction or found.bounds) and found.operators, found
    return time.process_time() - began


def depths_run(one: TrialConfig) -> list[int]:
    """The depths of the models that stand for this one."""
    ran: list[int] = []

    def run(shallow: TrialConfig) -> int:
        ran.append(shallow.num_layers or 0)
        return ran[-1]

    found = layers_of_configuration(one)
    assert found is not None
    assert at_full_depth(replace(one, num_layers=len(found.kinds)), run, grown, fewest=1) == len(found.kinds)
    return ran
