"""The operators of lmsweep's own model in closed form, without a run.

They are as `lmsweep.trials.prediction` records them, except that those of one kind on equally many elements stand as
one, and that what only adapters and offloading have is left out.

    model_parts.py           what a step consists of, each priced once for all steps that have it
    block_operators.py       norms, rotary embedding, linear layers, feed-forward, eager or compiled
    float8_linear.py         a linear layer in float8, with the rounding of its operands
    attention_operators.py   attention between its projections
    forms.py                 how the operators of a part run
"""
