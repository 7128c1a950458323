"""What each flag means: those of measurements, of published numbers, and computed ones. Imports no pandas."""

from lmsweep.trials.results.outcome import Flag

CAVEATS: dict[str, str] = {
    "suspected_tf32": "labelled float32, but some of this report's times on this device imply a rate above the "
    "datasheet's float32 peak: the matrix products probably ran in TF32",
    "backward_by_subtraction": "not measured, but computed as forward and backward minus forward; the standard "
    "deviation is the root of the sum of both squares",
    "unit_unknown": "the document gives no unit; if `unit` is null, none could be inferred and the value is as printed",
    "forward_keeps_graph": "forward alone, with the autograd graphs of earlier iterations still in memory",
    "not_synchronized": "probably timed without synchronizing, so that part of forward's time is counted in backward",
    "each_or_total_unknown": "the document does not state whether this is one iteration or the sum of several",
    "includes_optimizer": "labelled forward and backward, but probably includes the optimizer",
    "wide_spread": "the standard deviation is at least half of the mean: probably one slow iteration among few",
    "compiled_while_timed": "torch.compile compiled during a timed iteration",
    "host_bound": "twice the context length takes the same time within 5 %: the host was the bottleneck",
    "fell_back_to_eager": "labelled compiled, but memory and time are those of the eager row",
    "zero_for_unknown": "printed as 0 although nothing was measured",
    "axes_swapped": "d_model and context_length are as printed, but probably interchanged",
    "repeated": "repeats a number printed elsewhere in the document; do not count it twice",
    "derived": "computed from other numbers of the document",
}
"""Flag of a number in a public report -> what it means; `published` also has a column of each name."""

INFERENCE = "inferred"
CONDITIONS: dict[str, str] = {
    INFERENCE: "a condition is not stated beside the number, but follows from elsewhere in its document",
    "from_rate": "computed from a published rate; for attention by the FLOPs that the source counts (causal attention "
    "as half, backward as 2.5 x forward), for a whole step by lmsweep's model convention",
    "read_off_figure": "read off the labels of a figure, in whole TFLOP/s",
    "shape_inferred": "the batch size or the model's dimensions do not stand beside the number: they are those of the "
    "benchmark that the source names, or of the paper",
    "layer_alone": "one layer alone; lmsweep's has a norm and a loss behind it, and an embedding and a head of the "
    "vocabulary around it, which should be small",
    "other_kernel": "measured with kernels that lmsweep does not have, or another way to scale float8",
}
"""Flags that say how a published number was obtained, and do not question it -> what they mean."""

ABOVE_PEAK = "above_peak"
"""A mark for a rate above the datasheet's peak whose time is possible."""

ADVICE_OF = {
    **CAVEATS,
    **CONDITIONS,
    # Of `host_bound`, which published numbers have too, this meaning replaces theirs.
    **{flag.value: flag.advice for flag in Flag},
    ABOVE_PEAK: "The rate is above the peak of the device's datasheet, but the time is possible: this convention "
    "counts products that the kernel does not compute. The model convention counts the masked half of causal "
    "attention; the hardware convention counts scores computed again, which only fused kernels do. Choose the "
    "other with --flops.",
}
"""Flag -> what it means, and what to do."""
