"""What the verbs and the Python API are asked: what to measure, where, and how. Each option stands here once."""

import shlex
import time
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from datetime import datetime
from functools import partial, update_wrapper, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar, get_args, get_type_hints

from typer import Argument, Option
from typer.models import OptionInfo

from lmsweep.orchestrator.sweep.ranges import TimeLimit, seconds_of, seconds_until, shard
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.errors import RequestError
from lmsweep.trials.spec.suggestions import choices

Text = str | None
Texts = list[str]
Rare = partial(Option, rich_help_panel="Advanced")
"""An option that help names below the others."""
STATUSES = f"Re-run trials that ended with this status: {', '.join(Status)}; repeatable."


@dataclass(frozen=True)
class What:
    """Which trials: those of a sweep, or a part of them, with whose code."""

    sweep: Annotated[str, Argument(help="A sweep file, or the name of a packaged sweep.")]
    _: KW_ONLY
    grids: Annotated[Sequence[str], Option("--grid", help="Only the grids of this name; repeatable.")] = ()
    overrides: Annotated[
        Sequence[str], Option("--set", help="AXIS=A,B: use these values instead of the sweep's; repeatable.")
    ] = ()
    code: Annotated[Text, Option("--code", help="Folder with your own code. Default: the sweep's, else this one.")] = (
        None
    )
    trusted: Annotated[Sequence[str], Rare("--trust", help="A package that references may lead to; repeatable.")] = ()
    shard: Annotated[
        Text, Rare("--shard", help="3/16: only the third of 16 parts of the sweep, as for a job array.")
    ] = None
    profile: Annotated[bool, Option("--profile", help="Profile each timed step, too, for compare --explain.")] = False
    nsys: Annotated[bool, Rare("--nsys", help="Profile with NVIDIA Nsight Systems, which must be installed.")] = False

    def __post_init__(self) -> None:
        """Raise RequestError if the shard or the folder is wrong, before the sweep is read: it may refer to no code."""
        if self.code is not None and not Path(self.code).expanduser().is_dir():
            raise RequestError(f"--code {self.code}: there is no such folder")
        if self.shard:
            shard(self.shard)

    def trial_command(self) -> str:
        """Return the command that repeats a trial of the sweep, without the identifier that ends it."""
        options = _options(self, ["code", "trusted"])
        return shlex.join(["lmsweep", "trial", self.sweep, *self.overrides, *options, "--id"])


@dataclass(frozen=True, kw_only=True)
class Where:
    """Which machines measure, or which GPUs elsewhere a plan is for, and where results are stored."""

    store: Annotated[str, Option("--store", help="Where results are stored: a folder or a URI.")] = "results"
    address: Annotated[Text, Option("--address", help="Address of a Ray cluster. Default: this machine alone.")] = None
    cluster_file: Annotated[
        Text, Rare("--cluster", help="The cluster file, if `ray up` did not start the head node.")
    ] = None
    device: str | None = None
    """The GPU to plan for, of `plan --for`; it need not be in this machine."""
    nodes: Annotated[Text, Rare("--nodes", help="With --for 64xH100: the number of nodes. Default: 8 GPUs each.")] = (
        None
    )
    network: Annotated[
        Text, Rare("--network", help="Between nodes, for each GPU: 400Gb, or ndr, hdr, roce, efa-p5, ...")
    ] = None


@dataclass(frozen=True, kw_only=True)
class How:
    """Which trials run again, for how long, and whether their memory is predicted.

    A field that is True by default has the option that turns it off. Raises RequestError if a word is wrong, so before
    a sweep is read or a cluster is asked.
    """

    grace: Annotated[Text, Rare("--grace", help="Let running trials finish for 30s, 2m, ... after SIGTERM.")] = None
    predict: Annotated[bool, Rare("--no-predict", help="Run trials without predicting whether they fit.")] = True
    retry: Annotated[Sequence[str], Rare("--retry", metavar="STATUS", help=STATUSES)] = ()
    fresh: Annotated[bool, Rare("--fresh", help="Measure everything again, even if the store has it.")] = False
    budget: Annotated[Text, Option("--budget", help="Run only what fits into this time: 30m, 2h, ...")] = None
    until: Annotated[Text, Rare("--until", help="Run only what ends before 17:30, or 2026-11-22T17:30.")] = None
    tracker: Annotated[
        Text, Rare("--tracker", metavar="wandb|mlflow|tensorboard", help="Send each trial there as it ends.")
    ] = None

    def __post_init__(self) -> None:
        legal = list(Status)
        for name in self.retry:
            if name not in legal:
                raise RequestError(f"--retry {name}: no such status{choices(name, legal)}")
        for option, text in (("--grace", self.grace), ("--budget", self.budget)):
            if text:
                seconds_of(text, option)
        self.limit()

    @property
    def grace_seconds(self) -> float:
        return seconds_of(self.grace) if self.grace else 0.0

    def limit(self, budget: str | None = None) -> TimeLimit:
        """Return what limits a run that begins now. budget: of the sweep, for a run without one of its own."""
        left = seconds_until(self.until, "--until", now=datetime.now()) if self.until else None
        return TimeLimit(self.budget or budget, None if left is None else time.monotonic() + left)


Part = TypeVar("Part", What, Where, How)


