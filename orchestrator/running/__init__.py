"""A plan carried out: Ray Tune, the workers, progress, rows on their way to the store.

    run.py            the whole of a run: order, launch, collect, account for the time
    tune_runner.py    hands the plan's trials to Ray Tune
    worker.py         the actor's side: holds a device, never touches it
    multi_node.py     the workers of a trial on several nodes
    admission.py      which trials may still begin, by `--budget` and by Ctrl-C
    store_writer.py   rows on their way to the store
    eta.py, progress.py   the time left, and the bar that shows it
    other_runs.py     other lmsweep runs on this machine

Tune's own loggers, snapshots and sorting cost more than a short trial. So the runner hands out indices into the
plan, gives a free actor to the first trial that waits for one like it, keeps actors, and writes no checkpoints.
Every result is taken out of Tune's hands at once, because Tune would keep them all in memory. What Tune pickles
with each trial (the trainable, the function that names its resources) must not hold the plan: 10 000 trials would
unpickle it 10 000 times.

A thread waits for the disk, so the next trial runs while the rows of the last are synced. Another sends rows where
the store is elsewhere: it may wait minutes for an answer, and no row waits with it to become durable on this
machine.
"""
