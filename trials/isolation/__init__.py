"""Each trial in a fresh process: a server that has imported torch forks one child per trial.

    client.py                IsolatedRunner: `run(trial)` returns rows, whatever happens to the child
    standby.py               starts servers while a run is planned, before their workers exist
    server_process.py        the process of a server and the connection to it, as its client sees them
    messages.py              the requests and answers that client, server and child exchange
    server.py                imports torch once, never touches a device, forks children
    child.py                 a forked process, killed with its whole process group, and what it runs
    precompile.py            compiles the graphs of coming trials on fake tensors into the compiler's cache

The server is a program instead of `multiprocessing`'s fork server: the main module of a Ray worker is Ray's, and every
child would import it again. It dies with the process that started it (`PR_SET_PDEATHSIG`), and its children with it.
The row of a crashed child holds its last output, that of a hung one its stack; the workloads after it run in a fresh
child. Compiled trials may share one child, because the first compilation of a process costs one to two seconds.

Precompilation allocates no device memory and runs no kernel; tuning is in the trial's first iteration, alone on the
device. The workers of a node share the cache and the work. If trials compile, the server imports Inductor with one
thread, because the threads of a pool would not survive a fork. It forks the next child while the client handles the
rows of the last one, from huge pages, because a fork copies one page-table entry per page.
"""
