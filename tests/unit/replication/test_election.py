"""Who may lead: only a replica that has every committed record."""

from headrace.replication.election import Way, elect, leads
from headrace.replication.image import NO_LEADER, BrokerImage, PartitionImage


def brokers(*numbers, **changed):
    alive = {each: BrokerImage(id=each, endpoints={}, incarnation=5) for each in numbers}
    for name, fields in changed.items():
        number = int(name.removeprefix("b"))
        alive[number] = BrokerImage(id=number, endpoints={}, **{"incarnation": 5, **fields})
    return alive


def led(leader=1, isr=(1, 2, 3), **fields):
    given = {"leader_incarnation": 5, "leader_epoch": 7, "isr_incarnations": (5,) * len(isr), "version": 3}
    return PartitionImage(replicas=(1, 2, 3), leader=leader, isr=isr, **{**given, **fields})


def test_the_first_electable_replica_in_the_order_of_assignment_leads_with_the_next_epoch():
    elected = elect(led(), brokers(3, 2))
    assert elected.way is Way.CLEAN
    state = elected.partition
    assert (state.leader, state.leader_incarnation, state.leader_epoch, state.isr) == (2, 5, 8, (2, 3))
    assert state.version == 3, "the version that the write is to replace"


def test_a_partition_stays_leaderless_when_no_in_sync_replica_is_alive():
    elected = elect(led(isr=(1,), isr_incarnations=(5,)), brokers(2, 3))
    assert elected.way is Way.NONE
    assert (elected.partition.leader, elected.partition.isr, elected.partition.leader_epoch) == (NO_LEADER, (1,), 8)
    again = elect(elected.partition, brokers(2, 3))
    assert again.partition == elected.partition, "nothing more is written while nothing changes"


def test_an_unclean_leader_is_elected_only_where_the_setting_allows_it_and_is_alone_in_the_isr():
    elected = elect(led(isr=(1,), isr_incarnations=(5,)), brokers(2, 3), unclean=True)
    assert (elected.way, elected.partition.leader, elected.partition.isr) == (Way.UNCLEAN, 2, (2,))
    assert elect(led(), brokers(3), unclean=True).way is Way.CLEAN, "one of the ISR is there"


def test_a_member_that_lost_its_disk_since_it_joined_is_not_elected_and_leaves_the_isr():
    alive = brokers(3, b2={"incarnation": 6, "intact_from": 6})
    elected = elect(led(), alive)
    assert (elected.way, elected.partition.leader, elected.partition.isr) == (Way.CLEAN, 3, (3,))


def test_a_member_that_was_started_again_with_all_its_data_is_elected():
    elected = elect(led(isr=(2,), isr_incarnations=(5,)), brokers(b2={"incarnation": 6, "intact_from": 5}))
    assert (elected.way, elected.partition.leader, elected.partition.leader_incarnation) == (Way.CLEAN, 2, 6)


def test_when_all_of_the_isr_is_back_and_none_is_intact_the_first_leads_and_it_is_said():
    lost = {"incarnation": 6, "intact_from": 6}
    one_missing = elect(led(isr=(2, 3), isr_incarnations=(5, 5)), brokers(1, b2=lost))
    assert one_missing.way is Way.NONE, "the other one may have everything"
    elected = elect(led(isr=(2, 3), isr_incarnations=(5, 5)), brokers(1, b2=lost, b3=lost))
    assert (elected.way, elected.partition.leader, elected.partition.isr) == (Way.LAST_RESORT, 2, (2,))


def test_a_replica_whose_directory_has_failed_or_whose_broker_shuts_down_is_not_elected():
    assert elect(led(offline=(2,)), brokers(2, 3)).partition.leader == 3
    assert elect(led(), brokers(3, b2={"shutting_down": True})).partition.leader == 3


def test_a_leader_goes_on_only_as_the_incarnation_that_leadership_was_given_to():
    assert leads(led(), brokers(1))
    assert not leads(led(), brokers(b1={"incarnation": 6}))
    assert not leads(led(offline=(1,)), brokers(1))
    assert not leads(led(leader=NO_LEADER), brokers(1))
