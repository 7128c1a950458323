"""What the verbs and the Python API are asked: a sweep, and the options that choose its trials and how they run."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import update_wrapper, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar, get_args, get_type_hints

from typer import Argument, Option
from typer.models import OptionInfo

from lmsweep.trials.results.outcome import Status

STARTS_AGAIN = ("retry", "fresh", "budget", "until")
"""Fields that the command to resume leaves out."""


Text = str | None
Texts = list[str]
STATUSES = f"Re-run trials that ended with this status: {', '.join(Status)}; repeatable."


@dataclass(frozen=True)
class PlanRequest:
    """The arguments of `lmsweep.plan` and `lmsweep.run`, each with its option of the command.

    A field that is True by default has the option that turns it off.
    """

    sweep: Annotated[str, Argument(help="A sweep file, or the name of a packaged sweep.")]
    _: KW_ONLY
    store: Annotated[str, Option("--store", help="Where results are stored: a folder or a URI.")] = "results"
    grids: Annotated[Sequence[str], Option("--grid", help="Only the grids of this name; repeatable.")] = ()
    overrides: Annotated[
        Sequence[str], Option("--set", help="AXIS=A,B: use these values instead of the sweep's; repeatable.")
    ] = ()
    address: Annotated[Text, Option("--address", help="Address of a Ray cluster. Default: this machine alone.")] = None
    cluster_file: Annotated[
        Text, Option("--cluster", help="The cluster file, if `ray up` did not start the head node.")
    ] = None
    grace: Annotated[Text, Option("--grace", help="Let running trials finish for 30s, 2m, ... after SIGTERM.")] = None
    code: Annotated[Text, Option("--code", help="Folder with your own code. Default: the sweep's, else this one.")] = (
        None
    )
    trusted: Annotated[Sequence[str], Option("--trust", help="A package that references may lead to; repeatable.")] = ()
    shard: Annotated[
        Text, Option("--shard", help="3/16: only the third of 16 parts of the sweep, as for a job array.")
    ] = None
    predict: Annotated[bool, Option("--no-predict", help="Run trials without predicting whether they fit.")] = True
    profile: Annotated[bool, Option("--profile", help="Profile each timed step, too, for compare --explain.")] = False
    nsys: Annotated[bool, Option("--nsys", help="Profile with NVIDIA Nsight Systems, which must be installed.")] = False
    retry: Annotated[Sequence[str], Option("--retry", metavar="STATUS", help=STATUSES)] = ()
    fresh: Annotated[bool, Option("--fresh", help="Measure everything again, even if the store has it.")] = False
    budget: Annotated[Text, Option("--budget", help="Run only what fits into this time: 30m, 2h, ...")] = None
    until: Annotated[Text, Option("--until", help="Run only what ends before 17:30, or 2026-11-22T17:30.")] = None
    device: str | None = None
    """The GPU to plan for, of `plan --for`; it need not be in this machine."""
    nodes: Annotated[Text, Option("--nodes", help="With --for 64xH100: the number of nodes. Default: 8 GPUs each.")] = (
        None
    )
    network: Annotated[
        Text, Option("--network", help="Between nodes, for each GPU: 400Gb, or ndr, hdr, roce, efa-p5, ...")
    ] = None

    @property
    def grace_seconds(self) -> float:
        """0 without a grace period. Raises RequestError if it is no duration."""
        from lmsweep.orchestrator.sweep.ranges import seconds_of

        return seconds_of(self.grace, "--grace") if self.grace else 0.0

    def resume_command(self, verb: str = "run", more: Sequence[str] = ()) -> str:
        """Return the command that runs what is left. more: further options and their values."""
        given = self._options(name for name in OPTIONS if name not in STARTS_AGAIN)
        return shlex.join(["lmsweep", verb, self.sweep, *given, *more])

    def trial_command(self) -> str:
        """Return the command that repeats a trial of the sweep, without the identifier that ends it."""
        return shlex.join(
            ["lmsweep", "trial", self.sweep, *self.overrides, *self._options(["code", "trusted"]), "--id"]
        )

    def _options(self, names: Iterable[str]) -> list[str]:
        """Return those of these options that differ from their defaults, with their values."""
        words: list[str] = []
        for name in names:
            value, default = getattr(self, name), getattr(PlanRequest, name)
            if isinstance(default, bool):
                words += [OPTIONS[name]] if value is not default else []
            elif value and value != default:
                values = [value] if isinstance(value, str) else value
                words += [word for one in values for word in (OPTIONS[name], one)]
        return words


OPTIONS: dict[str, str] = {
    name: hint.__metadata__[0].default
    for name, hint in get_type_hints(PlanRequest, include_extras=True).items()
    if isinstance(getattr(hint, "__metadata__", [None])[0], OptionInfo)
}
"""Field -> its option, in the order of the fields."""


def takes_request(names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a verb `verb(request: PlanRequest, **own)` with its options, as typer takes them.

    names: the options, separated by spaces, in the order of --help: parameters of the verb, or else fields of
    PlanRequest, whose values the verb gets as `request`.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        own = signature(verb).parameters
        options = [own.get(name) or _option(name) for name in names.split()]
        # A field that is True by default has an option that turns it off, so its value is inverted.
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


Options = ParamSpec("Options")
Request = TypeVar("Request")
Result = TypeVar("Result")


def with_options(
    record: Callable[Concatenate[str, Options], Request],
) -> Callable[[Callable[[Request], Result]], Callable[Concatenate[str | Path, Options], Result]]:
    """Turn a function of a `record` into one of the record's fields; the first may be a str or a Path."""

    def decorate(function: Callable[[Request], Result]) -> Callable[Concatenate[str | Path, Options], Result]:
        shown, hints = signature(record), get_type_hints(record)
        first = next(iter(shown.parameters))

        def call(*args: Any, **options: Any) -> Result:
            if args:
                args = (str(args[0]), *args[1:])
            elif first in options:
                options[first] = str(options[first])
            return function(record(*args, **options))

        update_wrapper(call, function)
        parameters = [one.replace(annotation=hints[name]) for name, one in shown.parameters.items()]
        vars(call)["__signature__"] = shown.replace(
            parameters=parameters, return_annotation=get_type_hints(function)["return"]
        )
        return call

    return decorate
