"""Memory of compiled graphs: which buffers live when.

trial_graph.py     the graph that torch.compile makes of a trial's compiled part
aot_graph.py       forward and backward graphs as given to Inductor, for any size from one trace
graph_buffers.py   which values of a graph Inductor writes to memory
graph_memory.py    what a compiled graph keeps and allocates, and what stands in for it in a run without the device
"""
