"""The environments that `software` of a trial asks for.

virtual_environment.py   makes one with uv or pip, once, and keeps it in the cache folder
"""

from lmsweep.orchestrator.feature import Feature

_MODULE = f"{__name__}.virtual_environment"
feature = Feature(name="software", environments={name: f"{_MODULE}:{name}" for name in ("interpreter_with", "is_made")})
