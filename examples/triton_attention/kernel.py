"""Attention as one Triton kernel forward, whose tile is an argument; backward recomputes the scores in PyTorch."""

import math

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None


def attend(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, *, tile: int = 64) -> Tensor:
    """Return softmax(q k^T / sqrt(d)) v, all (batch, tokens, d); d is a power of two of at least 16."""
    if triton is None or not q.is_cuda:
        raise RuntimeError("this kernel is written in Triton and needs a GPU; use device: cuda")
    return _Attention.apply(q.contiguous(), k.contiguous(), v.contiguous(), is_causal, tile)


if triton:

    @triton.jit
    def _kernel(
        q_ptr, k_ptr, v_ptr, o_ptr, l_ptr, tokens, scale, D: tl.constexpr, TILE: tl.constexpr, CAUSAL: tl.constexpr
    ):
        """One program per tile of queries and batch element. `l` is the log-sum-exp of each row of scores."""
        tile, batch = tl.program_id(0), tl.program_id(1)
        start = batch.to(tl.int64) * tokens
        rows, features = tile * TILE + tl.arange(0, TILE), tl.arange(0, D)
        here = (start + rows)[:, None] * D + features[None, :]
        q = tl.load(q_ptr + here, mask=rows[:, None] < tokens, other=0.0)
        sums = tl.zeros((TILE, D), tl.float32)
        highest = tl.full((TILE,), float("-inf"), tl.float32)
        total = tl.zeros((TILE,), tl.float32)
        end = tl.minimum((tile + 1) * TILE, tokens) if CAUSAL else tokens
        for first in range(0, end, TILE):
            columns = first + tl.arange(0, TILE)
            there = (start + columns)[:, None] * D + features[None, :]
            k = tl.load(k_ptr + there, mask=columns[:, None] < tokens, other=0.0)
            v = tl.load(v_ptr + there, mask=columns[:, None] < tokens, other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
            seen = columns[None, :] < tokens
            if CAUSAL:
                seen = seen & (columns[None, :] <= rows[:, None])
            scores = tl.where(seen, scores, float("-inf"))
            higher = tl.maximum(highest, tl.max(scores, 1))
            weights = tl.exp(scores - higher[:, None])
            shrink = tl.exp(highest - higher)
            total = shrink * total + tl.sum(weights, 1)
            sums = sums * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
            highest = higher
        tl.store(o_ptr + here, (sums / total[:, None]).to(q.dtype), mask=rows[:, None] < tokens)
        tl.store(l_ptr + start + rows, highest + tl.log(total), mask=rows < tokens)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal, tile):
        batch, tokens, d = q.shape
        output, sums = torch.empty_like(q), torch.empty(batch, tokens, device=q.device)
        grid = (triton.cdiv(tokens, tile), batch)
        _kernel[grid](q, k, v, output, sums, tokens, 1 / math.sqrt(d), D=d, TILE=tile, CAUSAL=is_causal)
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
        return grad_scores @ k, grad_scores.transpose(1, 2) @ q, grad_v, None, None
