"""`schema`: the JSON Schema of what a verb prints with --format json.

json_schemas.py  of records, and of models of tables
"""

import json
from typing import Annotated

from typer import Argument

from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.terminal import say_data
from lmsweep.trials.spec.config import RequestError


def schema(verb: Annotated[str, Argument(help="A verb with --format json.")]) -> None:
    """Print the JSON Schema of what a verb prints with --format json.

    \b
    Example:
      lmsweep schema compare
    """
    from lmsweep.orchestrator.features.schema.json_schemas import printing_verbs, schema_of
    from lmsweep.trials.spec.suggestions import choices

    if verb not in printing_verbs():
        raise RequestError(f"{verb} has no --format json{choices(verb, printing_verbs())}")
    say_data(json.dumps(schema_of(verb), indent=2))


feature = Feature(name="schema", job="Read", place=1.6, verbs=(schema,))
