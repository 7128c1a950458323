"""How CUDA's caching allocator cuts memory into blocks. To add a way, add a row to ALLOCATORS."""

ALLOCATORS: dict[str, str] = {
    "default": "",
    "expandable_segments": "expandable_segments:True",
    "max_split_128MB": "max_split_size_mb:128",
}
"""Word of the field `allocator` -> the value of PyTorch's PYTORCH_CUDA_ALLOC_CONF."""
