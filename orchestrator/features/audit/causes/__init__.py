"""What makes a claim wrong or a run slow.

explanations.py   the causes, by causes.csv; ranking.py weighs them
hypothesis.py     which numbers a cause moves, and by which factor
wrong_numbers.py  FLOPs, tokens or times that are counted wrong
other_step.py     another step than the claim's; variants.py predicts it
"""
