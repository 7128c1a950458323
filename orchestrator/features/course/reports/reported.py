"""The tables of five published reports of 2025, as subjects of `export` like the problems of 2026.

A table has the name of its report and its own, `seed2 e2e_fp32`, and so has its grid in the sweep `cs336-2025`.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial

import pandas as pd

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.reference import published
from lmsweep.analysis.tables.pivot import Table
from lmsweep.orchestrator.features.course import pictures as draw
from lmsweep.orchestrator.features.course.problem_tables import Make, with_values
from lmsweep.orchestrator.features.course.problems import Problem
from lmsweep.orchestrator.features.course.reports.layouts import Layout, parts_of
from lmsweep.orchestrator.features.course.reports.report_tables import HERE, report_table, value_of
from lmsweep.trials.spec.config import RequestError

ANSWERS = {
    "benchmarking_script": "e2e_mbair e2e_fp32 e2e_no_warmup e2e_warmup1 e2e_warmup5 run_log_small run_log_large "
    "model_table warmup_with warmup_without params_context",
    "nsys_profile": "nsys_prose nsys_kernels e2e_nsys_section torch_profiler_forward torch_profiler_forward_backward "
    "nsys_kernels_forward nsys_kernels_backward nsys_attention_trace",
    "mixed_precision_accumulation": "mixed_precision_accumulation",
    "benchmarking_mixed_precision": "toy_dtypes rmsnorm_rsqrt benchmarking_mixed_precision e2e_mixed_bf16 e2e_bf16 "
    "performance_comparison_small performance_comparison_large mixed_precision",
    "memory_profiling": "memory_full memory_mixed activation_size memory_efficiency",
    "pytorch_attention": "pytorch_attention attention_m4 attention_vanilla",
    "torch_compile": "e2e_compiled e2e_bf16_compiled attention_m4_compiled attention_compiled attention_prose "
    "transformer_compile",
    "minimal_ddp_flat_benchmarking": "ddp_flat",
}
"""Problem of the handout of 2025 -> the tables that answer it."""

_PROBLEM_OF = {table: problem for problem, tables in ANSWERS.items() for table in tables.split()}


@cache
def reported() -> dict[str, Problem]:
    """Return the tables of the reports as problems, in the order of `published()`."""
    problems = {}
    names = published()["source"] + " " + published()["table"]
    for name in names.unique():
        (source, table), rows = name.split(), published()[names == name]
        parts = [*parts_of(name, rows)]
        titles = [name, *(f"{name} ({number})" for number in range(2, len(parts) + 1))]
        # Cached, so that the figures do not make the table again.
        made = {
            title: lru_cache(1)(partial(report_table, title, *part)) for title, part in zip(titles, parts, strict=True)
        }
        problems[name] = Problem(
            asks=f"Table {table} of the report {source}, for the problem {_PROBLEM_OF[table]}.",
            tables=made,
            # No figures of a report's prose, whose numbers are of different things.
            pictures=draw.together() if table.endswith("prose") else _pictures(parts, made),
            report=source,
            answers=_PROBLEM_OF[table],
        )
    return problems


def _pictures(parts: list[tuple[Layout, pd.DataFrame]], made: Mapping[str, Make]) -> draw.Pictures:
    """Return figures of the times and the peaks of a table: lines over the context length if its rows are widths and
    context lengths, as those of attention are; else bars."""
    pictures = []
    for (layout, rows), (title, make) in zip(parts, made.items(), strict=True):
        for metric, words in _DRAWN.items():
            if (rows["metric"] == metric).sum() < _FEWEST:
                continue
            table_of, caption = partial(_drawn, value_of(metric), make), f"{words} of {title}, published and here"
            if layout.rows == ["d_model", "context_length"] and rows["context_length"].nunique() > 2:
                pictures.append(draw.line_chart(metric, caption, table_of, over="context_length", panels="d_model"))
            else:
                pictures.append(draw.bar_chart(metric, caption, table_of))
    return draw.together(*pictures)


def _drawn(value: str, make: Make, results: Results) -> Table:
    """Return the part of a table that is drawn: this value, in the columns where the store has counterparts."""
    table = make(results)
    assert isinstance(table, Table), "report_table returns no Listing"
    table = with_values(table, [value])
    here = table.cells[(table.cells["of"] == HERE) & table.cells["median"].notna()]
    if here.empty:
        raise RequestError("the store has no counterpart of its numbers")
    measured = _pair(here[table.cols])
    return replace(table, cells=table.cells[_pair(table.cells[table.cols]).isin(measured)])


def _pair(columns: pd.DataFrame) -> pd.MultiIndex:
    """Return the columns of cells, equal for both of a pair: `forward, published` and `forward, here`. `of` has the
    side."""
    return pd.MultiIndex.from_frame(columns.assign(of=""))


_DRAWN = {"time": "Times", "peak_mem": "Peak memory", "iteration_time": "Times of iterations"}
"""Metric -> how its caption begins."""
_FEWEST = 4
"""A figure is drawn for at least so many numbers."""
