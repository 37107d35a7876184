"""The parts in which slaves copy topics and groups (COPY_TABLES): what changed, as JSON."""

from rocketmq_broker.domain.tables.change_order import Changed
from rocketmq_broker.domain.tables.subscription_groups import SubscriptionGroups
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.table_copies import GroupChanges, TopicChanges


def topic_changes_body(topics: TopicTable, changed: Changed) -> bytes:
    """Of what has just changed."""
    return encode_body(
        TopicChanges(
            topic_config_table={name: topics.table[name] for name in changed.keys},
            data_version=topics.version,
            removed=tuple(changed.removed),
            full=changed.begins,
            more=changed.until < topics.order.changes,
        )
    )


def group_changes_body(groups: SubscriptionGroups, changed: Changed) -> bytes:
    """Likewise."""
    return encode_body(
        GroupChanges(
            subscription_group_table={name: groups.table[name] for name in changed.keys if name in groups.table},
            forbidden_table={name: groups.forbidden[name] for name in changed.keys if name in groups.forbidden},
            data_version=groups.version,
            removed=tuple(changed.removed),
            full=changed.begins,
            more=changed.until < groups.order.changes,
        )
    )
