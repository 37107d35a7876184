"""How a replica comes to its brokerId and keeps it for ever (invariant IdentityForever). Pure.

The steps of the persistent-BrokerId document, each chosen anew from what is durable:

    nothing                  ask for the next id (1012)             -> write `.broker.meta.temp` with a check code
    `.broker.meta.temp`      apply for it (1013), again and again   -> write `.broker.meta`, remove the temporary file
    `.broker.meta`           done, whatever else is there

An answer that is lost costs nothing: 1012 reserves nothing, and 1013 is repeated with the same check code, which the
controllers take for the same request. 5.3.3 instead drops the temporary file after any error and burns the id. It is
dropped here only when the controllers say that the id belongs to somebody else (2014).
"""

from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_sidecar.domain import answers
from rocketmq_sidecar.domain.actions import Ask, ForgetApplied, SaveApplied, SaveIdentity, Stored
from rocketmq_sidecar.domain.options import Options
from rocketmq_sidecar.domain.questions import Questions


class IdentityKeeper:
    """From two files to one id."""

    def __init__(self, options: Options, *, identity: BrokerIdentity | None, applied: AppliedIdentity | None) -> None:
        """`identity` and `applied` are what the two files hold, durably."""
        self.identity = identity
        self._options = options
        self._questions = Questions(options.cluster_name, options.broker_name)
        self._applied = None if identity is not None else applied
        self._check_code = ""
        self._candidate: AppliedIdentity | None = None
        self._granted: BrokerIdentity | None = None
        self._given_away = False

    def offer_check_code(self, check_code: str) -> None:
        """`address;millis`, for an id that is applied for from now on; one that is in the file keeps its own."""
        self._check_code = check_code

    def next(self, leader: str | None, now: float) -> Ask | Stored | None:
        """The next step; None once the identity is kept, or if it needs a leader and none is known."""
        if self.identity is not None:
            return None
        return self._to_store() or (None if leader is None else self._to_ask(leader, now))

    def on_answer(self, code: RequestCode, answer: RemotingCommand) -> bool:
        """Take the answer to 1012 or 1013; False if it was refused.

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
            return True
        options = self._options
        identity = BrokerIdentity(options.cluster_name, options.broker_name, answers.next_broker_id(answer))
        self._candidate = AppliedIdentity(identity, self._check_code)
        return True

    def on_stored(self, action: Stored) -> None:
        """A file is as wanted, durably. (One that could not be written is simply wanted again.)"""
        match action:
            case SaveApplied(applied):
                self._applied, self._candidate = applied, None
            case SaveIdentity(identity):
                self.identity, self._applied, self._granted = identity, None, None
            case ForgetApplied():
                self._applied, self._given_away = None, False

    def _to_store(self) -> Stored | None:
        if self._granted is not None:
            return SaveIdentity(self._granted)
        if self._given_away:
            return ForgetApplied()
        return None if self._candidate is None else SaveApplied(self._candidate)

    def _to_ask(self, leader: str, now: float) -> Ask:
        if self._applied is None:
            return self._questions.next_id(leader, now)
        return self._questions.apply(leader, self._applied, now)
