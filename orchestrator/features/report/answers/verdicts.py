"""The answer to a question of the page: each option against the baseline, cell by cell."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pandas as pd

from lmsweep.analysis.comparison.claim import CLAIM_COLUMNS, Claim, claim_of
from lmsweep.analysis.comparison.compare import Comparison, ResultKey, compare
from lmsweep.analysis.comparison.pairing import ApartError, Obstacle
from lmsweep.analysis.tables.pivot import varying_keys
from lmsweep.orchestrator.features.report.answers.question import DEVICE, Option, Question
from lmsweep.trials.results.roles import determines
from lmsweep.trials.spec.config import RequestError

COPY_MARK = "/copy "
"""Part of the identifiers of copied rows."""

OPTION = "option"
"""The column with the name of the option that a cell compares with the baseline."""

KEPT = ("baseline", "contrast", "ratio_low", "ratio_high", "p", *CLAIM_COLUMNS)
"""The columns of `Comparison.cells` that an answer keeps for each cell."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    question: Question
    cells: pd.DataFrame
    """A row for each cell of each option: the columns of its result, OPTION, KEPT, `gain`, `gain_low`,
    `gain_high`, and the ResultKey of both results, `baseline_key` and `option_key`. The gain of a time is how many
    times as fast the option is as the baseline, that of another value how many times as much it needs."""
    keys: list[str]
    """The columns in which cells of one option differ."""
    unit: str
    apart: Sequence[Obstacle] = ()
    """The fields that prevent pairing, if no option has a cell in common with the baseline."""
    changes: Mapping[str, Claim] = field(default_factory=dict)
    """For ordered options: the option at which a value changed -> the change, against the option before."""
    refused: tuple[str, Sequence[str]] = ("", ())
    """If nothing could be compared: the headline, and sentences about what helps."""

    @property
    def timed(self) -> bool:
        return self.unit == "s"

    @property
    def baseline(self) -> str:
        return self.question.options[0].name

    def of(self, option: str) -> pd.DataFrame:
        return self.cells[self.cells[OPTION] == option]

    def claim(self, option: str, cells: pd.DataFrame | None = None, *, against: str = "") -> Claim:
        """Return the claim of an option's cells. cells: a selection of them, or the cells against another baseline."""
        if cells is None:
            columns = [name for name in CLAIM_COLUMNS if name in self.cells]
            cells = self.cells.loc[self.cells[OPTION] == option, columns]
        return claim_of(cells, option, against or self.baseline, timed=self.timed)


def answer(question: Question) -> Answer | None:
    """Return the answer; None if no option has a cell in common with the baseline, unless two devices are asked for."""
    baseline, *others = question.options
    try:
        compared = _comparisons(question)
    except RequestError as error:
        is_of_two_devices = question.fields == (DEVICE,) and len(others) == 1
        return _refused(question, baseline, others[0], error) if is_of_two_devices else None
    cells = pd.concat([_cells(found, options) for found, options in compared], ignore_index=True)
    determined = {*question.fields, *question.across, *determines(*question.fields, *question.across)}
    if DEVICE not in question.fields:  # it distinguishes cells unless it is asked about, whatever determines it
        determined.discard(DEVICE)
    names = [name for name in varying_keys(cells, [], []) if name not in determined]
    # The phase, not the value: of one phase the value is device time in some cells, and wall time in others.
    cells = cells.assign(part=cells["value"].str.rpartition(".")[0])
    shown = [*names, "part"] if cells["part"].nunique() > 1 else names
    return Answer(question=question, cells=cells, keys=shown, unit=compared[0][0].unit)


def _comparisons(question: Question) -> list[tuple[Comparison, Sequence[Option]]]:
    """Compare the options with the baseline: at once, or else each alone. Raises RequestError if none has a common cell
    with it."""
    baseline, *others = question.options
    if len(others) == 1:
        return [(_compared(question, baseline, others[0]), others)]
    if question.fields:  # else the options have the same values, and only each alone can be compared
        with suppress(RequestError):
            return [(_compared_at_once(question), others)]
    alone: list[tuple[Comparison, Sequence[Option]]] = []
    for option in others:
        with suppress(RequestError):
            alone.append((_compared(question, baseline, option), [option]))
    if not alone:
        raise RequestError("no option has a cell in common with the baseline")
    return alone


def _compared(question: Question, one: Option, other: Option) -> Comparison:
    between = {name: (one.values[name], other.values[name]) for name in question.fields}
    between = {name: sides for name, sides in between.items() if sides[0] != sides[1]}
    return compare(
        one.rows,
        other.rows,
        between=between,
        across=question.across,
        values=question.measure.values,
        variation=question.variation,
    )


