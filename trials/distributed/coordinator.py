"""The team of a trial's ranks: rank 0 says what all of them do next, and gets what each has to say of it."""

from typing import Any

import torch.distributed as dist


class Team:
    """Has every rank call the same method of its own `member`, one after the other as rank 0 asks.

    Only rank 0 decides (whether the warm-up was long enough, say), so that ranks cannot come to different decisions.
    """

    def __init__(self, member: object) -> None:
        self._member = member
        # Orders go another way than what is measured.
        self._group = dist.new_group(backend="gloo")

    def all(self, action: str, *arguments: Any) -> list[Any]:
        """What each rank's member returns from this method, by rank; only rank 0 may call it."""
        dist.broadcast_object_list([(action, arguments)], src=0, group=self._group)
        answers = self._act(action, arguments)
        assert answers is not None, "rank 0 has the answers"
        return answers

    def dismiss(self) -> None:
        """Lets the other ranks go."""
        dist.broadcast_object_list([None], src=0, group=self._group)

    def follow(self) -> None:
        """Does what rank 0 asks until it dismisses the team."""
        while True:
            order: list[Any] = [None]
            dist.broadcast_object_list(order, src=0, group=self._group)
            if order[0] is None:
                return
            self._act(*order[0])

    def _act(self, action: str, arguments: tuple[Any, ...]) -> list[Any] | None:
        answer = getattr(self._member, action)(*arguments)
        answers = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object(answer, answers, dst=0, group=self._group)
        return answers
