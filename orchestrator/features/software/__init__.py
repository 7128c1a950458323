"""The environment that `software` of a trial asks for.

requirements.py          the releases in which it differs from the installed one
virtual_environment.py   makes it with uv or pip, once, and keeps it in the cache folder
"""

from lmsweep.orchestrator.feature import Feature

feature = Feature(
    name="software",
    environments={
        "requirements_of": f"{__name__}.requirements:requirements_of",
        "with_files_read": f"{__name__}.requirements:with_files_read",
        "is_made": f"{__name__}.virtual_environment:is_made",
        "interpreter_with": f"{__name__}.virtual_environment:interpreter_with",
    },
)
