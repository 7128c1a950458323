"""Adapters: small weights that are trained in place of a model's own, which are frozen. To add one, add a row to
ADAPTERS; `lmsweep.trials.model.adapted_layers` puts them into a model."""

import json
import math
from dataclasses import dataclass, fields, replace
from typing import Any

from lmsweep.trials.spec.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A way to train few weights beside each linear layer of the blocks."""

    magnitudes: bool = False
    """Whether a magnitude per output is trained too (DoRA, Liu et al. 2024)."""
    stored_bits: int | None = None
    """Bits of the frozen weights of those layers (QLoRA, Dettmers et al. 2023); None: those of their own type."""
    whole: str | None = None
    """What of a layer it needs undivided, so that ranks cannot share the layer."""

    @property
    def extra(self) -> str:
        """What pyproject.toml names the packages that it needs."""
        return "qlora" if self.stored_bits else "adapters"


ADAPTERS: dict[str, Adapter] = {
    "lora": Adapter(),
    "dora": Adapter(magnitudes=True, whole="rows, whose norms it trains"),
    "qlora": Adapter(stored_bits=4, whole="blocks of 64 weights"),  # each block has one scale
}
"""Word of the field `adapter`, beside none -> the adapter."""


@dataclass(frozen=True, kw_only=True)
class AdapterArguments:
    """The arguments of an adapter: y = W x + (alpha / rank) B A dropout(x); A is (rank, inputs), B (outputs, rank)."""

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] = ()
    """Names of linear layers; empty: all linear layers of the blocks."""
    dropout: float = 0.0


def adapter_arguments(text: str | None) -> AdapterArguments:
    """Return the arguments that `adapter_args` holds as JSON. Raises RequestError for an unknown or wrong one."""
    given: dict[str, Any] = json.loads(text) if text else {}
    names = [one.name for one in fields(AdapterArguments)]
    if unknown := [name for name in given if name not in names]:
        raise RequestError(f"adapter_args has no {unknown[0]}; it has {', '.join(names)}")
    targets = given.get("targets", ())
    if isinstance(targets, str):
        targets = targets.replace(",", " ").split()
    if not isinstance(targets, list | tuple) or not all(isinstance(one, str) for one in targets):
        raise RequestError(f"adapter_args.targets is {targets!r}; write names of linear layers, such as q_proj v_proj")
    found = replace(AdapterArguments(), **given | {"targets": tuple(targets)})
    if not _is_number(found.rank) or found.rank != int(found.rank) or found.rank < 1:
        raise RequestError(f"adapter_args.rank is {found.rank!r}; it must be a whole number from 1")
    if not _is_number(found.alpha) or found.alpha <= 0:
        raise RequestError(f"adapter_args.alpha is {found.alpha!r}; it must be more than 0")
    if not _is_number(found.dropout) or not 0 <= found.dropout < 1:
        raise RequestError(f"adapter_args.dropout is {found.dropout!r}; it must be at least 0 and less than 1")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
