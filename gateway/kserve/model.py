"""What the KServe interface says of a model: its tensors and how it answers. Knows their names; runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tritonclient.grpc import model_config_pb2, service_pb2

from gateway.kserve.tensors import TensorSpec
from slipstream.errors import UnknownModel, quoted

VERSION: Final = "1"  # of every model: weights have no versions here
PLATFORM: Final = "slipstream"

TEXT_INPUT: Final = "text_input"
STREAM: Final = "stream"
SAMPLING: Final = "sampling_parameters"
EXCLUDE_INPUT: Final = "exclude_input_in_output"
TEXT_OUTPUT: Final = "text_output"

INPUTS: Final = (
    TensorSpec(TEXT_INPUT, "BYTES"),
    TensorSpec(STREAM, "BOOL", optional=True),
    TensorSpec(SAMPLING, "BYTES", optional=True),
    TensorSpec(EXCLUDE_INPUT, "BOOL", optional=True),
)


def check_version(version: str) -> None:
    if version not in ("", VERSION):
        raise UnknownModel(f"model version {quoted(version)} is not served here; it must be {VERSION!r} or empty")


def metadata(name: str) -> Any:
    tensor = service_pb2.ModelMetadataResponse.TensorMetadata
    return service_pb2.ModelMetadataResponse(
        name=name,
        versions=[VERSION],
        platform=PLATFORM,
        inputs=[tensor(name=spec.name, datatype=spec.datatype, shape=[1]) for spec in INPUTS],
        outputs=[tensor(name=TEXT_OUTPUT, datatype="BYTES", shape=[-1])],
    )


def configuration(name: str) -> Any:
    """Decoupled: with `stream`, one request has many responses."""
    types = {"BYTES": model_config_pb2.TYPE_STRING, "BOOL": model_config_pb2.TYPE_BOOL}
    inputs = [
        model_config_pb2.ModelInput(name=spec.name, data_type=types[spec.datatype], dims=[1], optional=spec.optional)
        for spec in INPUTS
    ]
    config = model_config_pb2.ModelConfig(
        name=name,
        platform=PLATFORM,
        backend=PLATFORM,
        input=inputs,
        output=[model_config_pb2.ModelOutput(name=TEXT_OUTPUT, data_type=model_config_pb2.TYPE_STRING, dims=[-1])],
        model_transaction_policy=model_config_pb2.ModelTransactionPolicy(decoupled=True),
    )
    return service_pb2.ModelConfigResponse(config=config)


def repository_index(names: Sequence[str]) -> Any:
    entry = service_pb2.RepositoryIndexResponse.ModelIndex
    return service_pb2.RepositoryIndexResponse(
        models=[entry(name=name, version=VERSION, state="READY") for name in names]
    )
