"""Which configuration is best for a goal, from results alone.

    answer_text.py     the answer in words and tables
    answer.py          the winner and what it beats
    standing.py        how surely a cell is the best
    effects.py         which axis mattered most
    front.py           the Pareto front of time, memory and money
    transfer.py        predictions for another device, by datasheets and cells measured on both
    recipe.py          the command that measures it again, and plain PyTorch that sets it up
    more_memory.py     what would come next with more memory
    surrogate.py       a Gaussian process of effects, interactions and rests, which learns from measured cells
    cells.py           the measured cells: time, memory and energy of a step
    goal.py            what is to be best, and the limit that it must keep

A *cell* is a configuration on a device. A *job* is what is trained: a model, its context length and mode. Only cells of
one job are compared; all other fields, the batch size among them, are how it is trained.
"""
