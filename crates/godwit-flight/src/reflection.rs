//! gRPC Server Reflection (v1 and v1alpha), by which clients can list the services Arrow Flight and health checks.
//!
//! This module repeats the messages of `Flight.proto`, because the code that arrow-flight generated from it contains no
//! protobuf descriptors. A test calls the server with a client that knows only these descriptors.

use arrow_flight::flight_service_server::FlightServiceServer;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_reflection::server::Builder;

const PACKAGE: &str = "arrow.flight.protocol";
const PROTO_FILE: &str = "Flight.proto";
const TIMESTAMP_FILE: &str = "google/protobuf/timestamp.proto";
const TIMESTAMP: &str = "google.protobuf.Timestamp";

/// The type of a protobuf field.
#[derive(Clone, Copy)]
enum FieldKind {
    Scalar(Type),
    /// A message of the package `arrow.flight.protocol`, by its name.
    Message(&'static str),
    /// A repeated message of the package `arrow.flight.protocol`, by its name.
    RepeatedMessage(&'static str),
    /// A repeated string.
    RepeatedString,
    /// An enumeration of the package `arrow.flight.protocol`, by its name.
    Enum(&'static str),
    Timestamp,
    /// An optional double.
    OptionalDouble,
}

use FieldKind::{Enum, Message, OptionalDouble, RepeatedMessage, RepeatedString, Scalar, Timestamp};

const BYTES: FieldKind = Scalar(Type::Bytes);
const STRING: FieldKind = Scalar(Type::String);

type Fields = &'static [(&'static str, i32, FieldKind)];

/// The messages of `Flight.proto`, with name, number and type of each field.
const MESSAGES: [(&str, Fields); 20] = [
    ("HandshakeRequest", &[("protocol_version", 1, Scalar(Type::Uint64)), ("payload", 2, BYTES)]),
    ("HandshakeResponse", &[("protocol_version", 1, Scalar(Type::Uint64)), ("payload", 2, BYTES)]),
    ("BasicAuth", &[("username", 2, STRING), ("password", 3, STRING)]),
    ("Empty", &[]),
    ("ActionType", &[("type", 1, STRING), ("description", 2, STRING)]),
    ("Criteria", &[("expression", 1, BYTES)]),
    ("Action", &[("type", 1, STRING), ("body", 2, BYTES)]),
    ("CancelFlightInfoRequest", &[("info", 1, Message("FlightInfo"))]),
    ("RenewFlightEndpointRequest", &[("endpoint", 1, Message("FlightEndpoint"))]),
    ("Result", &[("body", 1, BYTES)]),
    ("CancelFlightInfoResult", &[("status", 1, Enum("CancelStatus"))]),
    ("SchemaResult", &[("schema", 1, BYTES)]),
    (
        "FlightDescriptor",
        &[("type", 1, Enum("FlightDescriptor.DescriptorType")), ("cmd", 2, BYTES), ("path", 3, RepeatedString)],
    ),
    (
        "FlightInfo",
        &[
            ("schema", 1, BYTES),
            ("flight_descriptor", 2, Message("FlightDescriptor")),
            ("endpoint", 3, RepeatedMessage("FlightEndpoint")),
            ("total_records", 4, Scalar(Type::Int64)),
            ("total_bytes", 5, Scalar(Type::Int64)),
            ("ordered", 6, Scalar(Type::Bool)),
            ("app_metadata", 7, BYTES),
        ],
    ),
    (
        "PollInfo",
        &[
            ("info", 1, Message("FlightInfo")),
            ("flight_descriptor", 2, Message("FlightDescriptor")),
            ("progress", 3, OptionalDouble),
            ("expiration_time", 4, Timestamp),
        ],
    ),
    (
        "FlightEndpoint",
        &[
            ("ticket", 1, Message("Ticket")),
            ("location", 2, RepeatedMessage("Location")),
            ("expiration_time", 3, Timestamp),
            ("app_metadata", 4, BYTES),
        ],
    ),
    ("Location", &[("uri", 1, STRING)]),
    ("Ticket", &[("ticket", 1, BYTES)]),
    (
        "FlightData",
        &[
            ("flight_descriptor", 1, Message("FlightDescriptor")),
            ("data_header", 2, BYTES),
            ("app_metadata", 3, BYTES),
            ("data_body", 1000, BYTES),
        ],
    ),
    ("PutResult", &[("app_metadata", 1, BYTES)]),
];

/// An RPC method: its name, and the message names of request and response, each with `true` if it is streamed.
type Method = (&'static str, (&'static str, bool), (&'static str, bool));

const METHODS: [Method; 10] = [
    ("Handshake", ("HandshakeRequest", true), ("HandshakeResponse", true)),
    ("ListFlights", ("Criteria", false), ("FlightInfo", true)),
    ("GetFlightInfo", ("FlightDescriptor", false), ("FlightInfo", false)),
    ("PollFlightInfo", ("FlightDescriptor", false), ("PollInfo", false)),
    ("GetSchema", ("FlightDescriptor", false), ("SchemaResult", false)),
    ("DoGet", ("Ticket", false), ("FlightData", true)),
    ("DoPut", ("FlightData", true), ("PutResult", true)),
    ("DoExchange", ("FlightData", true), ("FlightData", true)),
    ("DoAction", ("Action", false), ("Result", true)),
    ("ListActions", ("Empty", false), ("ActionType", true)),
];

const DESCRIPTOR_TYPES: [&str; 3] = ["UNKNOWN", "PATH", "CMD"];
const CANCEL_STATUS: [&str; 4] = [
    "CANCEL_STATUS_UNSPECIFIED",
    "CANCEL_STATUS_CANCELLED",
    "CANCEL_STATUS_CANCELLING",
    "CANCEL_STATUS_NOT_CANCELLABLE",
];

/// Adds the gRPC reflection services to the routes of a server.
pub(crate) fn with_reflection(routes: Routes) -> Routes {
    let described = || {
        let builder = Builder::configure().register_file_descriptor_set(file_descriptor_set());
        builder.register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let why = "what is described is whole: a test asks for it";
    routes.add_service(described().build_v1().expect(why)).add_service(described().build_v1alpha().expect(why))
}

fn file_descriptor_set() -> FileDescriptorSet {
    let mut messages: Vec<_> = MESSAGES.iter().map(|(name, fields)| message_descriptor(name, fields)).collect();
    for message in messages.iter_mut().filter(|message| message.name() == "FlightDescriptor") {
        message.enum_type.push(enum_descriptor("DescriptorType", &DESCRIPTOR_TYPES));
    }
    let service = <FlightServiceServer<()> as NamedService>::NAME.rsplit('.').next().map(str::to_owned);
    let flight = FileDescriptorProto {
        name: Some(PROTO_FILE.to_owned()),
        package: Some(PACKAGE.to_owned()),
        dependency: vec![TIMESTAMP_FILE.to_owned()],
        message_type: messages,
        enum_type: vec![enum_descriptor("CancelStatus", &CANCEL_STATUS)],
        service: vec![ServiceDescriptorProto {
            name: service,
            method: METHODS.iter().map(|(name, sent, comes)| method_descriptor(name, *sent, *comes)).collect(),
            options: None,
        }],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    let timestamp = FileDescriptorProto {
        name: Some(TIMESTAMP_FILE.to_owned()),
        package: TIMESTAMP.rsplit_once('.').map(|(package, _)| package.to_owned()),
        message_type: vec![message_descriptor(
            "Timestamp",
            &[("seconds", 1, Scalar(Type::Int64)), ("nanos", 2, Scalar(Type::Int32))],
        )],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    FileDescriptorSet { file: vec![timestamp, flight] }
}

fn message_descriptor(name: &str, fields: Fields) -> DescriptorProto {
    let optional: Vec<&str> =
        fields.iter().filter(|(_, _, kind)| matches!(kind, OptionalDouble)).map(|(name, _, _)| *name).collect();
    // A proto3 descriptor represents each optional field by a oneof with this field as its only member.
    let choices =
        optional.iter().map(|name| prost_types::OneofDescriptorProto { name: Some(format!("_{name}")), options: None });
    DescriptorProto {
        name: Some(name.to_owned()),
        field: fields.iter().map(|(name, number, kind)| field_descriptor(name, *number, *kind)).collect(),
        oneof_decl: choices.collect(),
        ..DescriptorProto::default()
    }
}

fn field_descriptor(name: &str, number: i32, kind: FieldKind) -> FieldDescriptorProto {
    let (of, type_name) = match kind {
        Scalar(of) => (of, None),
        RepeatedString => (Type::String, None),
        OptionalDouble => (Type::Double, None),
        Message(name) | RepeatedMessage(name) => (Type::Message, Some(format!(".{PACKAGE}.{name}"))),
        Enum(name) => (Type::Enum, Some(format!(".{PACKAGE}.{name}"))),
        Timestamp => (Type::Message, Some(format!(".{TIMESTAMP}"))),
    };
    let many = matches!(kind, RepeatedMessage(_) | RepeatedString);
    let may_be_missing = matches!(kind, OptionalDouble);
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(if many { Label::Repeated } else { Label::Optional }.into()),
        r#type: Some(of.into()),
        type_name,
        oneof_index: may_be_missing.then_some(0),
        proto3_optional: may_be_missing.then_some(true),
        ..FieldDescriptorProto::default()
    }
}

fn enum_descriptor(name: &str, values: &[&str]) -> EnumDescriptorProto {
    let value = |(number, name): (i32, &&str)| EnumValueDescriptorProto {
        name: Some((*name).to_owned()),
        number: Some(number),
        options: None,
    };
    EnumDescriptorProto {
        name: Some(name.to_owned()),
        value: (0..).zip(values).map(value).collect(),
        ..EnumDescriptorProto::default()
    }
}

fn method_descriptor(name: &str, sent: (&str, bool), comes: (&str, bool)) -> MethodDescriptorProto {
    MethodDescriptorProto {
        name: Some(name.to_owned()),
        input_type: Some(format!(".{PACKAGE}.{}", sent.0)),
        output_type: Some(format!(".{PACKAGE}.{}", comes.0)),
        client_streaming: Some(sent.1),
        server_streaming: Some(comes.1),
        options: None,
    }
}
