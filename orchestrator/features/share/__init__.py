"""`share`: a store to commit or to send, without names of machines and people; its trials for experiment trackers.

shared_folder.py   writes the folder: one file per table, a report and a summary
allowed.py         what may be shared of each column
summaries.py       each trial as a configuration and numbers, as experiment trackers want it
"""

from typing import Annotated

from typer import Option

from lmsweep.orchestrator.commands.options import StoreArgument
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.terminal import say


def share(
    store: StoreArgument = "results",
    output: Annotated[str, Option("--output", "-o", help="The folder to write; new or empty.")] = "shared",
) -> None:
    """Write a folder to commit or send: results, report, summary; without names of machines and people, and paths.

    \b
    Example:
      lmsweep share results -o my-results
    """
    from lmsweep.orchestrator.features.share.shared_folder import share as share_store

    shared = share_store(store, output)
    names = "\n".join(f"  {name}" for name in shared.files)
    say(f"{output}: {shared.bytes / 2**20:.1f} MiB\n{names}")
    say(
        "Host names, user names, folders of absolute paths and artifacts were taken out. Others compare it with "
        "theirs: lmsweep compare results --with FOLDER-OR-URL"
    )


feature = Feature(
    name="share",
    job="Share",
    place=-2,
    verbs=(share,),
    functions={"share": f"{__name__}.shared_folder:share", "summaries": f"{__name__}.summaries:summaries"},
)
