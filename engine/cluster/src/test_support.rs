//! A cluster in memory, for tests: it keeps contents and results, runs what a test tells it, and fails as a test tells it.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bazel_remote_apis::google::bytestream::byte_stream_server::{ByteStream, ByteStreamServer};
use bazel_remote_apis::google::bytestream::{
    QueryWriteStatusRequest, QueryWriteStatusResponse, ReadRequest, ReadResponse, WriteRequest, WriteResponse,
};
use bazel_remote_apis::google::longrunning::{operation, Operation};
use bazel_remote_apis::google::protobuf::Any;
use bazel_remote_apis::google::rpc;
use prost::Message;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::Stream;
use tonic::{Code, Request, Response, Status, Streaming};
use wafengine::settings::address::{self, Address};

use crate::digests::Digest;
use crate::reapi;
use crate::reapi::action_cache_server::{ActionCache, ActionCacheServer};
use crate::reapi::capabilities_server::{Capabilities, CapabilitiesServer};
use crate::reapi::content_addressable_storage_server::{ContentAddressableStorage, ContentAddressableStorageServer};
use crate::reapi::execution_server::{Execution, ExecutionServer};
use crate::reapi::{batch_read_blobs_response, batch_update_blobs_response, ExecuteResponse};

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
/// What a command of a test does: the answer to an action with this digest.
type Run = dyn Fn(&Memory, &reapi::ExecuteRequest) -> Result<ExecuteResponse, Status> + Send + Sync;

/// What the cluster has, and how it misbehaves.
#[derive(Default)]
pub struct Memory {
    pub blobs: HashMap<Digest, Vec<u8>>,
    pub results: HashMap<Digest, reapi::ActionResult>,
    pub capabilities: reapi::ServerCapabilities,
    /// All calls wait for ever.
    pub is_silent: bool,
    /// All calls fail in this way.
    pub failure: Option<Code>,
    /// These contents come with other bytes.
    pub lies: HashSet<Digest>,
    /// Only calls with this token are answered.
    pub token: Option<String>,
    /// The calls that were made, by their names.
    pub calls: Vec<&'static str>,
    pub run: Option<Arc<Run>>,
    /// Streams of commands end without an answer so many times.
    pub cuts: usize,
    /// Answers to commands that have been run, by the names of their operations.
    operations: HashMap<String, ExecuteResponse>,
}

#[derive(Clone, Default)]
pub struct Cluster(Arc<Mutex<Memory>>);

impl Cluster {
    /// Starts it on a port of this machine. It ends with the runtime.
    pub async fn start() -> (Cluster, Address) {
        let cluster = Cluster::default();
        let address = cluster.listen().await;
        (cluster, parse(&format!("grpc://{address}/main")))
    }

