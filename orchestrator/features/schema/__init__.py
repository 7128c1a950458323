"""`VERB --schema`: the JSON Schema of what a verb prints with --format json.

json_schemas.py  makes it, from records and from models of tables
"""

import json
from collections.abc import Callable
from typing import Annotated

from typer import Exit

from lmsweep.orchestrator.feature import Feature, registered, with_option
from lmsweep.orchestrator.plan_request import Rare
from lmsweep.orchestrator.terminal import say_data

CORE = ("table", "compare")
"""The verbs with --format json that no feature registers."""


def with_schema(verb: Callable[..., None]) -> Callable[..., None]:
    """Add --schema to a verb that prints JSON: it prints the schema and does nothing else."""
    if verb.__name__ not in (*CORE, *registered("outputs", CORE)):
        return verb

    def show(wanted: bool) -> None:
        if wanted:
            from lmsweep.orchestrator.features.schema.json_schemas import schema_of

            say_data(json.dumps(schema_of(verb.__name__), indent=2))
            raise Exit

    option = Annotated[bool, Rare("--schema", callback=show, is_eager=True, help="The JSON Schema of --format json.")]
    return with_option(verb, "schema", option, lambda schema, **given: verb(**given))  # without --schema: `show` exits


feature = Feature(name="schema", extends=with_schema)
