"""A master takes over what was committed at a slave while it acted as master: the body of its COPY_TABLES.

Whether the slave is in the SyncStateSet does not matter, in a strict group neither. A new master there takes the tables
of the set only, because a whole table of another member may be from before an operator's reset. These commits come with
what the queues had before, so a reset here is seen, and stays (`domain/tables/acting_commits.py`).
"""

from collections.abc import Callable

import structlog

from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_formats.errors import FormatError
from rocketmq_formats.steps import Steps
from rocketmq_formats.store.config_files import ActingCommits, decode_config
from rocketmq_formats.table_copies import CopyTablesRequestHeader, is_acting_proof, is_copy_proof
from rocketmq_runtime.log_limiter import LogLimiter

log = structlog.get_logger(__name__)


class ActingReports:
    """Nothing that is wrong with one keeps its slave from copying."""

    def __init__(self, *, role: ReplicaRole, offsets: ConsumerOffsets, may_log: LogLimiter) -> None:
        self._role = role
        self._offsets = offsets
        self._may_log = may_log

    def take_over(
        self, body: bytes, header: CopyTablesRequestHeader, nonce: str, current: Callable[[], bool]
    ) -> Steps[bool]:
        """Whether the commits are taken over. `nonce`: of the slave's connection. `current`: whether the mastership
        that was asked still lasts."""
        if header.epoch > self._role.epoch:
            return False  # before that epoch begins here, newer tables may take the place of this one
        key, proof = self._role.copy_key, header.acting_proof
        if key is not None and (proof or key.required) and not is_acting_proof(key.key, nonce, body, proof):
            # else the slave does not know the nonce yet: the answer has it
            if is_copy_proof(key.key, nonce, header) and self._may_log("no proof"):
                log.warning("commits at an acting slave refused: no proof", broker_id=header.broker_id)
            return False
        try:
            commits = decode_config(ActingCommits, body)
        except FormatError as error:
            if self._may_log("acting"):
                log.warning("commits at an acting slave refused", broker_id=header.broker_id, reason=str(error))
            return False
        for _ in self._offsets.take_acting(commits):
            yield
            if not current():
                return False
        log.info("a slave was acting master, its commits are taken over", broker_id=header.broker_id)
        return True
