"""Which collectives of fully_shard the computation waits for: hand-made events of a GPU, and steps with gloo."""

from dataclasses import replace

import pytest
import torch
from torch.profiler import record_function

from lmsweep.trials.distributed.traffic.block_waits import Needed, kind_of, needed_on_cpu, needed_on_gpu
from lmsweep.trials.distributed.traffic.wait_rows import REASONS, wait_rows
from lmsweep.trials.profiling.events import DeviceEvent, HostEvent
from lmsweep.trials.profiling.torch_trace import events_of, ranges_traced
from lmsweep.trials.results.measurement import Measurement, Wait

MAIN, AUTOGRAD = 11, 22
COMPUTE, GATHER, SCATTER = 7, 20, 24
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Step:
    """Events as PyTorch's profiler has them on a GPU: ranges and calls in threads, kernels in streams."""

    def __init__(self) -> None:
        self.hosts: list[HostEvent] = []
        self.devices: list[DeviceEvent] = []

    def range(self, name: str, start: int, end: int, thread: int = MAIN) -> None:
        self.hosts.append(HostEvent(f"FSDP::{name}", thread, start, end, is_annotation=True))

    def kernel(self, name: str, launched: int, start: int, end: int, stream: int = COMPUTE, thread: int = MAIN) -> None:
        call = len(self.hosts) + 1
        self.hosts.append(HostEvent("cudaLaunchKernelExC", thread, launched, launched + 1, call=call))
        self.devices.append(DeviceEvent(name, start, end, call=call, stream=stream))


def forward_and_backward() -> Step:
    """Two blocks. The gather of blocks.1 is late in forward by the host, in backward by the link; that of blocks.0 is
    in time in backward. The scatter of blocks.1 ends in time, that of blocks.0 is what the optimizer waits for."""
    step = Step()
    step.range("pre_forward", 0, 10)
    step.range("all_gather", 1, 4)
    step.kernel(ALL_GATHER, 2, 5, 30, GATHER)
    step.range("all_gather_copy_out", 5, 9)
    step.kernel("split_with_sizes_copy", 6, 31, 33)
    step.kernel("embedding", 11, 33, 40)
    step.range("pre_forward (blocks.0)", 20, 30)
    step.range("all_gather (blocks.0)", 20, 24)
    step.kernel("copy_in", 21, 22, 24, GATHER)
    step.kernel(ALL_GATHER, 22, 30, 60, GATHER)
    step.range("all_gather_copy_out (blocks.0)", 25, 29)
    step.kernel("split_with_sizes_copy", 26, 60, 62)
    step.kernel("forward of blocks.0", 32, 62, 100)
    step.range("pre_forward (blocks.1)", 120, 130)
    step.range("all_gather (blocks.1)", 120, 124)
    step.kernel(ALL_GATHER, 122, 125, 150, GATHER)
    step.range("all_gather_copy_out (blocks.1)", 125, 129)
    step.kernel("split_with_sizes_copy", 126, 150, 152)
    step.kernel("forward of blocks.1", 132, 152, 200)
    step.range("pre_backward (blocks.1)", 140, 150, AUTOGRAD)
    step.range("all_gather (blocks.1)", 140, 144, AUTOGRAD)
    step.kernel(ALL_GATHER, 142, 160, 230, GATHER, AUTOGRAD)
    step.range("all_gather_copy_out (blocks.1)", 145, 147, AUTOGRAD)
    step.kernel("split_with_sizes_copy", 146, 230, 232, thread=AUTOGRAD)
    step.range("backward_prefetch for blocks.0", 147, 150, AUTOGRAD)
    step.range("all_gather (blocks.0)", 148, 150, AUTOGRAD)
    step.kernel(ALL_GATHER, 149, 231, 260, GATHER, AUTOGRAD)
    step.kernel("backward of blocks.1", 155, 232, 300, thread=AUTOGRAD)
    step.range("post_backward_reduce (blocks.1)", 160, 165, AUTOGRAD)
    step.kernel("chunk_cat", 161, 300, 302, thread=AUTOGRAD)
    step.kernel(REDUCE_SCATTER, 162, 303, 330, SCATTER, AUTOGRAD)
    step.range("pre_backward (blocks.0)", 170, 180, AUTOGRAD)
    step.range("all_gather_copy_out (blocks.0)", 171, 173, AUTOGRAD)
    step.kernel("split_with_sizes_copy", 172, 302, 304, thread=AUTOGRAD)
    step.kernel("backward of blocks.0", 181, 304, 360, thread=AUTOGRAD)
    step.range("post_backward_reduce (blocks.0)", 190, 195, AUTOGRAD)
    step.kernel("chunk_cat", 191, 360, 362, thread=AUTOGRAD)
    step.kernel(REDUCE_SCATTER, 192, 363, 400, SCATTER, AUTOGRAD)
    step.kernel("div", 193, 400, 401, SCATTER, AUTOGRAD)
    step.range("root_post_backward_callback", 196, 199, AUTOGRAD)
    step.kernel("adamw", 210, 402, 410)
    return step


def found() -> dict[tuple[str, str, str], Needed]:
    step = forward_and_backward()
    return {(one.kind, one.block, one.phase): one for one in needed_on_gpu(step.hosts, step.devices)}


