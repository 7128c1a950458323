"""The packaged sweeps: one YAML file each, named as `lmsweep run` names them."""
