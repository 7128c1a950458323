"""Trials in processes of their own: a server that has imported torch forks one child per trial.

    client.py                IsolatedRunner: `run(trial)` returns rows, whatever happens to the child
    standby.py               starts servers while a run is planned, before their workers exist
    server_process.py        the process of a server and the connection to it, as its client sees them
    messages.py              the requests and answers that client, server and child exchange
    server.py                imports torch once, never touches a device, forks children
    child.py                 runs one trial; killed with its whole process group when its time is up
    virtual_environment.py   makes the environment that a trial's software asks for
    precompile.py            compiles the graphs of coming trials on fake tensors into the compiler's cache

The server is a program of its own instead of `multiprocessing`'s fork server: the main module of a Ray worker is Ray's,
and every child would import it again. On this machine the command starts the servers, one per slot, as soon as it is
certain that trials will run, and the actor of the slot connects to its own. The child dies with the server. The server
dies with the process that started it (`PR_SET_PDEATHSIG`), and ends when its client closes the connection. The child's
output is kept, so the row of a crashed child holds its last output and the row of a hung one holds its stack. The
workloads after a failed one run in a fresh child.

Compiled trials may share one child, because the first compilation of a process costs one to two seconds more. The
child is reused only if the allocator holds nothing and the compiler has been reset, and only for workloads whose
results do not depend on memory that earlier trials reserved.

Precompilation allocates no device memory and runs no kernel. Tuning that needs the device happens in the trial's own
first iteration, alone on the device. The workers of a node share the cache and the work: each compiles a share of the
missing graphs and holds a lock on the graph that it compiles. A trial that did not find its graph in the cache is
flagged `cold_cache`.

If trials compile, the server imports Inductor as well, with one thread, because the threads of its pool of processes
would not survive a fork.

The server forks the child of the next trial while the client handles the rows of the last one. The server's memory is
in huge pages, because a fork copies one page-table entry per page.
"""