    async fn listen(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tonic::transport::Server::builder()
            .add_service(CapabilitiesServer::new(self.clone()))
            .add_service(ActionCacheServer::new(self.clone()))
            .add_service(ContentAddressableStorageServer::new(self.clone()).max_decoding_message_size(8 << 20))
            .add_service(ByteStreamServer::new(self.clone()))
            .add_service(ExecutionServer::new(self.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        address
    }

    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap()
    }

    pub fn put(&self, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        self.memory().blobs.insert(digest, bytes.to_vec());
        digest
    }

    pub fn has(&self, digest: &Digest) -> bool {
        self.memory().blobs.contains_key(digest)
    }

    pub fn count(&self, call: &str) -> usize {
        self.memory().calls.iter().filter(|made| **made == call).count()
    }

    /// Notes a call, and fails or waits as the test wants it.
    async fn enter<T>(&self, call: &'static str, request: &Request<T>) -> Result<(), Status> {
        let is_silent = {
            let mut memory = self.memory();
            memory.calls.push(call);
            if let Some(token) = &memory.token {
                let expected = format!("Bearer {token}");
                let told = request.metadata().get("authorization");
                if told.is_none_or(|told| told.as_bytes() != expected.as_bytes()) {
                    return Err(Status::unauthenticated("no token"));
                }
            }
            if let Some(code) = memory.failure {
                return Err(Status::new(code, "as the test wants it"));
            }
            memory.is_silent
        };
        if is_silent {
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        Ok(())
    }
}

pub fn parse(text: &str) -> Address {
    let mut all = address::parse_all(text).unwrap();
    all.pop().unwrap()
}

fn digest(message: Option<&reapi::Digest>) -> Result<Digest, Status> {
    let digest = message.and_then(Digest::from_message);
    digest.ok_or_else(|| Status::invalid_argument("no digest"))
}

fn status(code: Code) -> Option<rpc::Status> {
    Some(rpc::Status {
        code: code as i32,
        ..rpc::Status::default()
    })
}

/// The digest of a resource, and whether its bytes are packed.
fn resource(name: &str) -> Result<(Digest, bool), Status> {
    let parts: Vec<&str> = name.split('/').collect();
    let [.., hash, size] = parts[..] else {
        return Err(Status::invalid_argument("no resource"));
    };
    let message = reapi::Digest {
        hash: hash.to_owned(),
        size_bytes: size.parse().map_err(|_| Status::invalid_argument("no size"))?,
    };
    Ok((digest(Some(&message))?, parts.contains(&"compressed-blobs")))
}

impl Memory {
    fn read(&self, digest: &Digest) -> Option<Vec<u8>> {
        let mut bytes = self.blobs.get(digest)?.clone();
        if self.lies.contains(digest) {
            bytes.iter_mut().for_each(|byte| *byte ^= 1);
        }
        Some(bytes)
    }
}

#[tonic::async_trait]
impl Capabilities for Cluster {
    async fn get_capabilities(
        &self,
        request: Request<reapi::GetCapabilitiesRequest>,
    ) -> Result<Response<reapi::ServerCapabilities>, Status> {
        self.enter("GetCapabilities", &request).await?;
        Ok(Response::new(self.memory().capabilities.clone()))
    }
}

#[tonic::async_trait]
impl ActionCache for Cluster {
    async fn get_action_result(
        &self,
        request: Request<reapi::GetActionResultRequest>,
    ) -> Result<Response<reapi::ActionResult>, Status> {
        self.enter("GetActionResult", &request).await?;
        let action = digest(request.get_ref().action_digest.as_ref())?;
        let found = self.memory().results.get(&action).cloned();
        found.map(Response::new).ok_or_else(|| Status::not_found("none"))
    }

    async fn update_action_result(
        &self,
        request: Request<reapi::UpdateActionResultRequest>,
    ) -> Result<Response<reapi::ActionResult>, Status> {
        self.enter("UpdateActionResult", &request).await?;
        let request = request.into_inner();
        let result = request.action_result.unwrap_or_default();
        let action = digest(request.action_digest.as_ref())?;
        self.memory().results.insert(action, result.clone());
        Ok(Response::new(result))
    }
}

#[tonic::async_trait]
impl ContentAddressableStorage for Cluster {
    async fn find_missing_blobs(
        &self,
        request: Request<reapi::FindMissingBlobsRequest>,
    ) -> Result<Response<reapi::FindMissingBlobsResponse>, Status> {
        self.enter("FindMissingBlobs", &request).await?;
        let memory = self.memory();
        let mut missing = request.into_inner().blob_digests;
        missing.retain(|told| Digest::from_message(told).is_none_or(|digest| !memory.blobs.contains_key(&digest)));
        Ok(Response::new(reapi::FindMissingBlobsResponse {
            missing_blob_digests: missing,
        }))
    }

    async fn batch_update_blobs(
        &self,
        request: Request<reapi::BatchUpdateBlobsRequest>,
    ) -> Result<Response<reapi::BatchUpdateBlobsResponse>, Status> {
        self.enter("BatchUpdateBlobs", &request).await?;
        let mut responses = Vec::new();
        for one in request.into_inner().requests {
            let told = digest(one.digest.as_ref())?;
            let is_good = Digest::of(&one.data) == told;
            if is_good {
                self.memory().blobs.insert(told, one.data);
            }
            responses.push(batch_update_blobs_response::Response {
                digest: one.digest,
                status: status(if is_good { Code::Ok } else { Code::InvalidArgument }),
            });
        }
        Ok(Response::new(reapi::BatchUpdateBlobsResponse { responses }))
    }

    async fn batch_read_blobs(
        &self,
        request: Request<reapi::BatchReadBlobsRequest>,
    ) -> Result<Response<reapi::BatchReadBlobsResponse>, Status> {
        self.enter("BatchReadBlobs", &request).await?;
        let mut responses = Vec::new();
        for told in request.into_inner().digests {
            let found = self.memory().read(&digest(Some(&told))?);
            responses.push(batch_read_blobs_response::Response {
                digest: Some(told),
                status: status(if found.is_some() { Code::Ok } else { Code::NotFound }),
                data: found.unwrap_or_default(),
                compressor: 0,
            });
        }
        Ok(Response::new(reapi::BatchReadBlobsResponse { responses }))
    }

    type GetTreeStream = Streamed<reapi::GetTreeResponse>;

    async fn get_tree(&self, _: Request<reapi::GetTreeRequest>) -> Result<Response<Self::GetTreeStream>, Status> {
        Err(Status::unimplemented("GetTree"))
    }

    async fn split_blob(
        &self,
        _: Request<reapi::SplitBlobRequest>,
    ) -> Result<Response<reapi::SplitBlobResponse>, Status> {
        Err(Status::unimplemented("SplitBlob"))
    }

    async fn splice_blob(
        &self,
        _: Request<reapi::SpliceBlobRequest>,
    ) -> Result<Response<reapi::SpliceBlobResponse>, Status> {
        Err(Status::unimplemented("SpliceBlob"))
    }

    type GetChunkMappingStream = Streamed<reapi::GetChunkMappingResponse>;

    async fn get_chunk_mapping(
        &self,
        _: Request<reapi::GetChunkMappingRequest>,
    ) -> Result<Response<Self::GetChunkMappingStream>, Status> {
        Err(Status::unimplemented("GetChunkMapping"))
    }

    async fn register_chunk_mapping(
        &self,
        _: Request<Streaming<reapi::RegisterChunkMappingRequest>>,
    ) -> Result<Response<reapi::RegisterChunkMappingResponse>, Status> {
        Err(Status::unimplemented("RegisterChunkMapping"))
    }
}

#[tonic::async_trait]
impl ByteStream for Cluster {
    type ReadStream = Streamed<ReadResponse>;

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        self.enter("Read", &request).await?;
        let (digest, is_packed) = resource(&request.get_ref().resource_name)?;
        let found = self.memory().read(&digest);
        let mut bytes = found.ok_or_else(|| Status::not_found("no content"))?;
        if is_packed {
            bytes = zstd::encode_all(&bytes[..], 1)?;
        }
        let pieces: Vec<_> = bytes
            .chunks(100_000)
            .map(|piece| Ok(ReadResponse { data: piece.to_vec() }))
            .collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(pieces))))
    }

    async fn write(&self, request: Request<Streaming<WriteRequest>>) -> Result<Response<WriteResponse>, Status> {
        self.enter("Write", &request).await?;
        let mut pieces = request.into_inner();
        let mut name = String::new();
        let (mut bytes, mut is_finished) = (Vec::new(), false);
        while let Some(piece) = pieces.message().await? {
            if piece.write_offset != bytes.len() as i64 {
                return Err(Status::invalid_argument("offset"));
            }
            if name.is_empty() {
                name = piece.resource_name;
            }
            bytes.write_all(&piece.data)?;
            is_finished |= piece.finish_write;
        }
        let (digest, is_packed) = resource(&name)?;
        let committed_size = bytes.len() as i64;
        if is_packed {
            bytes = zstd::decode_all(&bytes[..])?;
        }
        if !is_finished || Digest::of(&bytes) != digest {
            return Err(Status::invalid_argument("not what its digest says"));
        }
        self.memory().blobs.insert(digest, bytes);
        Ok(Response::new(WriteResponse { committed_size }))
    }

    async fn query_write_status(
        &self,
        _: Request<QueryWriteStatusRequest>,
    ) -> Result<Response<QueryWriteStatusResponse>, Status> {
        Err(Status::unimplemented("QueryWriteStatus"))
    }
}

