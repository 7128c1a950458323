"""The parts of features that need torch: programs that a verb of `orchestrator/features` starts.

A folder has the name of its verb. The core imports none of it.
"""
