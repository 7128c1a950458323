"""`accept`: whether a machine is as fast as one of its kind.

accepting.py      the nodes, the store, the judgement of their rows, and its page
node_trials.py    what runs on one node, on the cores, on each GPU, on all of them; what disturbs it
accept_text.py    the answer as lines of a terminal, and what to do
acceptance.py     the answer: nodes, units, parts; verdicts of all from those of the parts
part_verdicts.py  the verdict of each part, by its expected times
expected.py       what a part should take: machines of the shipped sets, this machine's history, its peers, public rates
parts.py          which measured values are judged, and what each is called
"""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from lmsweep.orchestrator.commands.options import JsonFormat
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import Text, Where, takes_request
from lmsweep.orchestrator.terminal import say, say_data
from lmsweep.trials.spec.config import RequestError


@takes_request("as_ store address output format")
def accept(
    where: Where,
    as_: Annotated[str, Option("--as", metavar="GPU", help="What it should be: H200, H100, ...")] = "auto",
    store: Annotated[Text, Option("--store", help="Where results are kept. Default: a folder in ~/.cache.")] = None,
    output: Annotated[
        str, Option("--output", "-o", help="The page to write; the same as JSON beside it.")
    ] = "accept.html",
    format: JsonFormat = "text",
) -> None:
    """Measure whether this machine is as fast as one of its kind.

    It takes a minute or two. With --address: each node of a cluster.
    Exit code 0: all that is judged passes. 1: a part is slow or undecided, or nothing could be judged yet.
    2: a wrong request; nothing was measured.

    \b
    Example:
      lmsweep accept --as H200
    """
    page = Path(output).expanduser()
    if page.suffix.lower() not in (".html", ".htm"):
        raise RequestError(f"-o {output}: the page is an HTML file; give a name that ends in .html")
    if not page.parent.is_dir():
        raise RequestError(f"-o {output}: there is no folder {page.parent}")
    from lmsweep.orchestrator.planning.memory_budget import devices_meant

    device = None if as_ == "auto" else devices_meant(as_, "--as")[0]
    from lmsweep.orchestrator.commands.show_table import show_parts
    from lmsweep.orchestrator.features.accept.accept_text import paragraphs
    from lmsweep.orchestrator.features.accept.accepting import run_acceptance, usual_store, write_page

    location = store or usual_store()
    acceptance = run_acceptance(location, device, where.address)
    text = write_page(acceptance, page)
    if format == "json":
        say_data(text)
    else:
        show_parts(paragraphs(acceptance), pages=False)
        say(f"{page}, {page.with_suffix('.json')}; results are in {location}")
    if acceptance.verdict != "pass":
        raise typer.Exit(1)


feature = Feature(
    name="accept",
    place=8,
    verbs=(accept,),
    outputs={"accept": f"{__name__}.accepting:AcceptOutput"},
    functions={"accept": f"{__name__}.accepting:accepted"},
    answers={"accept": f"{__name__}.accepting:answer_of"},
)
