//! The messages of the Remote Workers API, by which a worker gets its commands: `google.devtools.remoteworkers.v1test2`.
//!
//! The crate with the other messages does not have these, and there are few.

use bazel_remote_apis::google::protobuf::{Any, Timestamp};
use bazel_remote_apis::google::rpc::Status;

use tonic::codegen::http::uri::PathAndQuery;
use tonic::Request;
use tonic_prost::ProstCodec;

use crate::connection::Channel;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Property {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Device {
    #[prost(string, tag = "1")]
    pub handle: String,
    #[prost(message, repeated, tag = "2")]
    pub properties: Vec<Property>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Worker {
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
    #[prost(message, repeated, tag = "2")]
    pub properties: Vec<Property>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum BotStatus {
    Unspecified = 0,
    Ok = 1,
    Unhealthy = 2,
    HostRebooting = 3,
    /// It finishes the leases that it has, and takes no others.
    BotTerminating = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum LeaseState {
    Unspecified = 0,
    Pending = 1,
    Active = 2,
    Completed = 4,
    /// Only the server sets this.
    Cancelled = 5,
}

/// A command that the worker has, from the server's offer until its result is acknowledged.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Lease {
    #[prost(string, tag = "7")]
    pub id: String,
    /// The action, or its digest.
    #[prost(message, optional, tag = "8")]
    pub payload: Option<Any>,
    /// The answer to `Execute`.
    #[prost(message, optional, tag = "9")]
    pub result: Option<Any>,
    #[prost(enumeration = "LeaseState", tag = "2")]
    pub state: i32,
    #[prost(message, optional, tag = "3")]
    pub status: Option<Status>,
    #[prost(message, optional, tag = "4")]
    pub requirements: Option<Worker>,
    #[prost(message, optional, tag = "5")]
    pub expire_time: Option<Timestamp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct BotSession {
    /// The server gives it.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The worker gives it.
    #[prost(string, tag = "2")]
    pub bot_id: String,
    #[prost(enumeration = "BotStatus", tag = "3")]
    pub status: i32,
    #[prost(message, optional, tag = "4")]
    pub worker: Option<Worker>,
    #[prost(message, repeated, tag = "5")]
    pub leases: Vec<Lease>,
    /// When the server takes the worker for dead if it does not call.
    #[prost(message, optional, tag = "6")]
    pub expire_time: Option<Timestamp>,
    /// BuildGrid numbers the changes of leases with it, and wants it back.
    #[prost(string, tag = "7")]
    pub version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateBotSessionRequest {
    /// The instance.
    #[prost(string, tag = "1")]
    pub parent: String,
    #[prost(message, optional, tag = "2")]
    pub bot_session: Option<BotSession>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdateBotSessionRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub bot_session: Option<BotSession>,
}

/// The calls. The server may let a call wait for work until its deadline, which goes with the request.
pub struct BotsClient(tonic::client::Grpc<Channel>);

impl BotsClient {
    pub fn new(channel: Channel) -> BotsClient {
        BotsClient(tonic::client::Grpc::new(channel))
    }

    pub async fn create_bot_session(
        &mut self,
        request: Request<CreateBotSessionRequest>,
    ) -> Result<BotSession, tonic::Status> {
        self.call(request, "/google.devtools.remoteworkers.v1test2.Bots/CreateBotSession")
            .await
    }

    pub async fn update_bot_session(
        &mut self,
        request: Request<UpdateBotSessionRequest>,
    ) -> Result<BotSession, tonic::Status> {
        self.call(request, "/google.devtools.remoteworkers.v1test2.Bots/UpdateBotSession")
            .await
    }

    async fn call<T: prost::Message + 'static>(
        &mut self,
        request: Request<T>,
        path: &'static str,
    ) -> Result<BotSession, tonic::Status> {
        self.0
            .ready()
            .await
            .map_err(|error| tonic::Status::unavailable(format!("no connection: {error}")))?;
        let codec: ProstCodec<T, BotSession> = ProstCodec::default();
        let answer = self.0.unary(request, PathAndQuery::from_static(path), codec).await?;
        Ok(answer.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    /// The bytes that protoc's own code makes of this message.
    #[test]
    fn messages_have_the_numbers_of_the_api() {
        let session = BotSession {
            name: "n".to_owned(),
            bot_id: "b".to_owned(),
            status: BotStatus::BotTerminating as i32,
            worker: Some(Worker {
                devices: vec![Device {
                    handle: "d".to_owned(),
                    properties: Vec::new(),
                }],
                properties: vec![Property {
                    key: "k".to_owned(),
                    value: "v".to_owned(),
                }],
            }),
            leases: vec![Lease {
                id: "l".to_owned(),
                state: LeaseState::Cancelled as i32,
                status: Some(Status {
                    code: 1,
                    ..Status::default()
                }),
                ..Lease::default()
            }],
            expire_time: None,
            version: "3".to_owned(),
        };
        let expected = b"\x0a\x01n\x12\x01b\x18\x04\x22\x0d\x0a\x03\x0a\x01d\x12\x06\x0a\x01k\x12\x01v\
            \x2a\x09\x10\x05\x1a\x02\x08\x01\x3a\x01l\x3a\x013";
        assert_eq!(session.encode_to_vec(), expected);
        assert_eq!(BotSession::decode(&expected[..]), Ok(session));
    }
}
