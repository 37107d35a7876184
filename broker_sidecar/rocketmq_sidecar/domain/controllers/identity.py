"""How a replica gets its brokerId and keeps it forever (invariant IdentityForever). Pure.

The steps of rocketmq-all-5.3.3: persistent_unique_broker_id.md, each chosen from what is durable at that moment:

    nothing                  ask for the next id (1012)             -> write `.broker.meta.temp` with a check code
    `.broker.meta.temp`      apply for it (1013), again and again   -> write `.broker.meta`, remove the temporary file
    `.broker.meta`           done, whatever else is there

An answer that is lost costs nothing: 1012 reserves nothing, and 1013 is repeated with the same check code, which the
controllers take for the same request. 5.3.3 instead drops the temporary file after any error and burns the id. It is
dropped here only when the controllers answer that the id belongs to another broker (2014).
"""

from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_sidecar.domain.actions import ForgetApplied, LogLine, Request, SaveApplied, SaveIdentity, Stored
from rocketmq_sidecar.domain.controllers import answers
from rocketmq_sidecar.domain.controllers.requests import Requests
from rocketmq_sidecar.domain.options import Options


class IdentityKeeper:
    """Keeps the identity that the two files hold, or gets one."""

    def __init__(self, options: Options, *, identity: BrokerIdentity | None, applied: AppliedIdentity | None) -> None:
        """`identity` and `applied` are what the two files hold, durably."""
        self.identity = identity
        self.former_ids: str | None = None
        """The ids of other members that had this replica's address when it applied for its own, `1;4`."""
        self._options = options
        self._requests = Requests(options.cluster_name, options.broker_name)
        self._applied = None if identity is not None else applied
        self._check_code = ""
        self._candidate: AppliedIdentity | None = None
        self._granted: BrokerIdentity | None = None
        self._given_away = False

    def offer_check_code(self, check_code: str) -> None:
        """`address;millis`, for an id applied for from now on; an id in the file keeps its own check code."""
        self._check_code = check_code

    def next(self, leader: str | None, now: float) -> Request | Stored | None:
        """The next step; None once the identity is saved, or if it needs a leader and none is known."""
        if self.identity is not None:
            return None
        return self._next_write() or (None if leader is None else self._next_request(leader, now))

    def on_answer(self, code: RequestCode, answer: RemotingCommand) -> bool:
        """Handle the answer to 1012 or 1013; False if the request was refused.

        Raises:
            FormatError: it cannot be read.
        """
        if code is RequestCode.CONTROLLER_APPLY_BROKER_ID and answer.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            self._given_away = True
            return True
        if answer.code != ResponseCode.SUCCESS:
            return False
        if code is RequestCode.CONTROLLER_APPLY_BROKER_ID:
            assert self._applied is not None
            self._granted = self._applied.identity
            self.former_ids = answers.former_ids(answer)
            return True
        options = self._options
        identity = BrokerIdentity(options.cluster_name, options.broker_name, answers.next_broker_id(answer))
        self._candidate = AppliedIdentity(identity, self._check_code)
        return True

    def on_stored(self, action: Stored) -> LogLine | None:
        """A file was written durably. (`next` returns the same action again after a failure.) A line for an operator if
        a member was here before."""
        match action:
            case SaveApplied(applied):
                self._applied, self._candidate = applied, None
            case SaveIdentity(identity):
                self.identity, self._applied, self._granted = identity, None, None
                return None if self.former_ids is None else _began_anew(identity.broker_id, self.former_ids)
            case ForgetApplied():
                self._applied, self._given_away = None, False
        return None

    def _next_write(self) -> Stored | None:
        if self._granted is not None:
            return SaveIdentity(self._granted)
        if self._given_away:
            return ForgetApplied()
        return None if self._candidate is None else SaveApplied(self._candidate)

    def _next_request(self, leader: str, now: float) -> Request:
        if self._applied is None:
            return self._requests.next_id(leader, now)
        return self._requests.apply(leader, self._applied, now)


def _began_anew(broker_id: int, former: str) -> LogLine:
    """The member that was here before stays registered, and in the SyncStateSet until the master leaves it out."""
    return LogLine(
        "a new replica at the address of a registered one: its volume was emptied or exchanged",
        {
            "broker_id": broker_id,
            "former_broker_ids": former,
            "reason": f"this replica had no identity file, so it is brokerId {broker_id} now and copies everything from"
            f" the master. If the volume of brokerId {former} was not mounted, stop this replica, mount it and start it"
            f" again. Otherwise brokerId {former} will not come back: remove it with cleanBrokerMetadata once it is"
            " out of the SyncStateSet (the operator does)",
        },
        "warning",
    )
