"""`VERB --schema`: the JSON Schema of what a verb prints with --format json.

json_schemas.py  of records, and of models of tables
"""

import json
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

from typer import Exit

from lmsweep.orchestrator.feature import Feature, registered
from lmsweep.orchestrator.plan_request import Rare
from lmsweep.orchestrator.terminal import say_data

CORE = ("plan", "table", "compare")
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

    @wraps(verb)
    def call(schema: bool, **given: Any) -> None:
        verb(**given)

    option = Annotated[bool, Rare("--schema", callback=show, is_eager=True, help="The JSON Schema of --format json.")]
    parameter = Parameter("schema", Parameter.KEYWORD_ONLY, default=False, annotation=option)
    own = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in signature(verb).parameters.values()]
    vars(call)["__signature__"] = Signature([*own, parameter])
    call.__annotations__ = verb.__annotations__ | {"schema": option}
    return call


feature = Feature(name="schema", extends=with_schema)
