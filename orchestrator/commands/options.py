"""Makes the options of a verb from the fields of PlanRequest and the verb's own parameters."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args, get_type_hints

from lmsweep.orchestrator.plan_request import PlanRequest

Text = str | None
Texts = list[str]


def takes_request(names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb these options, in the order of its help: fields of its PlanRequest, and parameters of its own."""

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        own = signature(verb).parameters
        options = [own.get(name) or _option(name) for name in names.split()]
        turned_off = {one.name for one in options if one.name not in own and getattr(PlanRequest, one.name, 0) is True}

        @wraps(verb)
        def call(**given: Any) -> None:
            given |= {name: not given[name] for name in turned_off}
            request = {name: given.pop(name) for name in given.keys() - own.keys()}
            verb(PlanRequest(**({"sweep": ""} | request)), **given)

        vars(call)["__signature__"] = Signature([one.replace(kind=Parameter.KEYWORD_ONLY) for one in options])
        call.__annotations__ = {one.name: one.annotation for one in options}
        return call

    return decorate


def _option(name: str) -> Parameter:
    """Return a field of PlanRequest as a parameter of the types that typer knows."""
    hint = get_type_hints(PlanRequest, include_extras=True)[name]
    default = getattr(PlanRequest, name, Parameter.empty)
    kind, option = get_args(hint)
    if kind == Sequence[str]:
        kind, default = list[str], []
    elif default is True:
        default = False
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
