"""The two ways in which a request cannot be met."""


class RequestError(ValueError):
    """The request is wrong. The message says what is wrong, where, and what to do. Nothing has run."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in a notebook: the message, as the command does."""
        return [str(self)]


class UnsupportedError(Exception):
    """This machine cannot run this combination. The message is the reason; the trial's status is `unsupported`."""
