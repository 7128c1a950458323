"""Ray, the nodes of a cluster, and what each node can hold.

    nodes.py            a node: its cores, GPUs and environments
    node_discovery.py   asks each node of a cluster what it is, refuses other software
    joining.py          joins a cluster if a head answers, with a token
    autoscaler.py       nodes that the autoscaler could start, from the cluster file
    placement.py        which nodes can hold a trial, which still can, and what it asks Ray for
    ray_session.py      starts, joins and stops Ray
    ray_private.py      everything that relies on names private to Ray and Tune
    guard.py            kills what is left of Ray when the command has ended, however it ended

Planning runs a small task on each node, which reports its environment, code and versions. A trial asks Ray for a bundle
of resources and, if these alone do not decide, names the nodes. One that no live node can hold ends as `lost`.
"""
