"""Ray, the nodes of a cluster, and what each of them can hold.

Planning joins the cluster and lets a small task on each node say what it would be measured on, and which code and
versions it has; nodes that differ are refused (`software.py`). What a trial may run on follows from that
(`placement.py`): a bundle of resources and, where these alone would lead it astray, the names of the nodes it is
kept to. Nodes that are not started are known from the cluster's file (`autoscaler.py`). `live_nodes.py` watches
which nodes are left: a trial that none of them can hold ends as `lost`, where Ray would wait for ever.

`ray_session.py` starts and ends Ray; `ray_private.py` is the one file that rests on names which Ray does not promise.
"""
