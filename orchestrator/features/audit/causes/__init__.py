"""What makes a claim wrong or a run slow.

explanations.py   the causes, by causes.csv, and numbers that are counted wrong; ranking.py weighs them
hypothesis.py     which numbers a cause moves, and by which factor
other_step.py     another step than the claim's; variants.py predicts it
"""