def test_a_gather_is_late_by_the_time_in_which_its_block_could_have_begun():
    late = {key: one.late for key, one in found().items()}
    assert late == {
        ("all_gather", "root", "forward"): 30 - 6,  # nothing ran before
        ("all_gather", "blocks.0", "forward"): 60 - 40,  # the embedding ended at 40
        ("all_gather", "blocks.1", "forward"): 150 - 126,  # the host launched what needs it at 126
        ("all_gather", "blocks.1", "backward"): 230 - 200,
        ("all_gather", "blocks.0", "backward"): 0,  # it ended at 260, and backward of blocks.1 at 300
        ("reduce_scatter", "blocks.1", "backward"): 0,
        ("reduce_scatter", "blocks.0", "backward"): 400 - 362,
    }
    assert found()["reduce_scatter", "blocks.1", "backward"].needed_by == "blocks.0"
    assert found()["reduce_scatter", "blocks.0", "backward"].needed_by == "optimizer"


def test_without_an_optimizer_the_last_scatter_is_needed_when_the_computation_ends():
    step = forward_and_backward()
    step.devices.pop()
    last = needed_on_gpu(step.hosts, step.devices)[-1]
    assert (last.needed_by, last.late) == ("optimizer", 400 - 362)


def test_a_gather_that_the_host_launches_late_is_distinguished_from_a_slow_link():
    step = forward_and_backward()
    rows = rows_of([needed_on_gpu(step.hosts, step.devices)])
    causes = {(row.kind, row.block, row.phase): [round(getattr(row, name) * 1e9) for name in REASONS] for row in rows}
    assert causes["all_gather", "root", "forward"] == [0, 0, 0, 24], "nothing could have begun before"
    assert causes["all_gather", "blocks.0", "forward"] == [0, 0, 0, 20]
    assert causes["all_gather", "blocks.1", "forward"] == [24, 0, 0, 0], "the device was ready for it at 60"
    assert causes["all_gather", "blocks.1", "backward"] == [0, 0, 0, 30]
    assert causes["reduce_scatter", "blocks.0", "backward"] == [0, 1, 0, 37]


def rows_of(ranks: list[list[Needed]], *, same_ranks: bool = True) -> list[Wait]:
    return [row for row in wait_rows(ranks, same_ranks=same_ranks) if isinstance(row, Wait)]


ONE = Needed(
    kind="all_gather",
    block="blocks.0",
    phase="forward",
    needed_by="blocks.0",
    possible=130,
    issued=130,
    began=140,
    ended=200,
    needed=100,
)


def test_a_wait_is_divided_at_its_launch_its_begin_and_the_begin_on_the_last_rank():
    other = replace(ONE, possible=150, issued=150, began=160, needed=190)
    mine, theirs = rows_of([[ONE], [other]])
    parts = [[round(getattr(row, name) * 1e9) for name in ("late", *REASONS)] for row in (mine, theirs)]
    assert parts == [[100, 30, 10, 20, 40], [10, 0, 0, 0, 10]]
    (early, _) = rows_of([[replace(ONE, possible=60)], [other]])
    assert [round(getattr(early, name) * 1e9) for name in REASONS] == [70, 0, 0, 30], "it would have ended at 130"
    (alone, _) = rows_of([[ONE], [other]], same_ranks=False)
    assert (alone.late_rank, round(alone.late_link * 1e9)) == (None, 60)


def test_the_sums_are_those_of_the_rank_that_waits_longest():
    rows = list(wait_rows([[replace(ONE, needed=190)], [ONE, replace(ONE, needed=300)]], same_ranks=True))
    values = {row.metric: row.samples for row in rows if isinstance(row, Measurement)}
    assert values["late_calls"] == (1,)
    assert values["late_time"] == pytest.approx((100e-9,))
    assert sum(values[name][0] for name in REASONS) == pytest.approx(100e-9)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (ALL_GATHER, "all_gather"),
        (REDUCE_SCATTER, "reduce_scatter"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
        ("ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs)", "all_gather"),
        ("gloo:all_gather", "all_gather"),
        ("aten::mm", None),
    ],
)
def test_a_collective_is_known_by_the_name_of_its_kernel(name: str, kind: str | None):
    assert kind_of(name) == kind


def test_on_a_cpu_each_collective_is_needed_from_its_beginning():
    hosts = [
        HostEvent("FSDP::pre_backward", MAIN, 0, 100, is_annotation=True),
        HostEvent("FSDP::all_gather (blocks.1)", MAIN, 10, 50, is_annotation=True),
        HostEvent("gloo:all_gather", 33, 20, 45),
        HostEvent("FSDP::post_backward_reduce", MAIN, 60, 90, is_annotation=True),
        HostEvent("gloo:all_reduce", 33, 65, 85),
    ]
    gather, scatter = needed_on_cpu(hosts)
    assert (gather.block, gather.phase, gather.late) == ("blocks.1", "backward", 35)
    assert (scatter.block, scatter.phase, scatter.late) == ("root", "backward", 25)


def test_a_trace_of_ranges_has_no_operators():
    def run() -> None:
        with record_function("FSDP::all_gather (blocks.0)"):
            torch.ones(2) + 1

    hosts, _ = events_of(ranges_traced(run, cuda=False))
    assert [(one.name, one.is_annotation) for one in hosts] == [("FSDP::all_gather (blocks.0)", True)]
