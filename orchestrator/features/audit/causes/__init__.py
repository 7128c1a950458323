"""What makes a claim wrong or a run slow.

explanations.py   the causes, by causes.csv; ranking.py weighs them
hypothesis.py     which numbers a cause moves, and by which factor
wrong_flops.py    peaks and counts of FLOPs
wrong_tokens.py   tokens of other GPUs, micro-batches, ranks, or of padding
wrong_time.py     the time of other steps, or of launches alone
other_step.py     another step than the claim's; variants.py predicts it
"""
