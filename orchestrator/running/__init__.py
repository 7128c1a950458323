"""Carries out a plan: Ray Tune, the workers, progress, and rows on their way to the store.

    run_plan.py             a whole run: order, launch, collect, account for the time
    tune_runner.py          assembles Ray Tune and runs the plan's trials through it
    trial_queue.py          hands out trials: Tune's searcher and scheduler
    result_collector.py     takes each trial's rows from Tune as it ends
    supervisor.py           the Ray actor of one slot, and the resources of a trial
    not_pickled.py          keeps these objects out of Tune's pickles
    multi_node.py           the workers of a trial on several nodes
    worker.py               runs trials on a node: reserves the device, never uses it
    admission.py            which trials may still begin, given `--budget` and Ctrl-C
    store_writer.py         writes rows to the store in the background
    out_of_memory_text.py   an out-of-memory error in one line
    progress/               what a run shows while it goes on: progress, time left, who no longer answers

Tune's own loggers, snapshots and sorting cost more than a short trial. So the runner hands out positions in the run's
order, gives a free actor to the first waiting trial that can use it, reuses actors, and writes no checkpoints. Every
result is removed from Tune at once, because Tune would keep all of them in memory. What Tune pickles with each trial
(the trainable, and the function that names its resources) must not hold the plan: otherwise each of 10 000 trials
would unpickle all 10 000.

One thread waits for the disk, so that the next trial runs while the rows of the last are synced. A second thread sends
rows to a remote store. It may wait for minutes, and no row waits for it to become durable on this machine.
"""