@dataclass(frozen=True)
class PlanArguments(How, What, Where):
    """The arguments of `lmsweep.plan` and `lmsweep.run`: a signature. `part` takes it apart, which checks each part."""

    def part(self, kind: type[Part]) -> Part:
        return kind(**{one.name: getattr(self, one.name) for one in fields(kind)})


HINTS = get_type_hints(PlanArguments, include_extras=True)
OPTIONS: dict[str, str] = {
    name: str(one.default) for name, hint in HINTS.items() for one in get_args(hint) if isinstance(one, OptionInfo)
}
"""Field -> the name of its option, which typer keeps as `default` of an Option; in the order of the fields."""


def resume_command(
    verb: str,
    what: What,
    where: Where,
    how: How,
    more: Iterable[str] = (),
    lasting: Container[str] = ("grace", "predict", "tracker"),
) -> str:
    """Return the command that runs what is left. more: further options and their values. lasting: fields of `how` that
    hold for it, too: not `retry` and `fresh`, as what has ended stays as it is, nor this run's time."""
    options = [*_options(where), *_options(what), *_options(how, lasting)]
    return shlex.join(["lmsweep", verb, what.sweep, *options, *more])


def command_on(devices: str, what: What, where: Where, how: How) -> str:
    """Return the command that runs the trials of these devices alone, or plans them if these are not here."""
    others = [one for one in what.overrides if one.partition("=")[0].strip() != "device"]
    verb, more = ("plan", ["--for", where.device]) if where.device else ("run", [])
    return resume_command(verb, replace(what, overrides=[*others, f"device={devices}"]), where, how, more, OPTIONS)


def _options(part: What | Where | How, names: Container[str] = OPTIONS) -> list[str]:
    """Return the options of a part that differ from their defaults, with their values. names: the fields that count."""
    words: list[str] = []
    for field in fields(part):
        value, option = getattr(part, field.name), OPTIONS.get(field.name)
        if option is None or field.name not in names or value == field.default:
            continue
        if isinstance(value, bool):
            words.append(option)
        elif value:
            for text in [value] if isinstance(value, str) else value:
                words += [option, text]
    return words


def takes_request(names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a verb with its options, as typer takes them, and fill its parameters of the types What, Where and How.

    names: the options, in the order of --help. Over `def show(what: What, where: Where, top: int)`, with the names
    "sweep store top", `top` is a parameter of the verb, and the others are fields of `what` and `where`.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        of_verb = signature(verb).parameters
        parts = {name: one.annotation for name, one in of_verb.items() if one.annotation in (What, Where, How)}
        of_request = [name for name in names.split() if name not in of_verb]
        options = [of_verb[name] if name in of_verb else _option(name) for name in names.split()]

        @wraps(verb)
        def call(**given: Any) -> None:
            request = _request({name: given.pop(name) for name in of_request})
            verb(**{name: request.part(kind) for name, kind in parts.items()}, **given)

        vars(call)["__signature__"] = Signature([one.replace(kind=Parameter.KEYWORD_ONLY) for one in options])
        call.__annotations__ = {one.name: one.annotation for one in options}
        return call

    return decorate


def _option(name: str) -> Parameter:
    """Return a field as a parameter of the types that typer knows."""
    default = getattr(PlanArguments, name, Parameter.empty)
    kind, option = get_args(HINTS[name])
    if kind == Sequence[str]:
        kind, default = list[str], []
    elif default is True:
        default = False
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _request(given: dict[str, Any]) -> PlanArguments:
    """Return the request with these values of options. One that turns off what is True by default is inverted."""
    turned_off = {name: not value for name, value in given.items() if getattr(PlanArguments, name, None) is True}
    return PlanArguments(**{"sweep": "", **given, **turned_off})  # a verb such as doctor takes no sweep


Options = ParamSpec("Options")
Request = TypeVar("Request")
Result = TypeVar("Result")


def with_options(
    record: Callable[Concatenate[str, Options], Request],
) -> Callable[[Callable[[Request], Result]], Callable[Concatenate[str | Path, Options], Result]]:
    """Turn a function of a `record` into one of the record's fields: `plan(PlanArguments("quick", budget="30m"))` is
    called as `plan("quick", budget="30m")`. The first field may be a str or a Path."""

    def decorate(function: Callable[[Request], Result]) -> Callable[Concatenate[str | Path, Options], Result]:
        of_record, hints = signature(record), get_type_hints(record)
        first = next(iter(of_record.parameters))

        def call(*args: Any, **options: Any) -> Result:
            given = of_record.bind(*args, **options)
            given.arguments[first] = str(given.arguments[first])
            return function(record(*given.args, **given.kwargs))

        update_wrapper(call, function)
        parameters = [one.replace(annotation=hints[name]) for name, one in of_record.parameters.items()]
        vars(call)["__signature__"] = of_record.replace(
            parameters=parameters, return_annotation=get_type_hints(function)["return"]
        )
        return call

    return decorate


def with_device(where: Where, sweep: str, on: Sequence[str]) -> Where:
    """Return where a plan is for, with the GPU of --for. Raises RequestError if there are several."""
    if len(on) > 1:
        command = f"lmsweep plan {shlex.quote(sweep)} --for {shlex.quote(on[0])}"
        raise RequestError(f"--for is given {len(on)} times; a plan is for one kind of GPU: {command}")
    return replace(where, device=on[0] if on else None)
