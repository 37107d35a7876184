"""Files of large tables, made from the texts of their entries."""

from rocketmq_formats.store.config_files import EntryTexts, SubscriptionGroupsFile, TopicsFile, encode_config
from rocketmq_formats.topics import DataVersion, SubscriptionGroupConfig, TopicConfig


def test_the_text_is_the_same_as_at_once() -> None:
    texts = EntryTexts()
    table = {
        name: TopicConfig(topic_name=name, order=name == "b", attributes={"x": "{}"} if name == "c" else {})
        for name in ("c", "a", "b", 'quoted "{}"')
    }
    for counter in range(4):
        frame = TopicsFile(data_version=DataVersion(counter=counter))
        whole = TopicsFile(data_version=frame.data_version, topic_config_table=dict(sorted(table.items())))
        assert texts.encode(frame, table) == encode_config(whole)
        if counter == 0:
            table["a"] = TopicConfig(topic_name="a", perm=4)
            table["d"] = TopicConfig(topic_name="d")
        elif counter == 1:
            del table["b"]
            table["c"] = TopicConfig(topic_name="c", attributes={"x": "{}"})  # equal to what it was
        else:
            table.clear()
    assert not texts._texts


def test_other_tables_of_the_file() -> None:
    groups = {"g": SubscriptionGroupConfig(group_name="g")}
    frame = SubscriptionGroupsFile(forbidden_table={"g": {"t": 1}})
    whole = SubscriptionGroupsFile(forbidden_table={"g": {"t": 1}}, subscription_group_table=groups)
    assert EntryTexts().encode(frame, groups) == encode_config(whole)
