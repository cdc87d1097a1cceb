//! Messages of sessions, which `arrow-flight` 59 does not have (Flight.proto of Arrow 15 and later).

use std::collections::HashMap;

/// One option of a session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OptionValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sfixed64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Texts(Texts),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Texts {
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

/// `SetSessionOptionsRequest`, and `GetSessionOptionsResult`, which is encoded in the same way.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Options {
    #[prost(map = "string, message", tag = "1")]
    pub options: HashMap<String, OptionValue>,
}

/// `SetSessionOptionsResult`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetResult {
    #[prost(map = "string, message", tag = "1")]
    pub errors: HashMap<String, SetError>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SetError {
    #[prost(int32, tag = "1")]
    pub value: i32,
}

/// `SetSessionOptionsResult.ErrorValue`.
pub const INVALID_NAME: i32 = 1;
/// `SetSessionOptionsResult.ErrorValue`.
pub const INVALID_VALUE: i32 = 2;

/// `CloseSessionResult`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CloseResult {
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// `CloseSessionResult.Status`.
pub const CLOSED: i32 = 1;

/// The cookie that names a session (Arrow Flight, "Session management").
pub const COOKIE: &str = "arrow_flight_session_id";
