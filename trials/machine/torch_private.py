"""Everything that relies on names private to PyTorch, which the next version may change. Known: PyTorch 2.11 to 2.13.

Light modules are imported here; those that take long to import, in the functions that use them.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._autograd import DeviceType as DeviceType  # the kind of an event's device
from torch._C._autograd import _KinetoEvent
from torch._ops import OpOverload as OpOverload  # the type of torch.ops.aten.mm.default
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException
from torch._subclasses.fake_tensor import DynamicOutputShapeException as DynamicOutputShapeException
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch._subclasses.fake_tensor import unset_fake_temporarily as unset_fake_temporarily
from torch.library import Library
from torch.nn import init
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass as is_traceable_wrapper_subclass
from torch.utils._pytree import tree_map_only as tree_map_only

KinetoEvent = _KinetoEvent
"""A raw event of the profiler. Converting each to a FunctionEvent takes longer than the traced step. Work on the device
names the driver call that launched it by `correlation_id`, the operator by `linked_correlation_id`. `sequence_nr` is
the number of the autograd node that an operator creates or executes, `fwd_thread_id` the thread that created it."""
COMPILER = "torch._dynamo"
"""Module of torch.compile, imported ahead of the trials that use it."""
JOINT_PASSES = "torch._inductor.fx_passes.joint_graph"
"""Module whose import takes most of the time of the first compiled prediction."""


def _late(name: str) -> Callable[..., Any]:
    """Return a function, MODULE:NAME, of a module that takes long to import: it is imported with the first call."""

    def call(*given: Any, **named: Any) -> Any:
        return resolve_name(name)(*given, **named)

    return call


# Operators by which PyTorch computes public functions. What they save and return decides memory.
_aten = torch.ops.aten
FLASH = _aten._scaled_dot_product_flash_attention.default
FLASH_BACKWARD = _aten._scaled_dot_product_flash_attention_backward.default
EFFICIENT = _aten._scaled_dot_product_efficient_attention.default
EFFICIENT_BACKWARD = _aten._scaled_dot_product_efficient_attention_backward.default
FLASH_ON_CPU = _aten._scaled_dot_product_flash_attention_for_cpu.default
FLASH_ON_CPU_BACKWARD = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
CUDNN = _aten._scaled_dot_product_cudnn_attention.default
CUDNN_BACKWARD = _aten._scaled_dot_product_cudnn_attention_backward.default
MATH = _aten._scaled_dot_product_attention_math.default
# Which kernel takes a call has changed with the version, a string that compares as a version.
EFFICIENT_TAKES_GROUPS = torch.__version__ >= "2.14"
"""Whether the memory-efficient kernel takes fewer heads of keys than of queries."""
CUDNN_TAKES_ANY_DROPOUT = torch.__version__ < "2.12"
"""Whether cuDNN's kernel takes more than whole sixteenths of dropout."""
SOFTMAX_BACKWARD = _aten._softmax_backward_data.default
LOG_SOFTMAX_BACKWARD = _aten._log_softmax_backward_data.default
GROUPED_MM = _aten._grouped_mm.default
VARLEN_BACKWARD = "torch_attn._varlen_attn_backward.default"
"""Name of an operator that exists only once its module is imported."""


def times_written(tensor: Tensor) -> int:
    """How often operators have written to a tensor in place."""
    return tensor._version


foreach_copy, foreach_divide = torch._foreach_copy_, torch._foreach_div_
"""Operate in place on a list of tensors, in one kernel."""
scaled_mm = torch._scaled_mm
"""The product of float8 matrices."""


@contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """A context in which an attribute of a module or class has this value."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


# Operators and their schemas


def schema_name(operator: OpOverload) -> str:
    """Return `namespace::name` of an operator."""
    return str(operator._schema.name)


def written_places(operator: OpOverload) -> tuple[int, ...]:
    arguments = operator._schema.arguments
    return tuple(i for i, one in enumerate(arguments) if one.alias_info is not None and one.alias_info.is_write)


def positional_names(operator: OpOverload) -> list[str]:
    return [argument.name for argument in operator._schema.arguments if not argument.kwarg_only]


def returns_view(target: object) -> bool:
    """Return whether the target of a graph's node is an operator whose result is a view."""
    schema = getattr(target, "_schema", None)
    return schema is not None and any(one.alias_info and not one.alias_info.is_write for one in schema.returns)


def all_overloads(operator: OpOverload) -> object:
    """Return the operator with all of its overloads, as PyTorch's table of FLOPs has it."""
    return operator._overloadpacket


@contextmanager
def kernels_replaced(kernels: Mapping[str, Callable[..., Any]], key: str) -> Iterator[None]:
    """A context in which these functions are PyTorch's operators `aten::name` for a dispatch key."""
    library = Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that a kernel is replaced
            for name, kernel in kernels.items():
                library.impl(name, kernel, key, allow_override=True)
        yield
    finally:
        library._destroy()


