"""Keeps our searcher, scheduler and callback out of what Tune pickles."""


class NotPickled:
    """Pickles as a bare object.

    Tune pickles its set-up so that it can restore a run. Ours resumes from the store, and open files cannot be pickled.
    """

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return object, ()
