"""The list of phrases with a native word, by which `make lint` checks every file."""

from tools.words import findings


def test_a_phrase_is_found_across_a_line_break_and_within_an_identifier() -> None:
    text = "# ten trials, of\n# which two failed\ndef test_the_step_is_carried_out(): ...\n"
    assert [(one.line, one.phrase.lower()) for one in findings(text)] == [(1, "of # which"), (3, "carried_out")]


def test_a_public_term_and_a_longer_word_are_no_finding() -> None:
    assert not findings("ctx.save_for_backward(x); Flag.__members__; undoubtedly; from whichever")
