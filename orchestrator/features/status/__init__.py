"""`status`: results by status, sweep and device, and their flags."""

from lmsweep.orchestrator.commands.options import Format, StoreArgument
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.terminal import say, say_data
from lmsweep.trials.results.record_json import json_of


def status(store: StoreArgument = "results", format: Format = "text") -> None:
    """Count results by status, sweep and device, and list their flags.

    \b
    Example:
      lmsweep status results
    """
    from lmsweep.analysis import load
    from lmsweep.analysis.metrics.status import counts_listing
    from lmsweep.orchestrator.commands.text.show_table import show_table
    from lmsweep.orchestrator.features.status.status_output import status_output

    frame = load(store, pooled=False)
    if format == "json":
        say_data(json_of(status_output(frame)))
        return
    if frame.empty:
        say(f"{store} holds no results yet")
    else:
        show_table(counts_listing(frame, store), format)


feature = Feature(
    name="status",
    job="Read",
    place=-1,
    verbs=(status,),
    outputs={"status": "lmsweep.orchestrator.features.status.status_output:StatusOutput"},
)
