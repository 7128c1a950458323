"""Check the GPU clock against sleeps of known ratio, Triton's do_bench, and the durations of the kernels themselves.

python benchmarks/fidelity.py
"""

from collections.abc import Callable
from statistics import median

import torch
from torch.nn.functional import scaled_dot_product_attention
from triton.testing import do_bench

from lmsweep.trials.profiling.device_time import TracedClock, trace_device
from lmsweep.trials.timing.clock import EventClock, Phase, time_iteration

ITERATIONS = 30
PAIRS = 15
CYCLES = 20_000_000


def seconds(run: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> float:
    """Median seconds of a run, each after an untimed `prepare`, by the clock that trials use."""
    clock = EventClock("cuda")
    samples = []
    for i in range(ITERATIONS + 10):
        prepare()
        iteration = time_iteration([Phase(name="run", run=run)], clock)
        if i >= 10:
            samples.append(iteration.step)
    return median(samples)


def main() -> None:
    print(torch.cuda.get_device_name(), torch.__version__)
    once = seconds(lambda: torch.cuda._sleep(CYCLES))
    twice = seconds(lambda: torch.cuda._sleep(2 * CYCLES))
    print(f"sleep(2N) / sleep(N): {twice / once:.4f} (N: {once * 1e3:.3f} ms)")

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    q, k, v = (torch.randn(8, 32, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    cache = torch.empty(256 * 2**20, dtype=torch.int8, device="cuda")
    work: dict[str, Callable[[], object]] = {
        "GEMM 8192^3 bf16": lambda: a @ b,
        "SDPA 8x32x4096x128 bf16": lambda: scaled_dot_product_attention(q, k, v, is_causal=True),
    }
    for name, run in work.items():
        # Alternate short bursts, because GPU clocks depend on power draw. Clear the L2 cache as do_bench does.
        pairs = [
            (seconds(run, cache.zero_), do_bench(run, warmup=20, rep=60, return_mode="median") / 1e3)
            for _ in range(PAIRS)
        ]
        ours, theirs = (median(side) for side in zip(*pairs, strict=True))
        print(f"{name}: ours {ours * 1e3:.4f} ms, do_bench {theirs * 1e3:.4f} ms, ratio {ours / theirs:.4f}")
        kernels, device = trace(run)
        print(f"  of one traced run: kernels {kernels * 1e3:.4f} ms, device time {device * 1e3:.4f} ms")


def trace(run: Callable[[], object]) -> tuple[float, float]:
    """For one run: seconds with a kernel running, and seconds between the CUDA events around it."""
    phase = Phase(name="run", run=run)
    iterations = []

    def timed(clock: TracedClock) -> None:
        iterations.append(time_iteration([phase], clock))

    first, *_ = trace_device(timed, device_type="cuda", trial_seconds=0.0)
    return first.step, iterations[1].step  # the trace of the first is left out


if __name__ == "__main__":
    main()
