"""A trial's software as text, exact versions sorted by name: `torch==2.12.0 triton==3.7.1`."""

PINNED_FIELDS: dict[str, tuple[str, ...]] = {
    "torch": ("torch_version", "cuda_version", "triton_version"),
    "triton": ("triton_version",),
}
"""Package -> the fields of a fingerprint that its release determines."""


def pinned(software: str | None) -> dict[str, str]:
    """Return the version of each package that the text names."""
    parts = (one.partition("==") for one in (software or "").split())
    return {name.partition("[")[0]: version for name, _, version in parts}


def decided_fields(software: str | None) -> frozenset[str]:
    """Return the fields of a fingerprint that follow from the text. The others follow from the installed packages."""
    return frozenset(field for name in pinned(software) for field in PINNED_FIELDS.get(name, ()))
