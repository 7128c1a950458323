"""Arguments of the user's code as columns: `attention_args.tile`, as in a sweep file."""

import json
from collections.abc import Iterable

import pandas as pd

from lmsweep.analysis.data.columns import argument_of, is_null
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.suggestions import choices


def with_arguments(frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return the rows with a column for each of these names that is an argument, null where a row does not give it.

    The column that held the argument, in JSON, holds the others. Names that are columns already are left alone. Raises
    RequestError if no row gives the argument.
    """
    for name in names:
        whole, argument = argument_of(name) or ("", "")
        if not whole or name in frame:
            continue
        codes, texts = pd.factorize(frame[whole], use_na_sentinel=False)
        given = [{} if is_null(text) else json.loads(text) for text in texts]
        if not any(argument in one for one in given):
            known = sorted({f"{whole}.{key}" for one in given for key in one})
            raise RequestError(f"{name}: no result has this argument{choices(name, known)}")
        values = [_scalar(one.get(argument)) for one in given]
        others = [{key: value for key, value in one.items() if key != argument} for one in given]
        left = [json.dumps(one, sort_keys=True, separators=(",", ":")) if one else None for one in others]
        frame = frame.assign(
            **{
                name: pd.array(values, dtype=object)[codes],
                whole: pd.array(left, dtype=object)[codes],
            }
        )
    return frame


def _scalar(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict | list) else value
