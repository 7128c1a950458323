"""Suggestions for misspelt words: "did you mean ...?"."""

import difflib
from collections.abc import Iterable

LONG = 20
"""Words that are too many to read if the right one is known."""

# Names that other software uses, where the spelling alone would suggest a wrong word or none. The suggestion is the
# first of the words that is allowed in that place.
_KNOWN_ELSEWHERE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("gpu", "nvidia"), ("cuda",)),
    "float32": ("fp32",),
    "32": ("fp32",),
    "float16": ("fp16",),
    "half": ("fp16",),
    "bfloat16": ("bf16",),
    "false": ("none",),
    "no": ("none",),
    "off": ("none",),
    "true": ("block",),
    "inductor": ("block",),
    "eager": ("none", "naive"),
    "flash": ("sdpa_flash",),
    "flash_attention_2": ("sdpa_flash",),
    "cudnn": ("sdpa_cudnn",),
    **dict.fromkeys(("flash_attn_varlen_func", "flash_varlen", "varlen_attn"), ("varlen",)),
    "math": ("sdpa_math",),
    **dict.fromkeys(("zero3", "fsdp2", "fully_shard"), ("fsdp",)),
    **dict.fromkeys(("hybrid_shard", "hybrid"), ("hsdp",)),
    "adam": ("adamw_fused",),
    "adamw": ("adamw_fused",),
    "fused": ("adamw_fused",),
    "foreach": ("adamw_foreach",),
    "parameters": ("axes", "grids"),
    "params": ("axes", "grids"),
    "hyperparameters": ("axes", "grids"),
    "matrix": ("axes", "grids"),
    "space": ("axes", "grids"),
    "search_space": ("axes", "grids"),
    "sweep": ("grids",),
    "constants": ("fixed",),
    "defaults": ("fixed",),
    **dict.fromkeys(("model_size", "model_name"), ("model",)),
    **dict.fromkeys(("seq_len", "seq_length", "seqlen", "sequence_length", "max_seq_len"), ("context_length",)),
    **dict.fromkeys(("block_size", "n_ctx", "ctx", "context", "tokens"), ("context_length",)),
    **dict.fromkeys(("bs", "batch", "micro_batch_size", "per_device_train_batch_size"), ("batch_size",)),
    **dict.fromkeys(("dtype", "torch_dtype", "data_type", "amp", "autocast"), ("precision",)),
    **dict.fromkeys(("hidden_size", "hidden_dim", "n_embd", "dim", "embed_dim", "width"), ("d_model",)),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "ffn_hidden_size", "d_ffn", "d_mlp"), ("d_ff",)),
    **dict.fromkeys(("n_layer", "n_layers", "layers", "num_hidden_layers", "depth"), ("num_layers",)),
    **dict.fromkeys(("n_head", "n_heads", "heads", "num_attention_heads"), ("num_heads",)),
    **dict.fromkeys(("vocab", "n_vocab"), ("vocab_size",)),
    **dict.fromkeys(("attn", "attn_implementation", "attention_impl"), ("attention",)),
    **dict.fromkeys(("sliding_window", "attention_window", "window_size"), ("window",)),
    **dict.fromkeys(("packing", "document_mask", "doc_len", "mean_document_length"), ("document_length",)),
    **dict.fromkeys(("torch_compile", "compiled"), ("compile",)),
    **dict.fromkeys(("dynamic", "compile_dynamic"), ("dynamic_shapes",)),
    **dict.fromkeys(("regional",), ("block",)),
    **dict.fromkeys(("cuda_graph", "cuda_graphs", "cudagraphs"), ("capture",)),
    **dict.fromkeys(("gradient_checkpointing", "activation_checkpointing", "recompute"), ("checkpointing",)),
    **dict.fromkeys(("optim", "optimiser"), ("optimizer",)),
    **dict.fromkeys(("warmup", "num_warmup", "warmup_iters"), ("warmup_steps",)),
    **dict.fromkeys(("steps", "num_steps", "iters", "iterations", "repeats", "max_steps"), ("measure_steps",)),
    **dict.fromkeys(("num_processes", "runs", "repetitions"), ("processes",)),
    **dict.fromkeys(("gpus", "num_gpus", "n_gpus", "nproc_per_node", "ranks"), ("world_size",)),
    **dict.fromkeys(("num_nodes", "nnodes"), ("nodes",)),
    **dict.fromkeys(("gradient_accumulation_steps", "accumulation_steps", "grad_accum"), ("accumulate",)),
    **dict.fromkeys(("tensor_parallel", "tp_size", "tensor_parallel_size"), ("tp",)),
    **dict.fromkeys(("reshard_after_forward",), ("reshard",)),
    **dict.fromkeys(("timeout", "time_limit"), ("timeout_seconds",)),
}


def known_elsewhere(word: object, words: Iterable[str]) -> str | None:
    """Return our word, among `words`, for what other software calls `word`, or None if there is none."""
    legal = list(words)
    return next((one for one in _KNOWN_ELSEWHERE.get(str(word).lower(), ()) if one in legal), None)


def nearest(word: object, words: Iterable[str]) -> str | None:
    """Return the one of `words` that was probably meant, or None if none is similar."""
    legal = list(words)
    written = str(word).lower() if isinstance(word, bool) else str(word)
    if known := known_elsewhere(written, legal):
        return known
    swapped = (name for name in legal if sorted(name) == sorted(written))  # modle means model, not mode
    return next(swapped, None) or next(iter(difflib.get_close_matches(written.lower()[:100], legal, n=1)), None)


def choices(word: object, words: Iterable[str]) -> str:
    """Return `; did you mean bf16? (one of: fp32, bf16)`, without the list if it is long and one word is near."""
    legal = list(words)
    near = nearest(word, legal) if isinstance(word, (str, int, float)) else None
    listed = "" if near and len(legal) > LONG else f" (one of: {', '.join(legal)})"
    return (f"; did you mean {near}?" if near else "") + listed
