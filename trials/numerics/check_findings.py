"""What is found about a reference: whether it imports and works, and what lmsweep cannot do with it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from lmsweep.trials.analytic.memory_prediction import subject_of
from lmsweep.trials.code.finding import Finding, Question, cannot
from lmsweep.trials.code.importing import load
from lmsweep.trials.isolation.precompile import imports_users_code
from lmsweep.trials.numerics.check_model import check_model
from lmsweep.trials.numerics.check_parts import check_attention, check_loss, check_optimizer, check_step
from lmsweep.trials.numerics.check_ranks import check_in_ranks
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.spec.config import Trial, TrialConfig, UnsupportedError
from lmsweep.trials.spec.quantities import gib
from lmsweep.trials.spec.reference import HUGGING_FACE


def findings(question: Question) -> Iterator[Finding]:
    """Yield the findings about one reference. Raises what its code raises if no trial with it could succeed."""
    if not question.reference.startswith(HUGGING_FACE):
        began = time.monotonic()
        load(question.reference)
        yield Finding(what="imports", found=f"in {time.monotonic() - began:.1f} s")
    yield from CHECKS[question.field](question)
    if question.field == "workload":
        return
    yield _compiled_ahead(question.config)
    yield _prediction(question)


def _compiled_ahead(config: TrialConfig) -> Finding:
    if not imports_users_code(config):
        return Finding(what="compiled ahead", found="as without your code, which is in no compiled graph")
    reason = "only a trial's own process imports your code, so each trial compiles its graph itself"
    return Finding(what="compiled ahead", found=reason, kind="cannot")


def _prediction(question: Question) -> Finding:
    subject = subject_of(Trial(config=question.config, workloads=question.workloads, sweep="check"))
    if subject is None:
        reason = "a workload without a step is not predicted; its trials run without knowing whether they fit"
        return Finding(what="predicted memory", found=reason, kind="cannot")
    try:
        return Finding(what="predicted memory", found=gib(predict(question.config, subject).peak))
    except (UnpredictableError, UnsupportedError) as error:
        return Finding(what="predicted memory", found=str(error), kind="cannot")
    except Exception as error:  # noqa: BLE001 - running it on the device may succeed
        found = cannot("predicted memory", error)
        return replace(found, found=f"on tensors without values: {found.found}")


CHECKS: dict[str, Callable[[Question], Iterator[Finding]]] = {
    "model_code": check_model,
    "attention": check_attention,
    "optimizer": check_optimizer,
    "loss": check_loss,
    "ddp": check_in_ranks,
    "step": check_step,
    "workload": lambda _: iter(()),
}
"""Field -> what is looked at after its reference has been imported."""
