"""`check`: whether the user's own code works, found out on this CPU by the program that the verb starts.

check_code.py    the program: a process for each reference, and what is found
check_model.py   the user's model if it is small, and on tensors without values
check_parts.py   the user's attention, optimizer, loss and training step on small tensors
check_ranks.py   the user's wrapper and sharded optimizer in ranks
finding.py       what the verb asks, and what is found
"""
