"""The verbs that print results: table, compare."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from lmsweep.orchestrator.commands.options import Format, Prices, StoreArgument, checked, names_of, paired, pairs
from lmsweep.orchestrator.plan_request import Rare, Text, Texts
from lmsweep.orchestrator.terminal import say, show_groups
from lmsweep.trials.analytic.flop_conventions import FlopConvention
from lmsweep.trials.spec.config import RequestError

if TYPE_CHECKING:
    from lmsweep.analysis.comparison.compare import Comparison

FLOPS = "How attention's FLOPs are counted: model (in full), or hardware (causal as half)."


def _share(text: str, option: str) -> float:
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise RequestError(f"{option} {text}: give a percentage such as 2%") from None


def table(
    store: StoreArgument = "results",
    rows: Annotated[Texts, Option(help="Fields that make the rows: model,context_length")] = [],
    cols: Annotated[Texts, Option(help="Fields that make the columns: precision,compile")] = [],
    value: Annotated[Texts, Option(help="PHASE.METRIC: forward.time, step.tflops; repeatable.")] = [],
    where: Annotated[Texts, Option(callback=paired, help="FIELD=VALUE: only these results; repeatable.")] = [],
    format: Format = "text",
    preset: Annotated[Text, Option(help="A predefined table; --list-presets names them.")] = None,
    price: Prices = [],
    flops: Annotated[FlopConvention | None, Rare(metavar="model|hardware", help=FLOPS)] = None,
    list_presets: Annotated[bool, Option("--list-presets", help="List the predefined tables.")] = False,
    plot: Annotated[bool, Option("--plot", help="Draw a bar for each number instead.")] = False,
) -> None:
    """Print how many results there are, and their numbers as a table.

    Without options, it shows everything that varies.

    \b
    Example:
      lmsweep table results --preset end-to-end
    """
    from lmsweep.analysis import api
    from lmsweep.analysis.presets import preset_groups
    from lmsweep.analysis.tables.bar_chart import bar_charts
    from lmsweep.analysis.tables.listing import Listing
    from lmsweep.analysis.tables.pivot import Table
    from lmsweep.orchestrator.commands.show_table import fits_screen, show_parts

    if list_presets:
        groups = preset_groups().items()
        show_groups({question: {name: one.question for name, one in made.items()} for question, made in groups})
        return
    conditions = pairs(where, "--where")
    found: Sequence[str | Table | Listing]
    if not (rows or cols or value or preset or price or flops) and format not in ("csv", "json"):
        as_screen = format == "text" and not plot  # else only tables, however long they are
        found = api.tables(store, where=conditions, fits=fits_screen if as_screen else lambda parts: True)
        found = found if as_screen else [one for one in found if not isinstance(one, str)]
    else:
        shown = {"rows": names_of(rows), "cols": names_of(cols), "values": value}
        found = [api.table(store, **shown, where=conditions, preset=preset, prices=price, flops=flops)]
    if not plot:
        show_parts(found, format)
        return
    drawn = [one for one in found if isinstance(one, Table)]
    if format != "text" or not drawn:
        raise RequestError(
            "--plot is for tables of rows and columns in text; leave out --format, or choose another table"
        )
    show_parts([chart for one in drawn for chart in bar_charts(one)])


def compare(
    store: StoreArgument = "results",
    other: Annotated[Text, Argument(help="A second store to compare with the first, which is the baseline.")] = None,
    baseline: Annotated[Texts, Option(callback=paired, help="FIELD=VALUE: selects the baseline; repeatable.")] = [],
    contrast: Annotated[Texts, Option(callback=paired, help="FIELD=VALUE: selects the other side; repeatable.")] = [],
    where: Annotated[Texts, Option(callback=paired, help="FIELD=VALUE: only these results; repeatable.")] = [],
    across: Annotated[Texts, Rare(help="Other fields that may differ between the sides: code,batch_size")] = [],
    value: Annotated[Texts, Option(help="PHASE.METRIC: step.time; repeatable.")] = [],
    min_effect: Annotated[
        Text, Rare(metavar="SHARE", callback=checked(_share), help="Smallest difference that counts: 2%, or 0.02.")
    ] = None,
    same_within: Annotated[
        Text, Rare(metavar="SHARE", callback=checked(_share), help="Sides that surely differ by less are the same.")
    ] = None,
    fail_on: Annotated[
        Texts, Rare(metavar="VERDICT", help="slower,ambiguous: exit with 1 if a combination has such a verdict.")
    ] = [],
    verbose: Annotated[bool, Rare("--verbose", "-v", help="Show medians, conditions and p-values, too.")] = False,
    format: Format = "text",
) -> None:
    """Say which of two selections or stores is faster, and how surely.

    Each cell has a ratio of medians, its interval and a verdict.

    \b
    Example:
      lmsweep compare results --baseline attention=naive --contrast attention=sdpa
    """
    given = {"where": where, "baseline": baseline, "contrast": contrast}
    sides = {name: pairs(texts, f"--{name}") for name, texts in given.items()}
    from lmsweep.analysis.api import compare as compare_results
    from lmsweep.analysis.comparison.compare import VERDICTS
    from lmsweep.orchestrator.commands.show_table import show_parts

    fatal = names_of(fail_on)
    for word in fatal:
        if word not in VERDICTS:
            raise RequestError(f"--fail-on {word}: no such verdict; there are: {', '.join(VERDICTS)}")
    least, same = (_share(text, "") if text else None for text in (min_effect, same_within))
    found = compare_results(
        store, other, **sides, across=names_of(across), values=value, min_effect=least, same_within=same
    )
    show_parts([found.listing() if verbose or format != "text" else found.brief()], format)
    if fatal:
        _exit_on(fatal, found)


def _exit_on(fatal: list[str], found: "Comparison") -> None:
    """Say how many combinations have a fatal verdict, or fail on one side, and exit with 1 if there are any."""
    from lmsweep.analysis.comparison.compare import WITHOUT_ANSWER

    counts = Counter(found.frame["verdict"])
    # Every cell with a result compares a measurement with itself, and there is one.
    if found.cells["itself"].sum() == len(found.frame) - counts["no result"] > 0:
        raise RequestError("--fail-on: both sides are the same measurements; `lmsweep run --fresh` measures again")
    counts["no result"] += found.unpaired[0]  # what only the first side has was not measured again
    failed = [f"{counts[one]} {one}" for one in dict.fromkeys([*fatal, "failed"]) if counts[one]]
    said = f"--fail-on {','.join(fatal)}: {', '.join(failed) or 'none'} of {counts.total()} combinations"
    if unsure := [one for one in WITHOUT_ANSWER if counts[one] and one not in fatal]:
        also = ", ".join(f"{counts[one]} {one}" for one in unsure)
        said += f"; {also}: not failed, --fail-on '{','.join([*fatal, *unsure])}' fails on them"
    say(said, error=True)  # not into a table that is redirected to a file
    if failed:
        raise typer.Exit(1)
