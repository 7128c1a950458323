"""Orchestrator: expands a sweep file into trials and runs them through Ray Tune. Never imports torch.

The rooms, from the top down. A module imports from its own room and from the rooms below it.

    cli           the entry point of the command: signals, errors, exit codes
    features      questions with a verb of their own, one folder each
    commands      what each verb does, and the text that it prints
    api           the Python API: plans and runs a sweep
    plan_request  what the verbs and the API take, each argument with its option
    running       runs a plan: Ray Tune, workers, progress, writing to the store
    planning      which trials run, in which order, how long they take, and which do not fit
    predicting    how long a step takes on a device, from its operators
    cluster       Ray, the nodes of a cluster, and what each can hold
    sweep         the sweep file: its schema, its errors, the combinations in it
    sweeps        the packaged sweeps, one YAML file each; features have others
    software      the Python with a trial's `software`, whose environment a feature makes
    feature       what a feature registers, and all that are there
    interrupt     Ctrl-C and signals, also during work that must not stop halfway
    terminal      prints text, with control characters escaped
"""

# This must run before any other import, because the current folder may contain a random.py.
from lmsweep.trials.machine.interpreter import order_search_path

order_search_path()
