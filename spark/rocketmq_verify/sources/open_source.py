"""Opens the source that a replica's place names: the only module that imports both kinds."""

from rocketmq_formats.addresses import parse_address
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.sources.source import FILES, SIDECAR, Source, SourceOptions, SpecError, directory_of


def open_source(name: ReplicaName, spec: str, options: SourceOptions | None = None) -> Source:
    """The source that `spec` names; nothing is read or connected before its first use.

    Raises:
        SpecError: `spec` is neither `files:DIRECTORY` nor `sidecar:HOST:PORT`, or a TLS file cannot be read.
    """
    kind, _, place = spec.partition(":")
    options = options or SourceOptions()
    if kind == FILES and place:
        from rocketmq_verify.sources.file_source import FileSource  # noqa: PLC0415 - each kind without the other's imports

        return FileSource(name, directory_of(spec), options)
    if kind == SIDECAR and _is_address(place):
        from rocketmq_verify.sources.sidecar_source import SidecarSource  # noqa: PLC0415

        try:
            return SidecarSource(name, place, options)
        except OSError as error:
            raise SpecError(f"{name}: TLS: {error}") from error
    raise SpecError(f"{name}={spec}: give files:DIRECTORY or sidecar:HOST:PORT")


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except ValueError:
        return False
    return True
