"""Keeps the ranks of a trial in step: rank 0 sends an order, every rank carries it out, rank 0 collects the answers."""

from typing import Any, Generic, Protocol, TypeVar

import torch.distributed as dist

Member = TypeVar("Member")
Member_contra = TypeVar("Member_contra", contravariant=True)
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


class Order(Protocol[Member_contra, Answer_co]):
    """A message that tells every rank what to do with its own member. It is pickled, so its class is importable."""

    def carry_out(self, member: Member_contra, /) -> Answer_co:
        """Do it in this rank, and return this rank's answer."""


class Team(Generic[Member]):
    """All ranks of a trial, each with its own `member` that orders act on.

    Only rank 0 decides (for example, whether the warm-up was long enough), so that ranks cannot decide differently.
    """

    def __init__(self, member: Member) -> None:
        self._member = member
        # Orders travel over gloo, so that they do not add to the traffic that is measured.
        self._group = dist.new_group(backend="gloo")

    def all(self, order: Order[Member, Answer]) -> list[Answer]:
        """Have every rank carry out the order; return their answers by rank. Only rank 0 may call this."""
        dist.broadcast_object_list([order], src=0, group=self._group)
        answers: list[Any] = [None] * dist.get_world_size()
        dist.gather_object(order.carry_out(self._member), answers, dst=0, group=self._group)
        return answers

    def dismiss(self) -> None:
        """End `follow` in the other ranks."""
        dist.broadcast_object_list([None], src=0, group=self._group)

    def follow(self) -> None:
        """Carry out orders of rank 0 until it dismisses the team."""
        while True:
            received: list[Order[Member, object] | None] = [None]
            dist.broadcast_object_list(received, src=0, group=self._group)
            order = received[0]
            if order is None:
                return
            dist.gather_object(order.carry_out(self._member), dst=0, group=self._group)
