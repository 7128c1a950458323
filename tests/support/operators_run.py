"""The operators that run: `with OperatorsRun() as run: ...`, and then run.names has `aten.mm.default`."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class OperatorsRun(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))
