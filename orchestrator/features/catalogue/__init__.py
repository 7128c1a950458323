"""`sweeps`: the packaged sweeps, and the file of each."""

from typing import Annotated

from typer import Argument

from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.terminal import say_data
from lmsweep.trials.spec.config import RequestError, TrialConfig

QUESTIONS: dict[str, tuple[str, ...]] = {
    "Does it work here, and how fast is this machine?": (
        "quick",
        "local-gpu",
        "devices",
        "ceiling",
        "accept",
        "operators",
        "full",
    ),
    "What makes a step faster?": (
        "compile",
        "optimizers",
        "losses",
        "shapes",
        "packing",
        "attention",
        "attention-2026",
    ),
    "What do number formats bring?": ("precision", "fp8"),
    "Does it fit, and where does the time go?": ("memory", "profile", "energy"),
    "What does fine-tuning take?": ("finetuning", "finetuning-fsdp"),
    "What do several GPUs bring?": ("ddp", "fsdp", "collectives"),
    "How far can a number be trusted?": ("noise", "noise-cpu", "warmup"),
    "A course": ("cs336-2026", "cs336-2026-tiny", "cs336-2025"),
}
"""Question -> the packaged sweeps that answer it. Each sweep answers one."""


def sweeps(name: Annotated[str, Argument(help="Print the file of this one, to copy and change.")] = "") -> None:
    """List the packaged sweeps by question, or print the file of one.

    \b
    Examples:
      lmsweep sweeps
      lmsweep sweeps quick
    """
    from lmsweep.orchestrator.commands.text.show_table import show_groups
    from lmsweep.orchestrator.sweep.sweep import load_sweep, packaged_sweeps
    from lmsweep.trials.machine.cpu_affinity import find_gpus, usable_cores
    from lmsweep.trials.spec.suggestions import choices

    there = packaged_sweeps()
    if name:
        if name not in there:
            raise RequestError(f"{name} is not a packaged sweep{choices(name, there)}")
        say_data(there[name].rstrip("\n"))
        return
    try:
        places = {"cpu": len(usable_cores()), "cuda": len(find_gpus())}
    except ModuleNotFoundError:
        places = {}  # lmsweep is installed to read, so nothing runs here

    def runs_here(config: TrialConfig) -> bool:
        return config.nodes == 1 and config.world_size <= places.get(config.device_type, 0)

    def line(name: str) -> str:
        sweep = load_sweep(name)
        configs = [trial.config for trial in sweep.trials]
        able, least = sum(map(runs_here, configs)), min(one.world_size for one in configs)
        here = "all run here" if able == len(configs) else f"{able} run here"
        here = here if able else f"needs {least} GPU{'s' * (least > 1)}" if places else "none run here"
        return f"{len(configs):>3} trials, {here:<13}  {sweep.description}"

    show_groups(
        {question: {name: line(name) for name in names if name in there} for question, names in QUESTIONS.items()}
    )


feature = Feature(name="catalogue", place=-1, verbs=(sweeps,))