fn done(name: &str, response: &ExecuteResponse) -> Operation {
    Operation {
        name: name.to_owned(),
        done: true,
        result: Some(operation::Result::Response(Any {
            type_url: "type.googleapis.com/build.bazel.remote.execution.v2.ExecuteResponse".to_owned(),
            value: response.encode_to_vec(),
        })),
        ..Operation::default()
    }
}

#[tonic::async_trait]
impl Execution for Cluster {
    type ExecuteStream = Streamed<Operation>;
    type WaitExecutionStream = Streamed<Operation>;

    async fn execute(&self, request: Request<reapi::ExecuteRequest>) -> Result<Response<Self::ExecuteStream>, Status> {
        self.enter("Execute", &request).await?;
        let request = request.into_inner();
        let mut memory = self.memory();
        let run = memory.run.clone().ok_or_else(|| Status::unimplemented("Execute"))?;
        let response = run(&memory, &request)?;
        let name = format!("operation {}", memory.operations.len());
        memory.operations.insert(name.clone(), response.clone());
        let mut all = vec![Ok(Operation {
            name: name.clone(),
            ..Operation::default()
        })];
        match memory.cuts {
            0 => all.push(Ok(done(&name, &response))),
            _ => memory.cuts -= 1,
        }
        Ok(Response::new(Box::pin(tokio_stream::iter(all))))
    }

    async fn wait_execution(
        &self,
        request: Request<reapi::WaitExecutionRequest>,
    ) -> Result<Response<Self::WaitExecutionStream>, Status> {
        self.enter("WaitExecution", &request).await?;
        let mut memory = self.memory();
        let name = request.into_inner().name;
        let found = memory.operations.get(&name).map(|response| Ok(done(&name, response)));
        let found = found.ok_or_else(|| Status::not_found("no such command"))?;
        let all = match memory.cuts {
            0 => vec![found],
            _ => {
                memory.cuts -= 1;
                Vec::new()
            }
        };
        Ok(Response::new(Box::pin(tokio_stream::iter(all))))
    }
}
