"""The workloads: each a module with one function ``measure(bench) -> Iterator[Measurement]``.

To add one: a module here, and a line with the protocol fields that it reads in
`lmsweep.trials.spec.config.PROTOCOL_FIELDS`.
"""
