"""How long the documents of a data set are, and which batches a trainer makes of them. Needs NumPy and Arrow, no torch.

length_forms.py    the forms of the field `lengths`: a file, a distribution, a mean; what is wrong with one
length_files.py    token counts from a file: text, CSV, NumPy or Parquet
drawing.py         the lengths of a comparison, drawn once by the seed
batches.py         the batches of a trial: padded, grouped, packed, or by a budget of tokens
recompiling.py     how often compiled code is compiled again for batches of other shapes
"""
