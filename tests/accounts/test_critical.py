"""The critical path of drawn timelines."""

from device_drawn import ms, use_of


def path(picture, launch=None):
    ledger, use = use_of(picture, launch)
    assert sum(part.ns for part in use.critical) == ledger.total_ns(steps=range(9))
    assert sum(kernel.critical_ns for kernel in use.kernels) == sum(
        part.ns for part in use.critical if part.activity is None and part.device.name != "IDLE"
    )
    return ms(use.critical, "activity", "device")


def test_a_device_with_work_in_its_queue_is_the_path():
    found = path("""
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |L|L.yyyyyyp
        stream |.kk|kkkkkk.
    """)
    assert found == {(None, "COMPUTE"): 8.0, ("LAUNCH", "IDLE"): 1.0, ("PYTHON", "IDLE"): 1.0}


def test_a_host_that_launches_late_is_the_path():
    found = path("""
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |LppLppLppp
        stream |.k..k..k..
    """)
    assert found == {("LAUNCH", "IDLE"): 3.0, ("PYTHON", "IDLE"): 7.0}


def test_a_wait_for_a_device_that_is_done_stays_on_the_host():
    found = path("""
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |Lpppyypppp
        stream |.kk.......
    """)
    assert found == {("LAUNCH", "IDLE"): 1.0, ("PYTHON", "IDLE"): 7.0, ("SYNC", "IDLE"): 2.0}


def test_a_wait_leads_to_the_work_that_ended_it():
    found = path("""
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |Lyyyyypppp
        stream |.kkkkk....
    """)
    assert found == {("LAUNCH", "IDLE"): 1.0, (None, "COMPUTE"): 5.0, ("PYTHON", "IDLE"): 4.0}


def test_work_that_begins_when_work_on_another_stream_ends_waited_for_it():
    found = path("""
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |L|L.yyyyyyy
        stream |.kkkk.....
        comm   |.....nnnnn
    """)
    assert found == {("LAUNCH", "IDLE"): 1.0, (None, "COMPUTE"): 4.0, (None, "COLLECTIVE"): 5.0}


def test_a_device_that_lags_behind_the_host_is_the_path():
    found = path("""
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |L|L|Lppppppp
        stream |.kkk|kkk|kkkkkk
    """)
    assert found == {("LAUNCH", "IDLE"): 1.0, (None, "COMPUTE"): 9.0}
