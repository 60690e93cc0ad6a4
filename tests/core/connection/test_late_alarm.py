from __future__ import annotations

from aiokc.core.connection.late_alarm import LateAlarm, seconds_to_read


def test_an_alarm_on_time_is_not_set_again() -> None:
    assert LateAlarm().extension(0.05, received=(1, 0)) == 0.0


def test_a_late_one_is_set_again_for_as_long_as_it_was_late_and_a_second_at_most() -> None:
    assert LateAlarm().extension(0.3, received=(1, 0)) == 0.3
    assert LateAlarm().extension(20.0, received=(1, 0)) == 1.0


def test_one_that_is_late_again_is_not_unless_something_has_come() -> None:
    alarm = LateAlarm()
    assert alarm.extension(1.3, received=(1, 0)) == 1.0
    assert alarm.extension(0.3, received=(1, 65536)) == 0.3
    assert alarm.extension(1.0, received=(1, 65536)) == 0.0
    assert alarm.extension(1.3, received=(2, 0)) == 1.0


def test_how_long_the_loop_is_to_run_before_a_late_alarm_counts() -> None:
    assert [seconds_to_read(late) for late in (-1.0, 0.05, 0.3, 20.0)] == [0.0, 0.0, 0.3, 1.0]
