"""Data-parallel training: wrappers that average gradients over the ranks."""

import torch
import torch.distributed as dist
from torch import nn


class DDPIndividualParameters(nn.Module):
    """All-reduces each gradient as soon as backward has computed it, while backward continues."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.pending = []
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._reduce)

    def _reduce(self, parameter):
        parameter.grad.div_(dist.get_world_size())
        self.pending.append(dist.all_reduce(parameter.grad, async_op=True))

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def finish_gradient_synchronization(self) -> None:
        for handle in self.pending:
            handle.wait()
        self.pending.clear()


class DDPBucketed(nn.Module):
    """The same, with the gradients of several parameters in one all-reduce."""

    def __init__(self, module: nn.Module, bucket_size_mb: float = 25.0) -> None:
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)
        self.buckets, self.bucket_of, self.pending = [[]], {}, []
        size = 0
        for parameter in reversed([p for p in module.parameters() if p.requires_grad]):
            bytes_of = parameter.numel() * parameter.element_size()
            if self.buckets[-1] and size + bytes_of > bucket_size_mb * 2**20:
                self.buckets.append([])
                size = 0
            size += bytes_of
            self.buckets[-1].append(parameter)
            self.bucket_of[parameter] = len(self.buckets) - 1
            parameter.register_post_accumulate_grad_hook(self._ready)
        self.left = [len(bucket) for bucket in self.buckets]

    def _ready(self, parameter):
        index = self.bucket_of[parameter]
        self.left[index] -= 1
        if not self.left[index]:
            gradients = [p.grad for p in self.buckets[index]]
            flat = torch.cat([gradient.flatten() for gradient in gradients]).div_(dist.get_world_size())
            self.pending.append((dist.all_reduce(flat, async_op=True), flat, gradients))

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def finish_gradient_synchronization(self) -> None:
        for handle, flat, gradients in self.pending:
            handle.wait()
            for gradient, reduced in zip(gradients, flat.split([p.numel() for p in gradients]), strict=True):
                gradient.copy_(reduced.view_as(gradient))
        self.pending.clear()
        self.left = [len(bucket) for bucket in self.buckets]
