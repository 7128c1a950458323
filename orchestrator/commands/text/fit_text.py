"""Writes what fits on which GPU as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict

import pandas as pd

from lmsweep.analysis.tables.listing import Listing, Tone
from lmsweep.orchestrator.fitting.fit import Fit
from lmsweep.orchestrator.fitting.fit_request import FitRequest
from lmsweep.trials.spec.quantities import gib

TONES: dict[str, Tone] = {"yes": "good", "no": "bad"}
MOST_SOURCES = 6


def fits_as_json(found: Sequence[Fit]) -> list[dict[str, object]]:
    """Return one entry per line, the best first; `reason` says why something is null."""
    return [asdict(one) | {"fits": one.fits, "missing_bytes": one.missing_bytes} for one in found]


def fits_listing(request: FitRequest, found: Sequence[Fit]) -> Listing:
    """Return one line per GPU, number of GPUs and method, the best first."""
    columns = ["GPU", "GPUs", "method", "checkpointing", "fits", "batch", "peak", "tokens/s", "95 % interval"]
    columns += ["hours", "dollars"] * bool(request.tokens) if request.prices else ["hours"] * bool(request.tokens)
    columns.append("what would fit")
    rows = [[_cells(one)[name] for name in columns] for one in found]
    return Listing(
        title=f"{request.model} with {request.context} tokens of context, as predicted",
        frame=pd.DataFrame(rows, columns=columns, dtype=object),
        keys=columns[:4],
        units={},
        tones=TONES,
        notes=_notes(request, found),
    )


def _cells(one: Fit) -> dict[str, str]:
    between = one.tokens_per_second_between
    missing = f"no, {gib(one.missing_bytes)} too much" if one.missing_bytes else "no, by gaps between blocks"
    return {
        "GPU": one.device_name,
        "GPUs": str(one.gpus),
        "method": one.method,
        "checkpointing": one.checkpointing,
        "fits": "?" if one.fits is None else "yes" if one.fits else missing,
        "batch": str(one.batch or "-"),
        "peak": gib(one.peak_bytes) if one.peak_bytes else "?",
        "tokens/s": f"{one.tokens_per_second:,.0f}" if one.tokens_per_second else "-",
        "95 % interval": f"{between[0]:,.0f} to {between[1]:,.0f}" if between else "-",
        "hours": f"{one.hours:,.3g}" if one.hours else "-",
        "dollars": f"{one.dollars:,.0f}" if one.dollars else "-",
        "what would fit": (one.reason or "?") if one.fits is None else one.remedy or "",
    }


def _notes(request: FitRequest, found: Sequence[Fit]) -> list[str]:
    precision = next((text for text in request.settings if text.startswith("precision=")), None)
    notes = [
        "predictions, without a GPU; batch: sequences of each GPU, the largest that fits; peak: of the allocator's "
        "blocks at that batch, or at one sequence",
        f"weights, gradients and AdamW's state: {precision or 'in bfloat16 (precision=bf16_pure)'}; several GPUs share "
        "them by fsdp",
    ]
    sources = dict.fromkeys(f"{one.device_name}: {one.source}" for one in found if one.source and one.gpus == 1)
    return [*notes, *list(sources)[:MOST_SOURCES]]
