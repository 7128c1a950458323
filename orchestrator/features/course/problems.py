"""The problems of the systems assignment of Stanford's CS336 (2026) that ask for measurements.

A problem has the name that it has in the handout, and so have its grids in the sweep `cs336-2026`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lmsweep.orchestrator.features.course import pictures as draw
from lmsweep.orchestrator.features.course import problem_tables as make


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem of the handout, or a table of a published report, which `export` treats as one."""

    asks: str
    """What it asks to be measured, in a sentence."""
    tables: Mapping[str, make.Make] = field(default_factory=dict)
    pictures: draw.Pictures = lambda results: ()
    whole_store: bool = False
    """Whether its tables use all results of the store, not only those of its grids."""
    report: str = ""
    """The published report whose table it is; such a table is written even if the store has no results for it. Empty
    for a problem of the handout."""
    answers: str = ""
    """The problem of the handout of 2025 that the table answers."""


_DDP: dict[str, make.Make] = {"times": make.ddp_times, "ddp-traffic": make.preset("ddp-traffic")}

PROBLEMS: dict[str, Problem] = {
    "benchmarking_script": Problem(
        asks="Forward, backward and optimizer of each size after 5 warm-up steps; then after 0, 1 and 2.",
        tables={
            "end-to-end": make.preset("end-to-end", make.after_longest_warmup),
            "warm-up": make.preset("warm-up", make.whole_steps),
            "contexts": make.contexts,
        },
        pictures=draw.together(
            draw.bar_chart("parts", "Parts of a training step", make.phases, stacked=True),
            draw.line_chart(
                "contexts", "Time of a training step by context length", make.contexts, over="context_length"
            ),
        ),
    ),
    "nsys_profile": Problem(
        asks="Kernels of forward and of a whole step: the longest, the share of matrix products, softmax against them.",
        tables={name: make.preset(name) for name in ("profile-time", "kernels", "matmul-share", "softmax-matmul")},
    ),
    "mixed_precision_accumulation": Problem(
        asks="Sums in float32, in float16, and of float16 numbers in float32.",
        tables={"accumulation": make.preset("accumulation")},
    ),
    "benchmarking_mixed_precision": Problem(
        asks="The types of the toy model's tensors under autocast; times with and without mixed precision.",
        tables={name: make.preset(name) for name in ("dtypes-toy", "precision-speed")},
        pictures=draw.bar_chart("precisions", "Forward and backward in each precision", make.by_precision),
    ),
    "memory_profiling": Problem(
        asks="Memory of forward and of a whole step: timelines, peaks, largest allocations, residuals of one block.",
        tables={
            **{
                name: make.preset(name, lambda results: make.largest(results, "num_layers"))
                for name in ("memory", "memory-parts", "allocations")
            },
            "residuals": make.preset(
                "residuals", lambda results: make.only(make.smallest(results, "num_layers"), "mode", "forward_backward")
            ),
            "parameters": make.preset("parameters", lambda results: make.smallest(results, "num_layers")),
        },
        pictures=draw.timelines,
    ),
    "gradient_checkpointing": Problem(
        asks="Peak memory and time of a step by the number of blocks between checkpoints; what is saved for backward.",
        tables={"peaks": make.peaks, "steps": make.steps, "saved": make.saved},
        pictures=draw.bar_chart("peaks", "Peak memory of a step by the blocks between checkpoints", make.peaks),
    ),
    "pytorch_attention": Problem(
        asks="Times of attention alone, memory before backward, and where it runs out of memory.",
        tables={"attention": make.preset("attention")},
        pictures=draw.line_chart(
            "times", "Forward and backward of attention", make.forward_backward, over="context_length", panels="d_model"
        ),
    ),
    "torch_compile": Problem(
        asks="Attention alone and the whole model, eager and compiled.",
        tables={name: make.preset(name) for name in ("attention-compile", "compile-speed")},
        pictures=draw.bar_chart(
            "steps", "The longest iteration measured of each model, eager and compiled", make.by_compile
        ),
    ),
    "flash_benchmarking": Problem(
        asks="Forward, backward and both of FlashAttention and of plain attention, for one causal sequence.",
        tables={precision: make.latencies(precision) for precision in ("bf16", "fp32")},
        pictures=draw.attention_latencies,
    ),
    "distributed_communication_single_node": Problem(
        asks="All-reduce by size of the message and number of ranks.",
        tables={"collectives": make.preset("collectives")},
        pictures=draw.together(
            draw.line_chart("times", "Time of an all-reduce", make.collective("time"), over="message_bytes"),
            draw.line_chart(
                "bandwidths", "Bus bandwidth of an all-reduce", make.collective("bus_bandwidth"), over="message_bytes"
            ),
        ),
    ),
    "naive_ddp_benchmarking": Problem(
        asks="Time of a step with an all-reduce per parameter after backward, and of communication.",
        tables=_DDP,
        pictures=draw.communication,
    ),
    "minimal_ddp_flat_benchmarking": Problem(
        asks="One all-reduce of all gradients against one per parameter.", tables=_DDP, pictures=draw.communication
    ),
    "ddp_overlap_individual_parameters_benchmarking": Problem(
        asks="All-reduces during backward against all-reduces after it. Traces are files in the store (step.trace).",
        tables=_DDP,
        pictures=draw.communication,
    ),
    "optimizer_state_sharding_accounting": Problem(
        asks="Memory by category with and without sharding of the optimizer state; time of a step.",
        tables={
            "sharding": make.preset("sharding"),
            "stages": make.stages,
            "ddp-memory": make.preset("ddp-memory"),
            "times": make.ddp_times,
        },
        pictures=draw.memory_by_moment,
    ),
    "fsdp_accounting": Problem(
        asks="What sharding of weights, gradients and state saves; communication by kind.",
        tables={"sharding": make.preset("sharding"), "stages": make.stages, **_DDP},
        pictures=draw.memory_by_moment,
    ),
    "parallelism_calcs": Problem(
        asks="data_parallel_calcs, fsdp_calcs, tp_calcs, fsdp_tp_calcs: ranks above which communication is the limit.",
        tables={"scaling-limits": make.preset("scaling-limits")},
        whole_store=True,
    ),
    "leaderboard": Problem(
        asks="A whole step of the 8B model with 32768 tokens, on two GPUs.",
        tables={"times": make.ddp_times, "ddp-memory": make.preset("ddp-memory")},
        pictures=draw.communication,
    ),
}
"""Name in the handout -> the problem, in the order of the handout."""