@contextmanager
def below_autocast_on_cpu() -> Iterator[None]:
    """A context in which operators are called below the level of `torch.autocast("cpu")`."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    with torch._C._ExcludeDispatchKeyGuard(keys):
        yield


# Storages, tensors and modules


def storage_key_of(storage: torch.UntypedStorage) -> int:
    """Return the number of a live storage; fake storages have no address."""
    return int(storage._cdata)


def is_dense(tensor: Tensor) -> bool:
    """Return whether the tensor fills its storage and is not a view."""
    return bool(is_non_overlapping_and_dense_or_false(tensor)) and not tensor._is_view()


def parameters_in(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """Return the module's own weights, to be replaced in place: `Module.to` cannot replace fake tensors."""
    return module._parameters


def buffers_in(module: nn.Module) -> dict[str, Tensor | None]:
    """Return the module's own buffers, to be replaced in place."""
    return module._buffers


@contextmanager
def calls_wrapped(
    modules: Sequence[nn.Module], wrap: Callable[[int, Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """A context in which each module is called through `wrap(number, call)`, also if it is compiled. torch.compile
    would trace a hook into the graph."""
    compiled = [module._compiled_call_impl for module in modules]
    for number, module in enumerate(modules):
        module._compiled_call_impl = wrap(number, module._compiled_call_impl or module._call_impl)
    try:
        yield
    finally:
        for module, call in zip(modules, compiled, strict=True):
            module._compiled_call_impl = call


checkpointed = _late("torch.distributed.algorithms._checkpoint.checkpoint_wrapper:checkpoint_wrapper")
"""Return the module wrapped so that backward recomputes it, with the state of the module itself. The options are those
of `torch.utils.checkpoint.checkpoint`."""


def unset_random_weights() -> AbstractContextManager[None]:
    """A context in which truncated normal weights keep any values: PyTorch draws until in range, as no fake ever is."""
    return replaced(init, "_no_grad_trunc_normal_", lambda tensor, *_, **__: tensor)


# Autograd


backward_node: Callable[[], Any] = torch._C._current_autograd_node
"""Return the node of autograd's graph that is running; None outside of backward."""


def latest_number() -> int:
    """Return the number of the node that forward created last."""
    return int(torch._C._autograd._get_sequence_nr()) - 1


def number_of(node: Any) -> int:
    """Return the number of a node, as autograd counts them in forward."""
    return int(node._sequence_nr())


# Memory of CUDA


record_memory_history: Callable[..., None] = torch.cuda.memory._record_memory_history
"""Make CUDA's allocator remember its actions."""
memory_snapshot: Callable[[], dict[str, Any]] = torch.cuda.memory._snapshot
"""Return what CUDA's allocator remembers: segments, blocks, actions."""


def clear_cublas_workspaces() -> None:
    """Free the workspaces of cuBLAS, which otherwise stay allocated until the process ends."""
    torch._C._cuda_clearCublasWorkspaces()


def set_allocator(settings: str) -> None:
    """Set the options of the allocator, as PYTORCH_CUDA_ALLOC_CONF does, before it has allocated anything."""
    torch._C._accelerator_setAllocatorSettings(settings)


def sleep_on(device: Any, cycles: int) -> None:
    """Queue a kernel that only waits, on the module of a kind of device such as torch.cuda."""
    device._sleep(cycles)


# torch.compile


dynamo: Callable[[], Any] = partial(import_module, "torch._dynamo")
"""Return the module of torch.compile, whose `config` has its options."""
graph_settings: Callable[[], Any] = partial(import_module, "torch._functorch.config")
"""Return the options of the partitioner into forward and backward, such as `activation_memory_budget`."""
inductor_settings: Callable[[], Any] = partial(import_module, "torch._inductor.config")
"""Return the options of Inductor, such as `compile_threads`."""
compile_counters: Callable[[], Any] = partial(resolve_name, "torch._dynamo.utils:counters")
"""Return Dynamo's counters by kind."""
inductor: Callable[[], Any] = partial(resolve_name, "torch._inductor.compile_fx:compile_fx")
"""Return the function that compiles a graph with Inductor, after an import of seconds."""
times_of_compiler = _late("torch._dynamo.utils:calculate_time_spent")
"""Return the seconds that parts of torch.compile have taken in this process, all together under `total_wall_time`."""
inductor_options = _late("torch._inductor:list_mode_options")
"""Return Inductor's options for a mode of torch.compile."""
start_compile_workers = _late("torch._inductor.async_compile:AsyncCompile.warm_pool")
"""Start the processes that compile Triton's kernels."""
inductor_cache = _late("torch._inductor.runtime.cache_dir_utils:cache_dir")
"""Return the folder of Inductor's cache."""


# Ahead-of-time graphs, for predictions


joint_passes = _late("torch._inductor.fx_passes.joint_graph:joint_graph_passes")
"""Apply Inductor's passes on graphs of forward and backward together."""
partitioned = _late("torch._functorch.partitioners:min_cut_rematerialization_partition")
"""Return forward and backward by Inductor's partitioner."""
without_python_code = partial(_late("torch.fx._lazy_graph_module:_use_lazy_graph_module"), True)
"""A context in which graphs are lazy, as in torch.compile: else each pass generates unused Python code."""


def trace_ahead(
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    *,
    compiler: Callable[..., Any],
    partition: Callable[..., Any],
) -> None:
    """Trace a function of fake tensors as torch.compile would, for the compiler and the partitioner given."""
    from torch._functorch.aot_autograd import aot_function
    from torch._inductor.decomposition import select_decomp_table

    with without_python_code():
        aot_function(
            function,
            fw_compiler=compiler,
            bw_compiler=compiler,
            partition_fn=partition,
            decompositions=select_decomp_table(),
            keep_inference_input_mutations=True,
        )(*inputs)


@contextmanager
def tagged(contexts: Callable[[], Any]) -> Iterator[None]:
    """A context in which a traced graph is marked as torch.compile marks a checkpoint with these contexts: what the
    partitioner has to save, and what it may compute again."""
    from torch.fx.traceback import preserve_node_meta

    marking, _ = contexts()  # of forward, and of what is computed again
    marking.ac_graph_id = 0  # the number of the checkpoint in the graph: a block has one
    with preserve_node_meta(), marking:
        yield


def takes_list(function: Callable[[list[Any]], list[Any]]) -> Callable[..., Any]:
    """Mark a compiled function: it takes its arguments as one list."""
    function._boxed_call = True  # type: ignore[attr-defined]
    return function


# torch.distributed


default_store = _late("torch.distributed.distributed_c10d:_get_default_store")
"""The store through which the ranks of this process's group have found each other."""


def functional_collectives() -> Any:
    """Return the operators by which DTensor communicates."""
    return torch.ops._c10d_functional


def ranks_of_group(argument: object) -> list[int] | None:
    """Return the ranks in the group that an operator's argument names; None if it names none."""
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import GroupName

    if isinstance(argument, torch.ScriptObject) and "ProcessGroup" in str(argument._type()):
        return list(dist.get_process_group_ranks(dist.ProcessGroup.unbox(argument)))
    if isinstance(argument, str):
        try:
            found = torch._C._distributed_c10d._resolve_process_group(GroupName(argument))
        except RuntimeError:  # another text, such as the operation
            return None
        return list(dist.get_process_group_ranks(found))
    return None


def weight_groups(module: Any) -> list[Any]:
    """Return the groups of weights that `fully_shard` gathers together for a module."""
    state = module._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [group for group in [state._fsdp_param_group] if group is not None]  # PyTorch 2.11


def drop_unsent_gradients(group: Any) -> None:
    """Drop what backward has added up in a group of weights for a later reduce-scatter."""
    group._partial_reduce_output = None
    for parameter in group.fsdp_params:
        parameter.unsharded_accumulated_grad = None


def shares_of(optimizer: Any) -> list[list[dict[str, Any]]]:
    """Return the parameter groups of each rank by ZeroRedundancyOptimizer."""
    return list(optimizer._partition_parameters())


def assigned_buckets(tensors: list[Tensor], limits: list[int]) -> list[list[int]]:
    """Return the indices of the tensors in each of DistributedDataParallel's buckets."""
    from torch._C._distributed_c10d import _compute_bucket_assignment_by_size

    return list(_compute_bucket_assignment_by_size(tensors, limits, [False] * len(tensors))[0])


class ChunksOnDemand:
    """Stands in for `_chunk_with_empty`, which makes the chunks of all ranks. This makes a chunk when it is used: of a
    thousand, FSDP uses the first and that of its own rank."""

    def __init__(self, tensor: Tensor, num_chunks: int, dim: int) -> None:
        self._tensor, self._dim = tensor, dim
        self._size = -(-tensor.size(dim) // num_chunks)

    def __getitem__(self, index: int) -> Tensor:
        left = self._tensor.size(self._dim) - index * self._size
        if left <= 0:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, index * self._size, min(self._size, left))


@contextmanager
def fake_process_group(rank: int, world_size: int) -> Iterator[None]:
    """A context in which this process is a rank of a group whose other ranks do not exist; nothing is sent."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp._fully_shard import _fsdp_param, _fully_shard
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    try:
        mesh_of_reshard = "_get_post_forward_mesh_info"  # makes the mesh of `reshard: 2`
        with (
            replaced(_fully_shard, mesh_of_reshard, without_fakes(getattr(_fully_shard, mesh_of_reshard))),
            replaced(_fsdp_param, "_chunk_with_empty", ChunksOnDemand),
            replaced(DeviceMesh, "__init__", without_fakes(DeviceMesh.__init__)),
        ):
            yield
    finally:
        dist.destroy_process_group()
        # What DTensor remembers names groups that no longer exist, and a later mesh of the same ranks would find it.
        _clear_sharding_prop_cache()


def without_fakes(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with real tensors inside: the ranks of meshes are read."""

    def made(*given: Any, **named: Any) -> Any:
        with unset_fake_temporarily():
            return make(*given, **named)

    return made


def constants(most: int) -> AbstractContextManager[None]:
    """A context in which a fake tensor of known values keeps them, if it has no more than this many."""
    return replaced(fake_tensor, "CONSTANT_NUMEL_LIMIT", most)


def no_log_of_fake_operators() -> AbstractContextManager[None]:
    """A context in which PyTorch does not log the traceback of a fake operator that fails."""
    return replaced(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)
