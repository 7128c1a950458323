"""FlashAttention-2: a forward kernel in Triton, the same tiles in PyTorch for the CPU, and backward from the saved
log-sum-exp.
"""

import math

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

TILE = 64


def tiled_forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> tuple[Tensor, Tensor]:
    """Return the output (batch, tokens, d) and the log-sum-exp of the scores (batch, tokens), tile by tile."""
    scale, outputs, sums = 1 / math.sqrt(q.shape[-1]), [], []
    for start in range(0, q.shape[1], TILE):
        queries = q[:, start : start + TILE].float() * scale
        rows = torch.arange(start, start + queries.shape[1], device=q.device)
        output = torch.zeros_like(queries)
        highest = queries.new_full(queries.shape[:2], -torch.inf)
        total = torch.zeros_like(highest)
        end = min(start + TILE, k.shape[1]) if is_causal else k.shape[1]
        for first in range(0, end, TILE):
            keys, values = k[:, first : first + TILE].float(), v[:, first : first + TILE].float()
            scores = queries @ keys.transpose(1, 2)
            if is_causal:
                columns = torch.arange(first, first + keys.shape[1], device=q.device)
                scores = scores.masked_fill(columns > rows[:, None], -torch.inf)
            new_highest = torch.maximum(highest, scores.amax(-1))
            weights = torch.exp(scores - new_highest[..., None])
            shrink = torch.exp(highest - new_highest)
            total = shrink * total + weights.sum(-1)
            output = shrink[..., None] * output + weights @ values
            highest = new_highest
        outputs.append(output / total[..., None])
        sums.append(highest + total.log())
    return torch.cat(outputs, 1).to(q.dtype), torch.cat(sums, 1)


if triton:

    @triton.jit
    def _forward_kernel(
        q_ptr, k_ptr, v_ptr, o_ptr, l_ptr, tokens, scale, D: tl.constexpr, TILE: tl.constexpr, CAUSAL: tl.constexpr
    ):
        """One program per tile of queries and per batch element; all tensors are contiguous."""
        tile, batch = tl.program_id(0), tl.program_id(1)
        offset = batch.to(tl.int64) * tokens
        rows, features = tile * TILE + tl.arange(0, TILE), tl.arange(0, D)
        q_at = (offset + rows)[:, None] * D + features[None, :]
        q = tl.load(q_ptr + q_at, mask=rows[:, None] < tokens, other=0.0)
        output = tl.zeros((TILE, D), tl.float32)
        highest = tl.full((TILE,), float("-inf"), tl.float32)
        total = tl.zeros((TILE,), tl.float32)
        end = tl.minimum((tile + 1) * TILE, tokens) if CAUSAL else tokens
        for first in range(0, end, TILE):
            columns = first + tl.arange(0, TILE)
            at = (offset + columns)[:, None] * D + features[None, :]
            k = tl.load(k_ptr + at, mask=columns[:, None] < tokens, other=0.0)
            v = tl.load(v_ptr + at, mask=columns[:, None] < tokens, other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
            seen = columns[None, :] < tokens
            if CAUSAL:
                seen = seen & (columns[None, :] <= rows[:, None])
            scores = tl.where(seen, scores, float("-inf"))
            new_highest = tl.maximum(highest, tl.max(scores, 1))
            weights = tl.exp(scores - new_highest[:, None])
            shrink = tl.exp(highest - new_highest)
            total = shrink * total + tl.sum(weights, 1)
            output = output * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
            highest = new_highest
        tl.store(o_ptr + q_at, (output / total[:, None]).to(q.dtype), mask=rows[:, None] < tokens)
        tl.store(l_ptr + offset + rows, highest + tl.log(total), mask=rows < tokens)


def triton_forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> tuple[Tensor, Tensor]:
    """The same as `tiled_forward`, by the kernel."""
    batch, tokens, d = q.shape
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    output, sums = torch.empty_like(q), torch.empty(batch, tokens, device=q.device, dtype=torch.float32)
    grid = (triton.cdiv(tokens, TILE), batch)
    _forward_kernel[grid](q, k, v, output, sums, tokens, 1 / math.sqrt(d), D=d, TILE=TILE, CAUSAL=is_causal)
    return output, sums


class FlashAttention(torch.autograd.Function):
    """Attention of (batch, tokens, d) that keeps no score matrix between forward and backward."""

    @staticmethod
    def forward(ctx, q, k, v, is_causal=False):
        forward = triton_forward if q.is_cuda and triton else tiled_forward
        output, sums = forward(q, k, v, is_causal)
        ctx.save_for_backward(q, k, v, output, sums)
        ctx.is_causal = is_causal
        return output

    @staticmethod
    def backward(ctx, grad):
        q, k, v, output, sums = ctx.saved_tensors
        scale = 1 / math.sqrt(q.shape[-1])
        scores = (q @ k.transpose(1, 2)).float() * scale
        if ctx.is_causal:
            rows, columns = (torch.arange(x.shape[1], device=q.device) for x in (q, k))
            scores = scores.masked_fill(columns > rows[:, None], -torch.inf)
        weights = torch.exp(scores - sums[..., None])
        correction = (output.float() * grad.float()).sum(-1, keepdim=True)
        grad_v = weights.to(q.dtype).transpose(1, 2) @ grad
        grad_scores = (weights * ((grad @ v.transpose(1, 2)).float() - correction) * scale).to(q.dtype)
        return grad_scores @ k, grad_scores.transpose(1, 2) @ q, grad_v, None
