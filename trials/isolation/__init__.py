"""Trials in processes of their own: a server that has imported torch forks one child per trial.

    client.py       what an actor calls: `IsolatedRunner.run(trial)` returns rows, whatever becomes of the child
    server.py       imports torch once, never touches a device, forks
    child.py        runs one trial, pinned to its cores; killed with its whole process group when its time is up
    precompile.py   compiles the next trials' graphs on fake tensors into the compiler's cache

The server is a program of its own rather than `multiprocessing`'s fork server: the main module of a Ray worker is
Ray's, and every child would import it again. The child dies with the server, the server with the actor
(`PR_SET_PDEATHSIG`). What a child prints is kept, so the last words of one that crashed, or the stack of one that
hung, are in its row. Workloads after one that failed run in a fresh child.

Compiled trials may follow one another in one child, because importing Inductor costs one to two seconds each time:
only while the allocator is back at zero and the compiler has been reset, and only for workloads that leftover
memory cannot change.

Compiling ahead allocates no memory and runs no kernel. Tuning that needs the device happens in the trial's own
first iteration, alone on the device. Workers of one node share the cache and the work: each compiles a share of the
missing graphs, and a lock beside a graph's mark says that somebody is at work on it. A trial that did not find its
graph in the cache is flagged `cold_cache`.

The server forks the process of the next trial while the rows of the last are on their way. Its memory is in huge
pages, because a fork copies one page-table entry per page.
"""
