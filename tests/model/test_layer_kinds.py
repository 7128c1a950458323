"""The kinds of a model's layers, and models of some of them alone."""

import pytest
from torch import nn

from lmsweep.trials.model.users.layer_kinds import layers_of, only


class Layer(nn.Module):
    def __init__(self, place: int, width: int, window: int | None = None, scale: float = 1.0) -> None:
        super().__init__()
        self.place, self.window, self.scale = place, window, scale
        self.linear = nn.Linear(width, width)


@pytest.mark.parametrize(
    ("layers", "kinds"),
    [
        ([Layer(1 + i, 8) for i in range(4)], (0, 0, 0, 0)),
        ([Layer(i, 4 if i < 1 else 8) for i in range(4)], (0, 1, 1, 1)),
        ([Layer(i, 8, window=None if i % 2 else 16) for i in range(4)], (0, 1, 0, 1)),
        ([Layer(i, 8, window=16 if i == 2 else None) for i in range(4)], (0, 0, 1, 0)),
        ([Layer(i, 8, scale=0.5**i) for i in range(3)], (0, 0, 0)),
        ([Layer(i, 8, scale=float(i > 0)) for i in range(3)], (0, 1, 1)),
    ],
    ids=["their numbers", "widths", "windows", "one window", "scales", "no scale"],
)
def test_layers_are_of_one_kind_if_their_modules_weights_and_settings_are_equal(
    layers: list[Layer], kinds: tuple[int, ...]
) -> None:
    model = nn.ModuleDict({"embedding": nn.Embedding(5, 8), "layers": nn.ModuleList(layers)})
    found = layers_of(model)
    assert found is not None and (found.path, found.kinds) == ("layers", kinds)


class Other(Layer):
    """Has no __init__ of its own."""


class Both(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList((Layer, Other)[place % 2](place, 8) for place in range(4))


def test_layers_are_left_out_whatever_class_makes_them() -> None:
    found = layers_of(Both())
    assert found is not None and found.kinds == (0, 1, 0, 1)
    with only(found, [1, 2]) as finish:
        shallow = Both()
        finish(shallow)
    assert [(type(one).__name__, one.place) for one in shallow.layers] == [("Other", 1), ("Layer", 2)]
    assert layers_of(Both()) == found and "__init__" not in vars(Other)


def test_a_model_with_a_layer_outside_its_list_is_run_whole() -> None:
    assert layers_of(nn.ModuleDict({"layers": nn.ModuleList([Layer(0, 8), Layer(1, 8)]), "extra": Layer(2, 8)})) is None
    assert layers_of(nn.Linear(2, 2)) is None
