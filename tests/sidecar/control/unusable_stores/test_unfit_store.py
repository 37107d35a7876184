"""When a master whose store takes nothing hands over: not at once, and not again and again."""

from rocketmq_sidecar.domain.control.unfit_store import AFTER_FAILURE, AFTER_SUCCESS, PATIENCE, UnfitStore

FULL = "the disk is full"


def tries(store: UnfitStore, start: float, seconds: float, *, leads: bool = True) -> list[float]:
    """When it hands over, asked four times a second."""
    times = [start + step / 4 for step in range(int(seconds * 4))]
    return [at for at in times if store.on_report(FULL, at, leads=leads)]


def test_a_master_that_stays_full_tries_now_and_then() -> None:
    assert tries(UnfitStore(), 100, 2 * AFTER_FAILURE) == [100 + PATIENCE, 100 + PATIENCE + AFTER_FAILURE]


def test_room_in_time_changes_nothing() -> None:
    store = UnfitStore()
    assert not tries(store, 0, PATIENCE)
    assert not store.on_report(None, PATIENCE, leads=True)
    assert not tries(store, PATIENCE + 1, PATIENCE)


def test_slaves_have_nothing_to_hand_over() -> None:
    assert not tries(UnfitStore(), 0, 1000, leads=False)


def test_where_all_are_full_mastership_does_not_go_round() -> None:
    stores, master, now, handed = [UnfitStore() for _ in range(3)], 0, 0.0, 0
    while now < AFTER_SUCCESS:
        for number, store in enumerate(stores):
            if store.on_report(FULL, now, leads=number == master):
                store.handed_over(now)
                handed += 1
                master = (master + 1) % 3
                break
        now += 0.25
    assert handed == 3, "each once"
