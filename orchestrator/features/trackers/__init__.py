"""`run --tracker NAME`: sends each trial of a run to an experiment tracker as it ends. `lmsweep.track` sends a store.

summaries.py   each trial as a configuration and numbers
sending.py     sends them to Weights & Biases, MLflow or TensorBoard, beside the run
"""

from lmsweep.orchestrator.feature import Feature

feature = Feature(
    name="trackers",
    functions={"summaries": f"{__name__}.summaries:summaries", "track": f"{__name__}.sending:track"},
    trackers={name: f"{__name__}.sending:{name}" for name in ("wandb", "mlflow", "tensorboard")},
)
