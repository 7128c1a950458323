"""Raw events of PyTorch's profiler (Kineto). Converting each to a FunctionEvent takes longer than the traced step."""

from typing import Protocol

from lmsweep.trials.machine.torch_private import DeviceType


class KinetoEvent(Protocol):
    """An event in `profile().profiler.kineto_results.events()`, as far as it is read here."""

    def name(self) -> str:
        """Operator, range, driver call or kernel."""

    def device_type(self) -> DeviceType: ...

    def start_ns(self) -> int:
        """By the clock of time.time_ns()."""

    def duration_ns(self) -> int: ...

    def is_user_annotation(self) -> bool:
        """Whether it is a range named by Python code, or the device's copy of one."""

    def correlation_id(self) -> int:
        """Shared by a driver call and the device work that it launched; of an operator, its own."""

    def linked_correlation_id(self) -> int:
        """Of device work, the correlation_id of the operator that launched it."""

    def sequence_nr(self) -> int:
        """Number of the autograd node that the operator creates or executes; below 0 for none."""

    def start_thread_id(self) -> int:
        """PyTorch's own number of the thread."""

    def device_resource_id(self) -> int:
        """The operating system's number of the thread; of device work, the number of its stream."""

    def fwd_thread_id(self) -> int:
        """Of an operator of backward, PyTorch's number of the thread that ran forward."""
