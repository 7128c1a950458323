"""The problems of the systems assignment of Stanford's CS336 (2026) that ask for measurements.

A problem has the name that it has in the handout, and so have its grids in the sweep `cs336-2026`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lmsweep.analysis.writeup.pictures import (
    Pictures,
    attention_latencies,
    bar_chart,
    communication,
    line_chart,
    memory_by_moment,
    timelines,
    together,
)
from lmsweep.analysis.writeup.problem_tables import (
    Make,
    by_compile,
    by_precision,
    collective,
    contexts,
    ddp_times,
    forward_backward,
    largest,
    latencies,
    only,
    peaks,
    phases,
    preset,
    saved,
    smallest,
    stages,
    steps,
    timed,
    warmed_up,
)


@dataclass(frozen=True, kw_only=True)
class Problem:
    asks: str
    """What it asks to be measured, in a sentence."""
    tables: Mapping[str, Make] = field(default_factory=dict)
    pictures: Pictures = lambda results: ()
    whole_store: bool = False
    """Whether its tables use all results of the store, not only those of its grids."""


_DDP: dict[str, Make] = {"times": ddp_times, "ddp-traffic": preset("ddp-traffic")}

PROBLEMS: dict[str, Problem] = {
    "benchmarking_script": Problem(
        asks="Forward, backward and optimizer of each size after 5 warm-up steps; then after 0, 1 and 2.",
        tables={
            "end-to-end": preset("end-to-end", timed),
            "warm-up": preset("warm-up", warmed_up),
            "contexts": contexts,
        },
        pictures=together(
            bar_chart("parts", "Parts of a training step", phases, stacked=True),
            line_chart("contexts", "Time of a training step by context length", contexts, over="context_length"),
        ),
    ),
    "nsys_profile": Problem(
        asks="Kernels of forward and of a whole step: the longest, the share of matrix products, softmax against them.",
        tables={name: preset(name) for name in ("profile-time", "kernels", "matmul-share", "softmax-matmul")},
    ),
    "mixed_precision_accumulation": Problem(
        asks="Sums in float32, in float16, and of float16 numbers in float32.",
        tables={"accumulation": preset("accumulation")},
    ),
    "benchmarking_mixed_precision": Problem(
        asks="The types of the toy model's tensors under autocast; times with and without mixed precision.",
        tables={name: preset(name) for name in ("dtypes-toy", "precision-speed")},
        pictures=bar_chart("precisions", "Forward and backward in each precision", by_precision),
    ),
    "memory_profiling": Problem(
        asks="Memory of forward and of a whole step: timelines, peaks, largest allocations, residuals of one block.",
        tables={
            **{
                name: preset(name, lambda results: largest(results, "num_layers"))
                for name in ("memory", "memory-parts", "allocations")
            },
            "residuals": preset(
                "residuals", lambda results: only(smallest(results, "num_layers"), "mode", "forward_backward")
            ),
            "parameters": preset("parameters", lambda results: smallest(results, "num_layers")),
        },
        pictures=timelines,
    ),
    "gradient_checkpointing": Problem(
        asks="Peak memory and time of a step by the number of blocks between checkpoints; what is saved for backward.",
        tables={"peaks": peaks, "steps": steps, "saved": saved},
        pictures=bar_chart("peaks", "Peak memory of a step by the blocks between checkpoints", peaks),
    ),
    "pytorch_attention": Problem(
        asks="Times of attention alone, memory before backward, and where it runs out of memory.",
        tables={"attention": preset("attention")},
        pictures=line_chart(
            "times", "Forward and backward of attention", forward_backward, over="context_length", panels="d_model"
        ),
    ),
    "torch_compile": Problem(
        asks="Attention alone and the whole model, eager and compiled.",
        tables={name: preset(name) for name in ("attention-compile", "compile-speed")},
        pictures=bar_chart("steps", "The longest iteration measured of each model, eager and compiled", by_compile),
    ),
    "flash_benchmarking": Problem(
        asks="Forward, backward and both of FlashAttention and of plain attention, for one causal sequence.",
        tables={precision: latencies(precision) for precision in ("bf16", "fp32")},
        pictures=attention_latencies,
    ),
    "distributed_communication_single_node": Problem(
        asks="All-reduce by size of the message and number of ranks.",
        tables={"collectives": preset("collectives")},
        pictures=together(
            line_chart("times", "Time of an all-reduce", collective("time"), over="message_bytes"),
            line_chart(
                "bandwidths", "Bus bandwidth of an all-reduce", collective("bus_bandwidth"), over="message_bytes"
            ),
        ),
    ),
    "naive_ddp_benchmarking": Problem(
        asks="Time of a step with an all-reduce per parameter after backward, and of communication.",
        tables=_DDP,
        pictures=communication,
    ),
    "minimal_ddp_flat_benchmarking": Problem(
        asks="One all-reduce of all gradients against one per parameter.", tables=_DDP, pictures=communication
    ),
    "ddp_overlap_individual_parameters_benchmarking": Problem(
        asks="All-reduces during backward against all-reduces after it. Traces are files in the store (step.trace).",
        tables=_DDP,
        pictures=communication,
    ),
    "optimizer_state_sharding_accounting": Problem(
        asks="Memory by category with and without sharding of the optimizer state; time of a step.",
        tables={
            "sharding": preset("sharding"),
            "stages": stages,
            "ddp-memory": preset("ddp-memory"),
            "times": ddp_times,
        },
        pictures=memory_by_moment,
    ),
    "fsdp_accounting": Problem(
        asks="What sharding of weights, gradients and state saves; whether gathers end in time.",
        tables={"sharding": preset("sharding"), "stages": stages, **_DDP},
        pictures=memory_by_moment,
    ),
    "parallelism_calcs": Problem(
        asks="data_parallel_calcs, fsdp_calcs, tp_calcs, fsdp_tp_calcs: ranks above which communication is the limit.",
        tables={"scaling-limits": preset("scaling-limits")},
        whole_store=True,
    ),
    "leaderboard": Problem(
        asks="A whole step of the 8B model with 32768 tokens, on two GPUs.",
        tables={"times": ddp_times, "ddp-memory": preset("ddp-memory")},
        pictures=communication,
    ),
}
"""Name in the handout -> the problem, in the order of the handout."""
