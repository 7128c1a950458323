"""Runs a plan: Ray Tune, the workers, progress, and rows on their way to the store.

    before_run.py     software, damage in the store, other runs on this machine
    run_plan.py       a whole run: order, launch, collect, account for the time
    admission.py      which trial comes next, if not by the plan; which may begin, given `--budget` and Ctrl-C
    tune_runner.py    Ray Tune's searcher, scheduler and callback, and the run through them
    supervisor.py     the Ray actor of one slot, and those on the other nodes of its trial
    worker.py         runs trials on a node: reserves the device, never uses it
    store_writer.py   writes rows to the store in the background
    progress/         what a run shows: progress, time left, what does not answer

Tune's own loggers, snapshots and sorting cost more than a short trial. So actors are reused, nothing is checkpointed,
and results are removed from Tune at once. What Tune pickles with each trial must not hold the plan: each of 10 000
trials would unpickle all 10 000. Threads write to the disk and to a remote store, and no trial waits for either.
"""
