"""Calls a Flight server of which only the address is known: methods and messages come from gRPC Server Reflection.

Arguments: HOST:PORT, the name of a dataset, and a token if the server requires one. Prints the services and the responses, one per line.
"""

import collections
import sys

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory, unknown_fields
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

address, dataset, *token = sys.argv[1:]
headers = [("authorization", f"Bearer {token[0]}")] if token else []


class ReflectionToken(grpc.StreamStreamClientInterceptor):
    """Sends the token with reflection requests as well."""

    FIELDS = ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")
    Details = collections.namedtuple("Details", FIELDS)

    def intercept_stream_stream(self, continuation, details, requests):
        kept = {name: getattr(details, name) for name in self.FIELDS}
        return continuation(self.Details(**kept | {"metadata": headers}), requests)


channel = grpc.intercept_channel(grpc.insecure_channel(address), ReflectionToken())
database = ProtoReflectionDescriptorDatabase(channel)
print(*sorted(database.get_services()))
pool = descriptor_pool.DescriptorPool(database)
service = pool.FindServiceByName("arrow.flight.protocol.FlightService")


def is_described(message):
    """Returns whether a message has no unknown fields."""
    nested = [value for field, value in message.ListFields() if field.message_type]
    nested = [one for value in nested for one in (value if hasattr(value, "append") else [value])]
    return not len(unknown_fields.UnknownFieldSet(message)) and all(map(is_described, nested))


def call_method(name, **fields):
    method = service.methods_by_name[name]
    sent, comes = map(message_factory.GetMessageClass, (method.input_type, method.output_type))
    path = f"/{service.full_name}/{name}"
    kind = channel.unary_stream if method.server_streaming else channel.unary_unary
    answer = kind(path, sent.SerializeToString, comes.FromString)(sent(**fields), metadata=headers)
    answers = list(answer) if method.server_streaming else [answer]
    for one in answers:
        assert is_described(one), one
    return answers


info = call_method("GetFlightInfo", type=1, path=[dataset])[0]
print(*info.flight_descriptor.path, info.ordered, len(info.endpoint))
data = call_method("DoGet", ticket=info.endpoint[0].ticket.ticket)
print(sum(len(one.data_body) > 0 for one in data), "messages have data")
print(*sorted(json_format.MessageToDict(one)["type"] for one in call_method("ListActions")))
print(*(method.name for method in service.methods))
print(*(value.name for value in pool.FindEnumTypeByName("arrow.flight.protocol.FlightDescriptor.DescriptorType").values))
