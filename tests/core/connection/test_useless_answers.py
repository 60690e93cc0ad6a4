"""Which brokers are passed over because their answers are of no use."""

from __future__ import annotations

from aiokc.core.connection.useless_answers import UselessAnswers


def passed_over(answers: UselessAnswers, *questions: tuple[float, bool, int]) -> list[list[int]]:
    """Return whom each question goes to last, in order. It is asked at that time, again or not; that broker answers."""
    found = []
    for now, again, node_id in questions:
        found.append([*answers.next_question(now, again=again)])
        answers.answered_by(node_id)
    return found


def test_who_answers_again_and_again_is_passed_over_and_then_the_next_ones_too() -> None:
    asked = [(0.0, False, 1), (0.1, True, 1), (0.2, True, 1), (0.3, True, 2), (0.4, True, 3), (0.5, True, 1)]
    assert passed_over(UselessAnswers(), *asked) == [[], [], [], [1], [1, 2], [2, 3]]
    assert passed_over(UselessAnswers(), *asked[:5], (0.5, True, 2), (0.6, True, 3))[5:] == [[2, 3], [3, 2]]


def test_questions_that_are_far_apart_or_about_something_new_begin_anew() -> None:
    once_more = [(0.1, True, 1), (0.2, True, 1), (0.3, True, 1)]
    assert passed_over(UselessAnswers(), (-20.0, False, 1), *once_more) == [[]] * 4
    assert passed_over(UselessAnswers(), (0.0, False, 1), *once_more, (0.4, False, 1), *once_more)[4:7] == [[]] * 3
    assert passed_over(UselessAnswers(), *[(20.0 * number, True, 1) for number in range(10)]) == [[]] * 10
