"""Makes the Python beside each .proto in libs/rocketmq_api; `--check` only compares (make proto, make check).

protoc writes messages with their stubs and the gRPC code, but no stubs for the latter: those are written here, for
grpc.aio, which is the only kind of gRPC that we use.
"""

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent / "libs"
PACKAGE = "rocketmq_api"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if what is there differs from what would be made")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        made = make(Path(folder))
    present = {path.relative_to(ROOT): path.read_bytes() for path in (ROOT / PACKAGE).glob("*_pb2*.py*")}
    stale = sorted(path for path in made.keys() | present.keys() if made.get(path) != present.get(path))
    if check:
        for path in stale:
            print(f"libs/{path} is not what its .proto makes: run `make proto`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        if path in made:
            (ROOT / path).write_bytes(made[path])
        else:
            (ROOT / path).unlink()
        print(f"libs/{path}")
    return 0


def make(folder: Path) -> dict[Path, bytes]:
    """Every generated file by its path below libs."""
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / PACKAGE).glob("*.proto"))
    descriptors = folder / "descriptors"
    arguments = [
        "protoc",
        f"-I{ROOT}",
        f"-I{resources.files('grpc_tools') / '_proto'}",
        f"--python_out={folder}",
        f"--pyi_out={folder}",
        f"--grpc_python_out={folder}",
        f"--descriptor_set_out={descriptors}",
        *sources,
    ]
    if protoc.main(arguments) != 0:
        sys.exit("protoc failed")
    made = {path.relative_to(folder): path.read_bytes() for path in (folder / PACKAGE).iterdir()}
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes()).file:
        if file.service:
            made[Path(file.name.replace(".proto", "_pb2_grpc.pyi"))] = grpc_stubs(file).encode()
    return made


def grpc_stubs(file: descriptor_pb2.FileDescriptorProto) -> str:
    """Stubs of the file's services; messages of other files and streams of requests are not needed so far."""
    module = Path(file.name).stem + "_pb2"
    lines = [
        f"# Made by hack/proto.py from {file.name}: do not edit",
        "from collections.abc import AsyncIterator, Awaitable",
        "",
        "from grpc import aio",
        "",
        f"from {PACKAGE} import {module} as _pb2",
    ]
    for service in file.service:
        calls: list[str] = []
        handlers: list[str] = []
        for method in service.method:
            if method.client_streaming:
                sys.exit(f"{service.name}.{method.name}: streams of requests are not supported by hack/proto.py")
            types = ", ".join(_message(file.package, name) for name in (method.input_type, method.output_type))
            request, response = types.split(", ")
            kind = "UnaryStreamMultiCallable" if method.server_streaming else "UnaryUnaryMultiCallable"
            result = (
                f"AsyncIterator[{response}] | Awaitable[None]" if method.server_streaming else f"Awaitable[{response}]"
            )
            calls.append(f"    {method.name}: aio.{kind}[{types}]")
            handlers += [
                f"    def {method.name}(",
                f"        self, request: {request}, context: aio.ServicerContext[{types}]",
                f"    ) -> {result}: ...",
            ]
        lines += ["", f"class {service.name}Stub:", "    def __init__(self, channel: aio.Channel) -> None: ...", *calls]
        lines += ["", f"class {service.name}Servicer:", *handlers, ""]
        name = f"{service.name}Servicer"
        lines.append(f"def add_{name}_to_server(servicer: {name}, server: aio.Server) -> None: ...")
    return "\n".join(lines) + "\n"


def _message(package: str, name: str) -> str:
    if not name.startswith(f".{package}."):
        sys.exit(f"{name}: messages of other packages are not supported by hack/proto.py")
    return "_pb2." + name.removeprefix(f".{package}.")


if __name__ == "__main__":
    sys.exit(main())
