"""Calls the user's functions and classes with the fields of the configuration that their signatures have."""

import inspect
import json
from collections.abc import Callable, Mapping

from lmsweep.trials.code.importing import code_in_use
from lmsweep.trials.code.traceback_text import defined_at
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.model_sizes import PLAIN_DIMENSIONS

OFFERED = ("vocab_size", "context_length", *PLAIN_DIMENSIONS)
"""The fields that a model is called with, if its signature has them, in addition to `device` and `dtype`."""


def arguments_of(text: str | None) -> dict[str, object]:
    """Return the arguments that a field such as `model_args` holds as JSON."""
    return dict(json.loads(text)) if text else {}


def call(
    function: Callable[..., object], offered: Mapping[str, object], users: Mapping[str, object], text: str
) -> object:
    """Call a function, which reference `text` names, with the arguments that the user gives and the `offered` ones that
    it has parameters for. Raises RequestError if it lacks an argument or a parameter."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # a class of an extension module has none, so nobody knows what it could be offered
        return function(**users)
    parameters = signature.parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    place = defined_at(function, code_in_use())
    if unknown := [name for name in users if name not in parameters and not takes_any]:
        raise RequestError(f"{place}: {text}{signature} has no parameter {unknown[0]}")
    given = {name: value for name, value in offered.items() if name in parameters} | dict(users)
    missing = [
        name
        for name, one in parameters.items()
        if one.default is one.empty and name not in given and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    if missing:
        raise RequestError(
            f"{place}: {text}{signature} needs {', '.join(missing)}; give {'it' if len(missing) == 1 else 'them'} "
            f"under args, or as a field that is offered ({', '.join(offered)})"
        )
    return function(**given)
