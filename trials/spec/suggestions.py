"""Suggestions for misspelt words: "did you mean ...?"."""

import difflib
from collections.abc import Iterable

MOST_LISTED = 20
"""Maximum number of legal words that a message lists if one of them is a likely correction."""

_KNOWN_ELSEWHERE: dict[str, str] = {
    "cuda": "gpu nvidia",
    "fp32": "float32 32",
    "fp16": "float16 half",
    "bf16": "bfloat16",
    "none": "false no off eager",
    "block": "true inductor regional",
    "naive": "eager",
    "sdpa_flash": "flash flash_attention_2",
    "sdpa_cudnn": "cudnn",
    "varlen": "flash_attn_varlen_func flash_varlen varlen_attn",
    "sdpa_math": "math",
    "fsdp": "zero3 fsdp2 fully_shard",
    "hsdp": "hybrid_shard hybrid",
    "adamw_fused": "adam adamw fused",
    "adamw_foreach": "foreach",
    "axes": "parameters params hyperparameters matrix space search_space",
    "grids": "parameters params hyperparameters matrix space search_space sweep",
    "fixed": "constants defaults",
    "model": "model_size model_name",
    "context_length": "seq_len seq_length seqlen sequence_length max_seq_len block_size n_ctx ctx context tokens "
    "context_len ctx_len ctx_length context_size max_context_length max_context max_len max_length max_seq_length "
    "max_sequence_length max_position_embeddings max_position n_positions segment_len segment_length maxlen",
    "batch_size": "bs batch micro_batch_size per_device_train_batch_size",
    "precision": "dtype torch_dtype data_type amp autocast",
    "d_model": "hidden_size hidden_dim n_embd dim embed_dim width model_dim dim_model emb_dim embedding_dim "
    "embedding_size embed_size emb_size d_embed d_emb n_embed hidden d_hidden",
    "d_ff": "intermediate_size ffn_dim ffn_hidden_size d_ffn d_mlp ff_dim dim_ff mlp_dim mlp_size dim_feedforward "
    "d_feedforward ffn_hidden intermediate_dim ffn_size",
    "num_layers": "n_layer n_layers layers num_hidden_layers depth num_layer nlayers num_blocks n_blocks",
    "num_heads": "n_head n_heads heads num_attention_heads num_head nhead nheads",
    "vocab_size": "vocab n_vocab num_tokens n_tokens ntokens ntoken num_vocab vocabulary_size vocab_len vocab_dim",
    "attention": "attn attn_implementation attention_impl",
    "window": "sliding_window attention_window window_size",
    "lengths": "document_length token_counts sequence_lengths packing document_mask doc_len mean_document_length",
    "batching": "group_by_length padding_free sample_packing use_dynamic_bsz",
    "batch_tokens": "max_tokens ppo_max_token_len_per_gpu token_budget max_token_len",
    "allocator": "pytorch_cuda_alloc_conf alloc_conf",
    "compile": "torch_compile compiled",
    "dynamic_shapes": "dynamic compile_dynamic",
    "capture": "cuda_graph cuda_graphs cudagraphs",
    "checkpointing": "gradient_checkpointing activation_checkpointing recompute",
    "optimizer": "optim optimiser",
    "warmup_steps": "warmup num_warmup warmup_iters",
    "measure_steps": "steps num_steps iters iterations repeats max_steps",
    "processes": "num_processes runs repetitions",
    "world_size": "gpus num_gpus n_gpus nproc_per_node ranks",
    "nodes": "num_nodes nnodes",
    "accumulate": "gradient_accumulation_steps accumulation_steps grad_accum",
    "tp": "tensor_parallel tp_size tensor_parallel_size",
    "reshard": "reshard_after_forward",
    "timeout_seconds": "timeout time_limit",
    "torch_version": "torch pytorch",
    "cuda_version": "cuda",
    "device_name": "gpu gpu_name",
    "host_cpu": "cpu",
}
"""Our word -> the names that other software uses, where the spelling alone would suggest a wrong word or none."""


def known_elsewhere(word: object, words: Iterable[str]) -> str | None:
    """Return our word, among `words`, for what other software calls `word`, or None if there is none."""
    legal = list(words)
    said = str(word).lower()
    return next((one for one, theirs in _KNOWN_ELSEWHERE.items() if one in legal and said in theirs.split()), None)


def nearest(word: object, words: Iterable[str]) -> str | None:
    """Return the one of `words` that was probably meant, or None if none is similar."""
    legal = list(words)
    written = str(word).lower() if isinstance(word, bool) else str(word)
    if known := known_elsewhere(written, legal):
        return known
    swapped = (name for name in legal if sorted(name) == sorted(written))  # modle means model, not mode
    return next(swapped, None) or next(iter(difflib.get_close_matches(written.lower()[:100], legal, n=1)), None)


def did_you_mean(word: object, words: Iterable[str]) -> str:
    """Return `; did you mean bf16?`, or nothing if no word is similar."""
    return f"; did you mean {near}?" if (near := nearest(word, words)) else ""


def device_meant(text: str, names: Iterable[str]) -> str:
    """Return `did you mean H100? `, of a name or one of its words, or nothing if none is similar."""
    meant = {word.lower(): word for name in names for word in (name, *name.split())}
    near = nearest(text.lower(), meant)
    return f"did you mean {meant[near]}? " if near else ""


def choices(word: object, words: Iterable[str]) -> str:
    """Return `; did you mean bf16? (one of: fp32, bf16)`, without the list if it is long and one word is near."""
    legal = list(words)
    near = did_you_mean(word, legal) if isinstance(word, (str, int, float)) else ""
    return near if near and len(legal) > MOST_LISTED else f"{near} (one of: {', '.join(legal)})"
