"""Why the device idles, drawn for each reason."""

import numpy as np
from device_drawn import ms, use_of

from unstall.model.wire import Activity, Device
from unstall.testing.timeline import MS


def idle(picture, launch=None):
    ledger, use = use_of(picture, launch)
    assert sum(row.ns for row in use.idling) == use.idle_ns == ledger.ns[ledger.device == Device.IDLE].sum()
    return ms(use.idling, "why"), use


def test_a_host_that_launches_slower_than_the_device_works_is_blamed():
    reasons, use = idle("""
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |L..L..L...
        stream |.k..k..k..
    """)
    assert reasons == {"HOST": 7.0}
    assert sum(row.gaps for row in use.idling) == 4
    assert use.launches_per_step == 3.0


def test_launching_ahead_leaves_nothing_to_blame():
    reasons, use = idle("""
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |L|L|L......x
        stream |.kkk|kkk|kkk
    """)
    assert reasons == {"HOST": 1.0}
    assert use.busy_ns == 9 * MS


def test_only_the_wait_for_data_that_the_device_does_not_work_through_counts():
    reasons, use = idle(
        """
        step   |ssssssssss
        main   |DDDDDFFFFF
        host   |wwwwwL....
        stream |kk....kkkk
        """,
        launch=[-1, 0],
    )
    assert reasons == {"DATA": 3.0, "HOST": 1.0}
    assert ms(use.idling, "why", "activity")["DATA", "WAIT_DATA"] == 3.0


def test_making_a_batch_is_waiting_for_data():
    reasons, _ = idle("""
        step   |ssssssssss
        main   |DDDDDFFFFF
        host   |lllllL....
        stream |......kkkk
    """)
    assert reasons == {"DATA": 5.0, "HOST": 1.0}


def test_a_wait_for_the_device_is_blamed_while_it_lasts_and_launching_anew_after_it():
    reasons, use = idle("""
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |L.yyyyy.L.
        stream |.kkk.....k
    """)
    assert reasons == {"HOST": 3.0, "SYNC": 3.0}
    (sync,) = use.syncs
    assert (sync.ns, sync.idle_ns, sync.per_step) == (5 * MS, 5 * MS, 1.0)


def test_a_wait_through_which_the_device_works_on_costs_nothing():
    _, use = idle("""
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |L|Lyyyy....
        stream |..kkkkk|kkk
    """)
    (sync,) = use.syncs
    assert (sync.ns, sync.idle_ns) == (4 * MS, 0)


def test_a_host_that_waits_for_other_ranks_blames_them():
    reasons, _ = idle("""
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |LCCCCCL...
        stream |.kk....kkk
    """)
    assert reasons == {"RANK": 3.0, "HOST": 2.0}


def test_what_is_launched_may_take_20_us_to_begin_and_the_rest_is_unexplained():
    reasons, _ = idle("""
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |L.........
        stream |...kkkkkkk
    """)
    assert reasons == {"HOST": 1.0, "LATENCY": 0.02, "UNEXPLAINED": 1.98}


def test_gaps_between_the_kernels_of_a_replayed_graph_are_not_the_hosts():
    reasons, use = idle(
        """
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |L.....yyyy
        stream |.k.k.k.kkk
        """,
        launch=[0, 0, 0, 0],
    )
    assert reasons["HOST"] == 1.0
    assert abs(reasons["LATENCY"] - 0.06) < 1e-9
    assert use.launches_per_step == 1.0


def test_without_a_known_launch_only_what_the_host_cannot_have_launched_in_is_explained():
    reasons, _ = idle(
        """
        step   |ssssssssss
        main   |DDDFFFFFFF
        host   |www.......
        stream |......kkkk
        """
    )
    assert reasons == {"DATA": 3.0, "UNEXPLAINED": 3.0}


def test_a_gap_at_the_end_of_a_step_is_the_next_launchs():
    reasons, use = idle("""
        step   |ssssssssss|ssssssssss
        main   |FFFFFFFFFF|DDDDFFFFFF
        host   |L.........|wwwwL.....
        stream |.kkkkk....|.....kkkkk
    """)
    assert reasons == {"HOST": 6.0, "DATA": 4.0}
    assert sum(row.gaps for row in use.idling) == 2


def test_two_streams_are_idle_only_together_and_copies_hide_behind_kernels():
    reasons, use = idle("""
        step   |ssssssssss
        main   |FFFFFFFFFF
        host   |L|L.......x
        stream |..kkkk....
        copies |.hhhhhhh..
    """)
    assert reasons == {"HOST": 3.0}
    assert (use.compute_ns, use.copy_ns) == (4 * MS, 3 * MS)
    assert use.copies[0].exposed_ns == 3 * MS


def test_a_collective_is_exposed_where_nothing_is_computed():
    ledger, use = use_of("""
        step   |ssssssssss
        main   |FFFBBBBOOO
        host   |L..L......
        stream |.kkkkk....
        comm   |....nnnnnn
    """)
    assert use.collective_ns == use.collectives[0].exposed_ns == 4 * MS
    assert use.collectives[0].waited_ns is None
    assert ledger.ns[(ledger.device == Device.COLLECTIVE) & (ledger.activity != Activity.UNKNOWN)].sum() >= 0
    assert np.isclose(use.busy_ns + use.idle_ns, 10 * MS)