def cells_of_pair(question: Question, one: Option, other: Option) -> pd.DataFrame:
    """Return the cells of an option against another. Raises RequestError without a common one."""
    return _cells(_compared(question, one, other), [other])


def _compared_at_once(question: Question) -> Comparison:
    """Compare all options with the baseline in one call of `compare`, which pairs rows with equal values. For each
    option the baseline's rows are copied, with the values of the option and identifiers of their own:

    baseline   none   5.0 ms  m1
    copies     block  5.0 ms  m1/copy 0    model  5.0 ms  m1/copy 1
    options    block  4.0 ms  m2           model  3.5 ms  m3
    """
    baseline, *others = question.options
    copies = [_copied(baseline.rows, option, question.fields, place) for place, option in enumerate(others)]
    across = (*question.across, *(determines(*question.fields) - {*question.fields}))
    return compare(
        pd.concat(copies, ignore_index=True),
        pd.concat([one.rows for one in others]),
        between={},
        across=across,
        values=question.measure.values,
        variation=question.variation,
        options=question.fields,
    )


def _copied(rows: pd.DataFrame, option: Option, fields: Sequence[str], place: int) -> pd.DataFrame:
    """Return the baseline's rows with the values of an option, each repeated with its type."""
    firsts = {name: option.rows[name].iloc[:1] for name in fields}
    values = {name: pd.array(one.array.take([0] * len(rows)), dtype=one.dtype) for name, one in firsts.items()}
    marked = {name: rows[name] + f"{COPY_MARK}{place}" for name in ("attempt_id", "measurement_id")}
    return rows.assign(**values, **marked)


def _uncopied(key: ResultKey | None) -> ResultKey | None:
    """Return the key of the row from which `_copied` made this one: m1 of `m1/copy 0`. Other keys stay."""
    return key and key._replace(measurement_id=key.measurement_id.partition(COPY_MARK)[0])


def _cells(found: Comparison, options: Sequence[Option]) -> pd.DataFrame:
    """The cells of these options, with all columns of the option's result."""
    baseline_keys, option_keys = found.results  # in the order of the cells, as is all that follows
    measured = [place for place, key in enumerate(option_keys) if key is not None]  # else the option has no result
    cells = found.cells.iloc[measured]
    columns = _gains(cells, timed=found.unit == "s")
    columns |= {name: cells[name] for name in KEPT if name in cells}
    columns["baseline_key"] = pd.Series([_uncopied(baseline_keys[place]) for place in measured], dtype=object)
    keys = [key for key in option_keys if key is not None]
    columns["option_key"] = pd.Series(keys, dtype=object)
    names = list(ResultKey._fields)
    rows = pd.concat([option.rows.assign(**{OPTION: option.name}) for option in options])
    rows = rows.drop_duplicates(names).set_index(names)
    results = rows.reindex(pd.MultiIndex.from_tuples(keys, names=names)).reset_index()  # a row for each of the keys
    return results.drop(columns=["flags"]).assign(**{name: column.to_numpy() for name, column in columns.items()})


def _gains(cells: pd.DataFrame, *, timed: bool) -> dict[str, pd.Series]:
    """Return the gains of a comparison's cells, whose ratios are option / baseline. That of a time is the inverse, so
    the ends of its interval change places."""
    if timed:
        return {"gain": 1 / cells["ratio"], "gain_low": 1 / cells["ratio_high"], "gain_high": 1 / cells["ratio_low"]}
    return {"gain": cells["ratio"], "gain_low": cells["ratio_low"], "gain_high": cells["ratio_high"]}


def _refused(question: Question, one: Option, other: Option, error: RequestError) -> Answer:
    """The answer about two devices without a common cell: the fields that prevent pairing, and what helps."""
    apart = error.apart if isinstance(error, ApartError) else []
    why = f"{str(error)[:1].upper()}{str(error)[1:]}."
    if apart:
        why = "Measure one of them again with the values of the other"
        fields = [name for name, *_ in apart]
        try:
            _compared(replace(question, across=(*question.across, *fields)), one, other)
            why += f", or allow the difference with `--across {','.join(fields)}`."
        except RequestError:  # no cell would have a single counterpart
            why += "."
    ran = [sorted(set(map(str, side.rows["sweep"]))) for side in (one, other)]
    details = [why]
    if not set(ran[0]) & set(ran[1]):
        words = [f"{side.name} ran {', '.join(names)}" for side, names in zip((one, other), ran, strict=True)]
        details.insert(0, f"They ran different sweeps: {'; '.join(words)}. Run one of them on both.")
    return Answer(
        question=question, cells=pd.DataFrame({OPTION: []}), keys=[], unit="s", apart=apart,
        refused=(f"{other.name} against {one.name}: no combination in common", details),
    )  # fmt: skip
