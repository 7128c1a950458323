"""`fits`: which GPU and method fits a model, how fast, and for how much. Needs no GPU and no Ray.

fit_request.py      what is asked, read and checked
fit.py              one answer per GPU, number of GPUs and method
predicted_fits.py   predicts the answers, and ranks them; `lmsweep.fits`
fits_page.py        the answers as an HTML page
"""

from typing import Annotated

from typer import Argument, Option

from lmsweep.orchestrator.commands.options import JsonFormat, NamedTrainer, Prices
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import Text, Texts
from lmsweep.orchestrator.terminal import say, say_data
from lmsweep.trials.results.record_json import json_of
from lmsweep.trials.spec.config import RequestError


def fits(
    model: Annotated[
        str,
        Argument(help="A model by name, as for audit; hf: and a name, folder or JSON file; or your own by reference."),
    ],
    context: Annotated[
        Text, Option("--context", help="Tokens of a sequence: 8192 or 8k. Default: 4k, or all positions of the model.")
    ] = None,
    on: Annotated[
        str, Option("--for", metavar="GPU,...", help="The GPUs to ask about; 24GB: the memory alone.")
    ] = "H100,H200,B200,A100 80GB,4090",
    gpus: Annotated[str, Option("--gpus", help="1,2,8: on how many of them; several share weights by fsdp.")] = "1",
    method: Annotated[str, Option("--method", help="Which of full, lora, dora, qlora.")] = "full,lora,qlora",
    lengths: Annotated[
        Text, Option("--lengths", metavar="FILE", help="Token counts of your documents, or lognormal(400, 0.8, 4096).")
    ] = None,
    tokens: Annotated[Text, Option("--tokens", help="300M, 1B: hours and dollars for so many tokens.")] = None,
    price: Prices = [],
    trainer: NamedTrainer = None,
    settings: Annotated[
        Texts, Option("--set", help="FIELD=VALUE of the trial: precision=bf16, adapter_args.rank=64; repeatable.")
    ] = [],
    store: Annotated[str, Option("--store", help="Where rates of GPUs are stored that you measured.")] = "results",
    code: Annotated[Text, Option("--code", help="Folder with your own code.")] = None,
    trusted: Annotated[Texts, Option("--trust", help="A package that references may lead to; repeatable.")] = [],
    format: JsonFormat = "text",
) -> None:
    """Predict which GPUs fit a model, how fast and for how much. Needs no GPU.

    It is trained in full or with adapters.

    \b
    Example:
      lmsweep fits hf:Qwen/Qwen3-8B --for H100,H200 --tokens 1B --price H100=2.5

    As a page: with --format json > fits.json, then `lmsweep report fits.json`.
    """
    numbers = [_count(one) for one in _listed(gpus)]
    from lmsweep.orchestrator.features.fits.fit_request import FitRequest

    request = FitRequest(
        model,
        context=context,
        devices=_listed(on),
        gpus=numbers,
        methods=_listed(method),
        lengths=lengths,
        tokens=tokens,
        prices=price,
        trainer=trainer,
        settings=settings,
        store=store,
        code=code,
        trusted=trusted,
    ).checked()
    if price and not tokens:
        say("--price without --tokens: dollars are those of so many tokens, --tokens 1B", error=True)
    from lmsweep.orchestrator.commands.show_table import show_parts
    from lmsweep.orchestrator.features.fits.fit import FitsOutput
    from lmsweep.orchestrator.features.fits.fits_page import fits_listing
    from lmsweep.orchestrator.features.fits.predicted_fits import find_fits

    answer = FitsOutput(
        model=request.model,
        context=request.context_meant(),
        tokens=request.tokens_meant(),
        trainer=request.trainer,
        assumed=request.assumed(),
        fits=find_fits(request),
    )
    if format == "json":
        say_data(json_of(answer))
    else:
        show_parts([fits_listing(answer)])


def _listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _count(text: str) -> int:
    if not text.isdecimal():
        raise RequestError(f"--gpus {text}: write numbers of GPUs, such as 1,2,8")
    return int(text)


feature = Feature(
    name="fits",
    place=6,
    verbs=(fits,),
    outputs={"fits": f"{__name__}.fit:FitsOutput"},
    pages={"fits": f"{__name__}.fits_page:fits_page"},
    functions={"fits": f"{__name__}.predicted_fits:fits"},
)
