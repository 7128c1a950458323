"""Runs a plan: Ray Tune, the workers, progress, and rows on their way to the store.

    run_plan.py       a whole run: order, launch, collect, account for the time
    admission.py      which trials may still begin, given `--budget` and Ctrl-C
    tune_runner.py    Ray Tune's searcher, scheduler and callback, and the run through them
    supervisor.py     the Ray actor of one slot, and those on the other nodes of its trial
    worker.py         runs trials on a node: reserves the device, never uses it
    store_writer.py   writes rows to the store in the background
    progress/         what a run shows while it goes on: progress, time left, who no longer answers

Tune's own loggers, snapshots and sorting cost more than a short trial. So the runner hands out positions in the run's
order, gives a free actor to the first waiting trial that can use it, reuses actors, and writes no checkpoints. Every
result is removed from Tune at once, because Tune would keep all of them in memory. What Tune pickles with each trial
(the trainable, and the function that names its resources) must not hold the plan: otherwise each of 10 000 trials
would unpickle all 10 000.

One thread waits for the disk, so that the next trial runs while the rows of the last are synced. A second thread sends
rows to a remote store. It may wait for minutes, and no row waits for it to become durable on this machine.
"""
